"""Answer queries about catalogs of Postgres from an empty database: names, types and comments of releases' columns.

Its session is locked and reaches nothing else, and names of other tables and functions are refused.
"""

from __future__ import annotations

import re
import threading
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, all_rows, parse_file, table, temp_table
from privsql.serving import wire
from privsql.serving.wire import Column, Result, SessionError, WireType
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.engine.database import LockedSession
    from privsql.serving.guard import QueryQueue, ReleasePool

# Catalogs -------------------------------------------------------------------------------------------------------------

DATABASE, USER, VERSION = "privsql", "privsql", f"PostgreSQL 15.0 (privsql {__version__})"
CATALOG = "catalog"  # the database in memory
SCHEMAS = {"pg_catalog": 11, "public": 2200, "information_schema": 13_000}
FIRST_OID, CLASS_OID = 16_384, 1259
KNOWN_OIDS = {"pg_type": 1247, "pg_attribute": 1249, "pg_proc": 1255, "pg_class": CLASS_OID, "pg_constraint": 2606}
LETTERS: dict[str, tuple[pa.DataType, Any]] = {  # of ``catalog.txt``: type, and the value where none is stated
    "": (pa.string(), None), "n": (pa.string(), ""), "i": (pa.int64(), 0), "b": (pa.bool_(), False),
    "f": (pa.float64(), 0.0), "s": (pa.timestamp("us"), None), "I": (pa.list_(pa.int64()), None),
    "T": (pa.list_(pa.string()), None),
}  # fmt: skip
SOURCES = (exp.Table, exp.From, exp.Join, exp.Unnest)
REFUSED = (exp.ReadCSV, exp.ReadParquet, exp.Rand, exp.Uuid, exp.Command, exp.Into, exp.Parameter)
FIXED = {
    "current_user": USER, "session_user": USER, "user": USER, "current_schema": "public", "version": VERSION,
    "current_version": VERSION, "current_database": DATABASE, "current_catalog": DATABASE,
}  # fmt: skip
PATTERNS = ("~", "~*", "!~", "!~*")
PROCEDURES = ("typreceive", "typsend", "typinput", "typoutput")  # columns that name some
SETTINGS = {
    "server_version": "15.0", "server_version_num": "150000", "server_encoding": "UTF8", "client_encoding": "UTF8",
    "datestyle": "ISO, MDY", "intervalstyle": "postgres", "timezone": "UTC", "integer_datetimes": "on",
    "standard_conforming_strings": "on", "transaction_isolation": "repeatable read", "max_identifier_length": "63",
    "max_index_keys": "32", "transaction_read_only": "on", "default_transaction_read_only": "on",
    "search_path": "public", "application_name": "", "is_superuser": "off", "session_authorization": USER, "jit": "off",
    "lc_collate": "C", "in_hot_standby": "off", "privsql.intervals": "off", "privsql.confidence": "0.95",
}  # fmt: skip
Rows = list[dict[str, Any]]


class Catalog:
    """The catalogs of the served releases."""

    def __init__(self, db: LockedSession, pools: Mapping[str, ReleasePool], user: str = USER) -> None:
        self._db, self._turn = db, threading.Lock()
        self.relations = dict(_read_relations())
        rows = _catalog_rows(self.relations, pools, user)
        for name, columns in self.relations.items():
            held = {column: [one.get(column, LETTERS[letter][1]) for one in rows.get(name, [])]
                    for column, letter in columns.items()}  # fmt: skip
            arrays = [pa.array(values, LETTERS[columns[column]][0]) for column, values in held.items()]
            db.register_arrow("held", pa.table(arrays, names=list(held)))
            db.create_table(name, all_rows(temp_table("held")), into=CATALOG)
            db.drop("held")
        functions = parse_file("duckdb/pg_functions").expressions
        self._functions = {one.alias: self._qualify_tables(one.this.copy()) for one in functions}

    def answer(self, tree: exp.Query, settings: Mapping[str, str], limits: QueryQueue, stop: threading.Event) -> Result:
        """Return the answer to a query over catalogs; ``SessionError`` for what they do not know."""
        query = self._translate(tree.copy(), settings)
        if not query.args.get("limit"):
            query.set("limit", exp.Limit(expression=exp.Literal.number(limits.rows + 1)))
        with self._turn, self._db.limit_time(limits.seconds, stop):
            fields, rows = self._db.list_fields(query), self._db.rows(query)
        if len(rows) > limits.rows:
            raise SessionError(f"the answer has more than {limits.rows:,} rows; add LIMIT", "54000")
        names = name_columns(tree, [one.name for one in fields])
        columns = [Column(name, *wire.find_type(one.type)) for name, one in zip(names, fields, strict=True)]
        return Result("SELECT", columns, rows)

    def knows(self, name: exp.Table) -> bool:
        """Return True for a table that is one of the catalogs, or a function that gives rows."""
        return not isinstance(name.this, exp.Identifier) or _relation_name(name) in self.relations

    def _translate(self, tree: exp.Expr, settings: Mapping[str, str]) -> exp.Expr:
        """Return a query as the engine understands it: names and functions of Postgres are replaced."""
        for one in list(tree.find_all(exp.Table, exp.Unnest)):
            alias = one.args.get("alias")
            if alias is not None and not alias.columns and not isinstance(one.this, exp.Identifier):
                alias.set("columns", [alias.this.copy()])  # FROM unnest(x) v: v is its column, too
        tree = self._qualify_tables(tree)
        for node in reversed(list(tree.walk())):  # from the leaves up
            other = self._replace_node(node, settings)
            if other is not node:
                tree = other if node is tree else node.replace(other) and tree
        for node in tree.walk():
            if isinstance(node, REFUSED) or (
                isinstance(node, exp.Anonymous) and node.name.lower() not in ENGINE_FUNCTIONS
            ):
                raise SessionError(f"{node.sql('postgres')[:80]} is not known to these catalogs", "42883")
        return tree

    def _qualify_tables(self, tree: exp.Expr) -> exp.Expr:
        named = {fold_name(one.alias) for one in tree.find_all(exp.CTE)}
        for one in list(tree.find_all(exp.Table)):
            if not isinstance(one.this, exp.Identifier):
                one.set("db", None)
            elif one.db or fold_name(one.name) not in named:
                if not self.knows(one):
                    raise SessionError(f'relation "{one.name}" does not exist', "42P01")
                name = table(_relation_name(one), CATALOG, "main")
                name.set("alias", one.args.get("alias") or exp.TableAlias(this=exp.to_identifier(one.name)))
                name.set("joins", one.args.get("joins"))
                one.replace(name)
        return tree

    def _replace_node(self, node: exp.Expr, settings: Mapping[str, str]) -> exp.Expr:
        """Return what the engine has in place of a node of Postgres's, whose parts are replaced already."""
        other = node
        match node:
            case exp.Column():
                node.set("db", None)
                node.set("catalog", None)
            case exp.Dot() if isinstance(node.this, exp.Identifier) and fold_name(node.this.name) in SCHEMAS:
                other = node.expression.copy()
            case exp.Collate():
                other = node.this.copy()
            case exp.Operator():
                other = _replace_operator(node, str(node.args["operator"]).rpartition(".")[2])
            case exp.Cast():
                other = self._replace_cast(node)
            case exp.Literal() if node.is_string and re.fullmatch(r"\{[\d,]*\}", node.name):
                other = exp.Literal.string(f"[{node.name[1:-1]}]")
            case exp.NEQ() | exp.EQ() if node.this.name in PROCEDURES and node.expression.is_number:
                node.set("expression", exp.Literal.string(node.expression.name))
            case exp.Any() if isinstance(node.this.unnest(), exp.Literal):
                items = map(exp.convert, wire.split_list(node.this.unnest().name))
                other = exp.Any(this=exp.Array(expressions=list(items)))
            case exp.GenerateSeries() | exp.ExplodingGenerateSeries() if not isinstance(node.parent, SOURCES):
                other = exp.Unnest(expressions=[node.copy()])
            case exp.Func():
                other = self._replace_function(node, settings)
        return other

    def _replace_function(self, node: exp.Func, settings: Mapping[str, str]) -> exp.Expr:
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in FIXED:
            return exp.Literal.string(FIXED[name])
        if name == "current_schemas":
            return exp.array("'public'")
        if name == "current_setting":
            return exp.Literal.string(settings.get(node.expressions[0].name.lower(), ""))
        if name not in self._functions:
            return node
        return self._call(name, node.expressions if isinstance(node, exp.Anonymous) else list(node.iter_expressions()))

    def _call(self, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        """Return a function of ``pg_functions.sql`` with its arguments."""
        values = dict(zip(("__first__", "__second__"), (*arguments, exp.null(), exp.null()), strict=False))
        body = self._functions[name].copy()
        filled = body.transform(lambda one: values[one.name].copy() if isinstance(one, exp.Column)
                                and one.name in values else one)  # fmt: skip
        return exp.paren(filled, copy=False)

    def _replace_cast(self, node: exp.Cast) -> exp.Expr:
        kind = node.to.sql("postgres").lower().removeprefix("pg_catalog.").strip('"')
        literal = node.this if isinstance(node.this, exp.Literal) and node.this.is_string else None
        if kind in ("regclass", "regtype", "regnamespace", "regproc"):
            if literal is None:
                return self._call(kind, [node.this]) if kind != "regproc" else node.this
            if kind == "regproc":
                return exp.Literal.string(literal.name.rpartition(".")[2])
            return exp.Literal.number(literal.name) if literal.name.isdigit() else self._call(f"to_{kind}", [literal])
        plain = {"oid": "BIGINT", "xid": "BIGINT", "oid[]": "BIGINT[]", "int2vector": "BIGINT[]"}
        if kind in plain:
            return exp.cast(node.this, plain[kind], dialect=DIALECT)
        known = node.to.this if isinstance(node.to, exp.DataType) else None
        return node if known not in (None, exp.DType.USERDEFINED, exp.DType.NAME) else exp.cast(node.this, "VARCHAR")


def name_columns(tree: exp.Query, names: Sequence[str]) -> list[str]:
    """Return the names of columns as Postgres has them: a function without an alias is called after itself."""
    items = tree.selects
    if len(items) != len(names) or any(one.is_star for one in items):
        return list(names)
    return [_name_item(one) or name for one, name in zip(items, names, strict=True)]


def _name_item(item: exp.Expr) -> str:
    if isinstance(item, exp.Alias | exp.Column):
        return item.alias_or_name
    inner = item.expression if isinstance(item, exp.Dot) else item
    if isinstance(inner, exp.CurrentVersion):
        return "version"
    if not isinstance(inner, exp.Func):
        return "?column?" if isinstance(inner, exp.Literal) else ""
    return (inner.name if isinstance(inner, exp.Anonymous) else inner.sql_name()).lower()


ENGINE_FUNCTIONS = {"len", "generate_subscripts", "array_length", "array_to_string", "string_split"}


def _replace_operator(node: exp.Operator, operator: str) -> exp.Expr:
    kinds: dict[str, type[exp.Binary]] = {"=": exp.EQ, "<>": exp.NEQ, "!=": exp.NEQ, "~~": exp.Like}
    if operator in kinds:
        return kinds[operator](this=node.this, expression=node.expression)
    if operator not in PATTERNS:
        raise SessionError(f"OPERATOR({operator}) is not known to these catalogs", "42883")
    flag = exp.Literal.string("i") if operator.endswith("*") else None
    matched = exp.RegexpLike(this=node.this, expression=node.expression, flag=flag)
    return exp.not_(matched) if operator.startswith("!") else matched


def _relation_name(one: exp.Table) -> str:
    schema = fold_name(one.db) or ("pg_catalog" if fold_name(one.name).startswith("pg_") else "public")
    return fold_name(one.name) if schema == "pg_catalog" else f"{schema}.{fold_name(one.name)}"


def _read_relations() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the relations of ``catalog.txt`` with the letters of their columns."""
    schema = ""
    for line in (files("privsql") / "serving" / "catalog.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            schema = "" if line == "[pg_catalog]" else line.strip("[]") + "."
        elif not line.startswith("#"):
            name, *columns = line.split()
            letters = {column: letter for letter, _, column in (one.rpartition(":") for one in columns)}
            yield schema + name, letters | ({"privsql_label": ""} if name == "pg_type" else {})


def _catalog_rows(relations: Mapping[str, Any], pools: Mapping[str, ReleasePool], user: str) -> dict[str, Rows]:
    """Return the rows of the catalogs that have some."""
    rows: dict[str, Rows] = {name: [] for name in relations}
    of_catalog = {"table_catalog": DATABASE, "catalog_name": DATABASE}
    for schema, oid in SCHEMAS.items():
        rows["pg_namespace"].append({"oid": oid, "nspname": schema, "nspowner": 10})
        rows["information_schema.schemata"].append({**of_catalog, "schema_name": schema, "schema_owner": USER})
    rows["pg_database"].append({"oid": 5, "datname": DATABASE, "datdba": 10, "encoding": 6, "datallowconn": True,
                                "datlocprovider": "c", "datcollate": "C", "datctype": "C"})  # fmt: skip
    role = {"oid": 10, "usesysid": 10, "rolcanlogin": True, "rolinherit": True, "rolconnlimit": -1}
    rows["pg_roles"] += [role | {"rolname": user}]
    rows["pg_user"] += [role | {"usename": user}]
    rows["pg_am"].append({"oid": 2, "amname": "heap", "amtype": "t"})
    rows["pg_collation"] += [{"oid": 100, "collname": "default"}, {"oid": 950, "collname": "C"}]
    rows["pg_settings"] += [{"name": name, "setting": value} for name, value in SETTINGS.items()]
    rows["pg_type"] += [row for one in wire.TYPES.values() for row in _type_rows(one)]
    for at, name in enumerate(relations):
        schema, _, relation = name.rpartition(".")
        place = {"relnamespace": SCHEMAS[schema or "pg_catalog"], "relkind": "v" if schema else "r"}
        number = KNOWN_OIDS.get(name, 12_000 + at)
        rows["pg_class"].append(place | {"oid": number, "relname": relation, "relpersistence": "p"})
    for at, pool in enumerate(pools.values()):
        for name, row in _release_rows(pool, FIRST_OID + at):
            rows[name].append(row)
    return rows


def _type_rows(kind: WireType) -> Iterator[dict[str, Any]]:
    joined = "_" if kind.category in "DT" or kind.name in ("numeric", "uuid", "json") else ""
    row = {"typnamespace": SCHEMAS["pg_catalog"], "typowner": 10, "typtype": "b", "typdelim": ",", "typtypmod": -1}
    row |= {"typisdefined": True, "typbasetype": 0}
    shorts = (("input", "in"), ("output", "out"), ("receive", "recv"), ("send", "send"))
    ends = {f"typ{one}": f"{kind.name}{joined}{short}" for one, short in shorts}
    yield row | ends | {"oid": kind.oid, "typname": kind.name, "typlen": kind.size, "typarray": kind.array,
                        "typcategory": kind.category, "privsql_label": kind.label}  # fmt: skip
    if kind.array:
        ends = {f"typ{one}": f"array_{short}" for one, short in shorts}
        yield row | ends | {"oid": kind.array, "typname": f"_{kind.name}", "typlen": -1, "typelem": kind.oid,
                            "typcategory": "A", "privsql_label": f"{kind.label}[]"}  # fmt: skip


def _release_rows(pool: ReleasePool, oid: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows by which catalogs describe a release."""
    manifest = pool.manifest
    columns = [(one, "quasi-identifier") for one in manifest.quasi_identifiers]
    columns += [(one, "items" if manifest.roles.hold_sets else "sensitive") for one in manifest.sensitive]
    place = {"table_catalog": DATABASE, "table_schema": "public", "table_name": manifest.name}
    yield "pg_class", {"oid": oid, "relname": manifest.name, "relnamespace": SCHEMAS["public"], "relkind": "r",
                       "relowner": 10, "relam": 2, "relpersistence": "p", "relnatts": len(columns), "relreplident": "d",
                       "reltuples": float(manifest.published or 0), "relispopulated": True}  # fmt: skip
    yield "pg_tables", {"schemaname": "public", "tablename": manifest.name, "tableowner": USER}
    yield "information_schema.tables", place | {"table_type": "BASE TABLE", "is_insertable_into": "NO"}
    comment = f"privsql: {manifest.mechanism}, {manifest.algorithm}; low(..) and high(..) give bounds of aggregates"
    yield "pg_description", {"objoid": oid, "classoid": CLASS_OID, "objsubid": 0, "description": comment}
    for at, (one, role) in enumerate(columns, start=1):
        kind, is_list = wire.find_type(one.type)
        number, size = (kind.array, -1) if is_list else (kind.oid, kind.size)
        label, name = f"{kind.label}{'[]' * is_list}", f"{'_' * is_list}{kind.name}"
        coarse = ", in bins" if one.name in manifest.bins else ", in groups" if one.name in manifest.groups else ""
        yield "pg_attribute", {"attrelid": oid, "attname": one.name, "atttypid": number, "attnum": at, "attlen": size,
                               "atttypmod": -1, "attstattarget": -1, "attstorage": "x" if size < 0 else "p",
                               "attndims": int(is_list), "attislocal": True}  # fmt: skip
        yield "pg_description", {"objoid": oid, "classoid": CLASS_OID, "objsubid": at, "description": role + coarse}
        yield "information_schema.columns", place | {
            "column_name": one.name, "ordinal_position": at, "is_nullable": "YES", "data_type": label,
            "udt_catalog": DATABASE, "udt_schema": "pg_catalog", "udt_name": name, "is_updatable": "NO"}  # fmt: skip
