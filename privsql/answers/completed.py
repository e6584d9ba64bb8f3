"""Answer any SELECT from completed tables, in which a model has drawn a sensitive value for every record.

The SELECT runs as it is over each of the M tables. Rows of different tables are matched by their keys, the columns that
are not estimated. Figures are combined by Rubin's rules for completed data. The estimate is the mean over the tables,
and its variance is (1 + 1/M) B, where B is the variance between the tables. There is no variance within tables, since a
table holds the whole population. ORDER BY, LIMIT, HAVING and QUALIFY are applied to the combined rows.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers.answer import DRAWN_COLUMNS, DRAWS, Answer, Figure
from privsql.answers.estimate import count_intervals, round_bounds, student_quantile
from privsql.answers.sql.any_select import KEY, Admission, Column, Lineage, Source, Tree, find_position, walk
from privsql.answers.sql.grammar import refuse_bad_text
from privsql.answers.sql.sources import MAIN_SCHEMAS
from privsql.engine.files import fold_name, unused_name
from privsql.engine.sqlfiles import PREFIX, Field, alias_as, column, fill, table, temp_table, union_all
from privsql.errors import UsageError
from privsql.model.estimates import FIGURES, MODEL, ROUNDED, as_number, same_nan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from privsql.answers.answer import Answers
    from privsql.answers.channel import Floats
    from privsql.engine.database import LockedSession
    from privsql.engine.sqlfiles import Holes
    from privsql.model.estimates import RestsOn
    from privsql.model.manifest import Manifest

SECONDS = 60.0  # that all tables may take together; a caller may set a lower limit
MOST_ROWS = 50_000  # of an answer in one table
# Moments rest on fine levels and interactions, of which a model knows less: their variance is larger by a factor that
# was measured on tables of several kinds.
MISFIT_OF_MOMENTS = 1.3
LEAST_VARIANCE = 0.5 / DRAWS  # of a whole number: nobody may have a rare value in any of the tables
KNOWN = "known"  # the records without the sensitive columns
FORMULA = (
    f"the query runs over each of {DRAWS} completed tables, which the release's model drew; estimate = mean, variance "
    f"= (1 + 1/{DRAWS}) B, B between the tables (of sums, means, correlations {MISFIT_OF_MOMENTS:g} times as much)"
)
NESTED = "{}: an aggregate over estimates, which chance in these draws away from the truth"
EQUAL = "{}: without bounds where it is the same in all {} completed tables, which says nothing of its error"
TOP = "which rows are shown is itself an estimate"


# Statement ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """An item of ORDER BY.

    Attributes:
        place: The index of the column to sort by. The column may be hidden: added to the query, and not shown.
        descending: Whether the order is descending.
        nulls_first: Whether NULL comes first.
    """

    place: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class AnySelect:
    """A SELECT that can run over completed tables, in which each record has one drawn sensitive value.

    Its ORDER BY, LIMIT, HAVING and QUALIFY are applied to the combined rows of all tables. What these clauses need and
    the analyst did not select is added to the select list as hidden columns, which are not shown.

    Attributes:
        tree: The engine's syntax tree, without those clauses. Hidden columns come last.
        own: The nodes of the tree that name the release as a table.
        columns: The columns that the analyst asked for, then the hidden ones.
        shown: The number of columns that are not hidden.
        condition: The index of the hidden column with the condition of HAVING or QUALIFY; None without these clauses.
        orders: The items of ORDER BY.
        limit: The number of rows to keep; None for all.
        offset: The number of rows to skip.
        fills: Whether a group that does not occur in a table has a count of 0 there.
        has_top: Whether the query itself chooses rows by an estimate, as with LIMIT in a subquery.
    """

    tree: Tree
    own: list[Tree]
    columns: list[Column]
    shown: int
    condition: int | None
    orders: list[Order]
    limit: int | None
    offset: int
    fills: bool
    has_top: bool

    @property
    def shown_columns(self) -> list[Column]:
        """Return the columns that the analyst asked for, without those that only ORDER BY or HAVING needs."""
        return self.columns[: self.shown]


class StatementReader:
    """A reader of an analyst's SELECT that is to run over completed tables; it refuses what is not permitted.

    In a completed table, each record of the release has one drawn sensitive value.
    """

    def __init__(self, db: LockedSession, manifest: Manifest, find_table: Callable[[tuple[str, ...]], object]) -> None:
        self._db, self._manifest, self._find_table = db, manifest, find_table

    def read(self, sql: str) -> AnySelect:
        """Parse a SELECT.

        Raises:
            UsageError: The statement is not permitted, or the engine refuses it.
        """
        with refuse_bad_text(sql), self._db.limit_time(SECONDS):
            return self._read(sql)

    def _read(self, sql: str) -> AnySelect:
        names = [one.name for one in self._manifest.roles.columns]
        admission = Admission(self._db, self._manifest.name, names)
        admission.refuse_long(sql)
        tree = self._db.parse_select(sql)
        admission.examine(tree)
        for path in admission.lookups:
            self._find_table(path)
        if not admission.own:
            raise UsageError(f"the query reads no table of the release; it is called {self._manifest.name}")
        _drop_schemas(tree, admission.own)
        self._refuse_cuts(tree, admission.own)
        lineage = Lineage(admission.functions)
        node = tree["statements"][0]["node"]
        columns = self._describe(tree, lineage)
        limit, offset = _take_limit(node)
        orders, hidden = _take_orders(node, columns)
        condition = _take_condition(node)
        expressions = [*hidden, *([condition] if condition else [])]
        for at, one in enumerate(expressions):
            node["select_list"].append(one | {"alias": f"{PREFIX}hidden_{at}"})
        if expressions:
            columns += [
                replace(one, is_key=False) for one in self._describe(tree, Lineage(admission.functions))[len(columns) :]
            ]
        shown = len(columns) - len(expressions)
        grouped = node["type"] == "SELECT_NODE" and bool(node["group_expressions"])
        fills = grouped and not node.get("having") and not node.get("qualify")
        place = len(columns) - 1 if condition else None
        return AnySelect(tree, admission.own, columns, shown, place, orders, limit, offset, fills, lineage.has_top)

    def _describe(self, tree: Tree, lineage: Lineage) -> list[Column]:
        """Return the columns of a SELECT, under the engine's names.

        Args:
            tree: The syntax tree.
            lineage: The analysis that finds out what each column is computed from.

        Raises:
            UsageError: The engine refuses the query.
        """
        fields = self._db.describe_select(self._db.write_select(tree))
        return _name_columns(lineage.read_query(tree["statements"][0]["node"]), fields)

    def _refuse_cuts(self, tree: Tree, own: Sequence[Tree]) -> None:
        """Refuse a query that does more with a column published in bins or groups than select it or group by it.

        Raises:
            UsageError: The query computes with such a column, or compares it.
        """
        cut_names = [*self._manifest.bins, *self._manifest.groups]
        cut = {fold_name(name) for name in cut_names}
        if not cut:
            return
        plain = {
            id(item)
            for node in walk(tree)
            for key in ("select_list", "group_expressions", "partitions")
            for item in node.get(key) or ()
            if item.get("class") == "COLUMN_REF" and fold_name(item["alias"] or item["column_names"][-1]) in cut
        }
        for node in walk(tree):
            named = {fold_name(part) for key in ("column_names", "using_columns") for part in node.get(key) or ()}
            if (_takes_all(node, own) or cut & named) and id(node) not in plain:
                found = [one for one in cut_names if fold_name(one) in named]
                first = (found or cut_names)[0]
                raise UsageError(f"{first} is in bins or groups: it can be grouped by, and nothing else here")


def _takes_all(node: Tree, own: Sequence[Tree]) -> bool:
    """Return whether a node may read columns of the release without naming them.

    It does so by ``*``, by position or as a whole row.

    Args:
        node: The node of the syntax tree.
        own: The nodes that read the release.
    """
    tables = {fold_name(one["alias"] or one["table_name"]) for one in own}
    kind = node.get("class")
    if kind == "COLUMN_REF":
        return fold_name(node["column_names"][-1]) in tables
    joined = node.get("ref_type") in ("NATURAL", "POSITIONAL") or node.get("type") == "PIVOT"
    return kind in ("STAR", "POSITIONAL_REFERENCE") or joined or bool(node.get("column_name_alias"))


def _drop_schemas(tree: Tree, own: Sequence[Tree]) -> None:
    """Remove, in place, the schema names that BI tools write before the name of a release."""
    for node in own:
        node["schema_name"] = ""
        node["qualified_name"] = {"path": [node["table_name"]]}
    names = {fold_name(node["table_name"]) for node in own}
    for node in walk(tree):
        path = node.get("column_names", []) if node.get("class") == "COLUMN_REF" else []
        if len(path) > 2 and fold_name(path[0]) in MAIN_SCHEMAS and fold_name(path[1]) in names:
            node["column_names"] = path[1:]


def _name_columns(found: Sequence[Column | Source], fields: Sequence[Field]) -> list[Column]:
    """Return the columns of a SELECT under the engine's names, with a ``*`` replaced by its columns.

    Args:
        found: The columns in order; a ``Source`` stands for a ``*`` and has the columns of its table.
        fields: All columns of the result, as the engine names them.
    """
    stars = [at for at, one in enumerate(found) if isinstance(one, Source)]
    if stars and stars != list(range(stars[0], stars[-1] + 1)):
        raise UsageError("name the columns in place of several stars")
    start = stars[0] if stars else len(found)
    behind = found[stars[-1] + 1 :] if stars else []
    sources = [one for one in found[start : len(found) - len(behind)] if isinstance(one, Source)]
    columns: list[Column] = []
    for at, one in enumerate(fields):
        is_star = bool(stars) and start <= at < len(fields) - len(behind)
        if not is_star:
            known = found[at] if at < start else behind[at - len(fields)]
            columns += [replace(known, name=one.name)] if isinstance(known, Column) else []
            continue
        name = fold_name(one.name)
        marks = next((source.columns[name] for source in sources if name in source.columns), None)
        marks = KEY.union(*(one.others for one in sources)) if marks is None else marks
        columns.append(Column(one.name, marks, "figure" not in marks))
    return columns


def _take_limit(node: Tree) -> tuple[int | None, int]:
    """Remove LIMIT and OFFSET from the outermost SELECT, and return their numbers.

    The result is None for no LIMIT, 0 for no OFFSET.
    """
    limit, offset = None, 0
    for one in [one for one in node["modifiers"] if one["type"] == "LIMIT_MODIFIER"]:
        node["modifiers"].remove(one)
        numbers = []
        for key in ("limit", "offset"):
            text = str(one[key]["literal"].get("text", "")) if one.get(key) and one[key]["class"] == "CONSTANT" else ""
            if (one.get(key) and not text.isdecimal()) or one.get("limit_type", "ROW_COUNT") != "ROW_COUNT":
                raise UsageError("LIMIT and OFFSET need whole numbers")
            numbers.append(int(text) if text else None)
        limit, offset = numbers[0], numbers[1] or 0
    return limit, offset


def _limit_rows(number: int) -> Tree:
    """Return the syntax-tree node of ``LIMIT number``."""
    literal = {"kind": "INTEGER", "text": str(number)}
    constant = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}
    return {"type": "LIMIT_MODIFIER", "limit": constant, "offset": None, "limit_type": "ROW_COUNT"}


def _take_orders(node: Tree, columns: Sequence[Column]) -> tuple[list[Order], list[Tree]]:
    """Remove ORDER BY from the outermost SELECT.

    Returns:
        The items of ORDER BY, and the expressions by which some of them sort that are no column of the answer.
    """
    orders: list[Order] = []
    hidden: list[Tree] = []
    names = [fold_name(one.name) for one in columns]
    plain = node["type"] == "SELECT_NODE" and not any(one["type"] == "DISTINCT_MODIFIER" for one in node["modifiers"])
    for modifier in [one for one in node["modifiers"] if one["type"] == "ORDER_MODIFIER"]:
        for item in modifier["orders"]:
            one = item["expression"]
            place = find_position(one, len(columns))
            if place is None and one["class"] == "COLUMN_REF" and len(one["column_names"]) == 1:
                name = fold_name(one["column_names"][0])
                place = names.index(name) if name in names else None
            if one["class"] == "STAR":
                places = list(range(len(columns)))
            elif place is not None:
                places = [place]
            elif plain:
                places = [len(columns) + len(hidden)]
                hidden.append(one)
            else:
                raise UsageError("ORDER BY: name a column of the answer")
            first = item["null_order"] == "NULLS_FIRST"
            orders += [Order(place, item["type"] == "DESCENDING", first) for place in places]
        node["modifiers"].remove(modifier)
    return orders, hidden


def _take_condition(node: Tree) -> Tree | None:
    """Remove HAVING or QUALIFY from the outermost SELECT, and return its condition.

    The clause stays in the SELECT, and the result is None, if the other clause or a window function depends on it.
    """
    if node["type"] != "SELECT_NODE" or any(one["type"] == "DISTINCT_MODIFIER" for one in node["modifiers"]):
        return None
    having, qualify = node.get("having"), node.get("qualify")
    windows = any(one.get("class") == "WINDOW" for one in walk(node["select_list"]))
    key = "qualify" if qualify else "having"
    if (having and (qualify or windows)) or not node.get(key):
        return None
    condition: Tree = node[key]
    node[key] = None
    return condition


# Run ------------------------------------------------------------------------------------------------------------------


class CompletedTables:
    """The completed tables of an open release, and the answers that they give.

    A completed table is a copy of the release in which a model has drawn one sensitive value for each record.
    """

    def __init__(self, db: LockedSession, manifest: Manifest, answers: Answers) -> None:
        self._db, self._manifest, self._answers = db, manifest, answers

    @cached_property
    def _views(self) -> list[str]:
        """Create a view of each completed table (with one drawn sensitive value for each record).

        A further view, ``KNOWN``, has the quasi-identifiers alone.

        Returns:
            The names of the views of completed tables.
        """
        db, roles, model = self._db, self._manifest.roles, self._answers.complete_tables()
        keys = dict(zip((one.name for one in roles.quasi_identifiers), roles.qi_keys, strict=True))
        columns = [alias_as(column(model.record, "r"), "record")]
        columns += [alias_as(column(name, "r"), key) for name, key in keys.items()]
        holes: Holes = {
            "records": temp_table(model.records),
            "completed": model.completed,
            "record": column(model.record, "r"),
            "columns": [*columns, *(alias_as(column(name, "c"), name) for name in DRAWN_COLUMNS)],
        }
        db.create_table("with_draws", fill("query/with_draws", holes))
        known = [alias_as(column(key), name) for name, key in keys.items()]
        db.create_view(KNOWN, exp.select(*known).from_(temp_table("with_draws")))
        for name in DRAWN_COLUMNS:
            db.create_view(f"completed_{name}", self._complete(name))
        return [temp_table(f"completed_{name}").name for name in DRAWN_COLUMNS]

    def _complete(self, drawn: str, *more: exp.Expr) -> exp.Query:
        """Return the query for the rows of one completed table, in which each record has one drawn sensitive value.

        Args:
            drawn: The column that holds the codes of the drawn values.
            more: Columns that come before those of the source.
        """
        roles = self._manifest.roles
        keys = dict(zip((one.name for one in roles.quasi_identifiers), roles.qi_keys, strict=True))
        holes: Holes = {
            "records": temp_table("with_draws"),
            "values": table("privsql_values"),
            "columns": [
                *more,
                *(alias_as(column(key, "r"), name) for name, key in keys.items()),
                *(alias_as(column(one.name, "v"), one.name) for one in roles.sensitive),
            ],
            "drawn": column(drawn, "r"),
            "code": roles.by_sa.as_column("code", "v"),
        }
        return fill("query/completed", holes)

    def list_exported(self, draw: int | None) -> list[Field]:
        """Return the columns of an export of completed tables.

        Args:
            draw: The number of the completed table, from 1; None for all tables, each row with the numbers of its table
                and record.
        """
        names = [one.name for one in self._manifest.roles.columns]
        more = [Field(unused_name(name, names), "INTEGER") for name in ("draw", "record")]
        return [*(more if draw is None else []), *self._manifest.roles.columns]

    @contextmanager
    def stream(self, draw: int | None, rows: int) -> Iterator[pa.RecordBatchReader]:
        """Give a reader of the rows of one or all completed tables, for an export, within a ``with``.

        Tables and records are numbered from 1; records have the order of the release.

        Args:
            draw: The number of the table; None for all tables one after the other.
            rows: The number of rows in each batch.
        """
        number, record = self.list_exported(None)[:2]
        first = alias_as(column("record", "r") + exp.Literal.number(1), record.name)
        self._views  # noqa: B018 - makes the records
        if draw is None:
            numbered = enumerate(DRAWN_COLUMNS, 1)
            parts = [self._complete(one, alias_as(exp.Literal.number(at), number.name), first) for at, one in numbered]
            query: exp.Query = exp.select("*").from_(union_all(parts).subquery("drawn"))
            query = query.order_by(column(number.name), column(record.name))
        else:
            query = self._complete(DRAWN_COLUMNS[draw - 1]).order_by(column("record", "r"))
        with self._db.stream_batches(query, rows) as batches:
            yield batches

    def answer(self, sql: str, statement: AnySelect, confidence: float, most: int | None) -> Answer:
        """Run a statement over all completed tables and combine the results.

        Args:
            sql: The analyst's SQL, for display.
            statement: The parsed SQL.
            confidence: The confidence of the intervals.
            most: The largest number of rows; None for ``MOST_ROWS``.

        Raises:
            UsageError: The answer has more rows, or takes too long.
        """
        limit = MOST_ROWS if most is None else min(most, MOST_ROWS)
        statement.tree["statements"][0]["node"]["modifiers"].append(_limit_rows(limit + 1))
        with self._db.limit_time(SECONDS):
            views = self._views if self._reads_sensitive(statement) else [self._known]
            rows = [self._run(statement, view, limit) for view in views]
        return self._present(sql, statement, CombinedRows(statement, rows, confidence))

    @property
    def _known(self) -> str:
        return temp_table(KNOWN).name if self._views else ""

    def _write(self, statement: AnySelect, view: str) -> str:
        for node in statement.own:
            node["alias"] = node["alias"] or node["table_name"]
            node["table_name"], node["qualified_name"] = view, {"path": [view]}
        return self._db.write_select(statement.tree)

    def _run(self, statement: AnySelect, view: str, most: int) -> list[tuple[Any, ...]]:
        rows = self._db.run_select(self._write(statement, view))
        if len(rows) > most:
            raise UsageError(f"the answer has more than {most:,} rows; group by fewer columns")
        return rows

    def _reads_sensitive(self, statement: AnySelect) -> bool:
        """Return whether a statement may read a sensitive column.

        It can't if it names none, reads no columns without naming them, and runs without the sensitive columns.
        """
        sensitive = {fold_name(one.name) for one in self._manifest.roles.sensitive}
        for node in walk(statement.tree):
            named = [node.get("alias") or "", *(node.get("column_names") or ()), *(node.get("using_columns") or ())]
            if _takes_all(node, statement.own) or sensitive.intersection(map(fold_name, named)):
                return True
        try:
            fields = self._db.describe_select(self._write(statement, self._known))
        except UsageError:
            return True
        return [one.name for one in fields[: statement.shown]] != [one.name for one in statement.shown_columns]

    def _present(self, sql: str, statement: AnySelect, combined: CombinedRows) -> Answer:
        shown = statement.shown_columns
        figures: list[Figure] = []
        names: list[str] = []
        missing = self._manifest.suppressed or 0
        unnamed = sum(not one.is_key for one in shown) == 1
        for place, one in enumerate(shown):
            if one.is_key:
                names.append(one.name)
                continue
            name = "estimate" if unnamed and not one.is_named else one.name
            rests = combined.rests_on(place, missing)
            figures.append(Figure(name, len(names), rests, missing, rests, covers_missing=False))
            names += FIGURES if name == "estimate" else [name, *(f"{name}_{part}" for part in FIGURES[1:])]
        doubled = next((name for name in names if [fold_name(one) for one in names].count(fold_name(name)) > 1), None)
        if doubled is not None:
            raise UsageError(f"two columns of the answer are called {doubled!r}; give one an alias")
        rows = list(combined.build_rows(missing))
        draws_at = len(names) if any(count < combined.draws for _, count in rows) else None
        names += [] if draws_at is None else [unused_name("in_draws", names)]
        listed = [row if draws_at is None else (*row, count) for row, count in rows]
        return Answer(
            tuple(names),
            listed,
            tuple(figures),
            confidence=combined.confidence,
            estimator=MODEL,
            explained=((sql, FORMULA),),
            missing=self._manifest.suppressed,
            source_records=self._manifest.records,
            hints=tuple(self._list_notes(statement, combined)),
            without_figures="exact" if combined.is_exact else "point",
            draws_at=draws_at,
        )

    def _list_notes(self, statement: AnySelect, combined: CombinedRows) -> Iterator[str]:
        if combined.is_exact:
            return
        nested = [one.name for one in statement.shown_columns if not one.is_key and "nested" in one.marks]
        if nested:
            yield NESTED.format(", ".join(nested))
        if statement.has_top:
            yield TOP
        bare = [one.name for place, one in enumerate(statement.shown_columns) if combined.has_equal_draws(place)]
        if bare:
            yield EQUAL.format(", ".join(bare), combined.draws)
        for place, one in enumerate(statement.shown_columns):
            agreeing = combined.least_agreeing(place)
            if agreeing is not None:
                yield f"{one.name}: the value of most completed tables; at least {agreeing} of {combined.draws} have it"


# Combine --------------------------------------------------------------------------------------------------------------


class CombinedRows:
    """The rows that one statement returns over each of M completed tables, combined into the rows of an answer.

    Rows of different tables that agree in all columns that are not estimated (their keys) become one row. A statement
    that reads no sensitive column has one result instead of M, which is exact.
    """

    def __init__(self, statement: AnySelect, rows: Sequence[list[tuple[Any, ...]]], confidence: float) -> None:
        self.confidence, self.draws = confidence, len(rows)
        self.is_exact = len(rows) == 1
        self._statement = statement
        keys = [place for place, one in enumerate(statement.columns) if one.is_key]
        self._rank: dict[tuple[Any, ...], int] = {}
        cells: list[list[tuple[Any, ...] | None]] = []  # by group and table
        for draw, listed in enumerate(rows):
            seen: Counter[tuple[Any, ...]] = Counter()
            for row in listed:
                key = tuple(_hashable(row[place]) for place in keys)
                seen[key] += 1
                if seen[key] > 1 and not self.is_exact:
                    raise UsageError(
                        "rows of the answer can't be told apart; select the columns by which it groups, or count rows "
                        "with COUNT(*) and GROUP BY"
                    )
                key = (*key, seen[key])
                if key not in self._rank:
                    self._rank[key] = len(cells)
                    cells.append([None] * self.draws)
                cells[self._rank[key]][draw] = row
        self._cells = cells
        places = range(len(statement.columns))
        self._numbers = {place for place in places if self._is_number(place)}
        self._combined = {place: self._combine(place) for place in places}

    def _is_number(self, place: int) -> bool:
        """Return whether a column is estimated and holds numbers, so that the completed tables' values have a mean.

        Args:
            place: The index of the column.
        """
        one = self._statement.columns[place]
        if one.is_key or "choice" in one.marks:
            return False
        kinds = {type(row[place]) for cell in self._cells for row in cell if row is not None}
        return kinds <= {int, float, Decimal, type(None)}

    def _combine(self, place: int) -> list[tuple[Any, ...]]:
        """Return (estimate, standard error, low, high) of a column for each row.

        Keys and values that are not numbers have None in place of errors and bounds.

        Args:
            place: The index of the column.
        """
        one = self._statement.columns[place]
        if self.is_exact:
            return [_state_exactly(row[place], one) for cell in self._cells for row in cell if row is not None]
        if place not in self._numbers:
            return [(_most_common(cell, place), None, None, None) for cell in self._cells]
        nothing = 0.0 if "count" in one.marks and self._statement.fills else math.nan
        values = np.full((len(self._cells), self.draws), nothing)
        for at, cell in enumerate(self._cells):
            for draw, row in enumerate(cell):
                if row is not None:
                    values[at, draw] = math.nan if row[place] is None else float(row[place])
        return combine_draws(values, self.confidence, moment="moment" in one.marks, count="count" in one.marks)

    def rests_on(self, place: int, missing: int) -> RestsOn:
        """Return how reliable the bounds of a column are.

        Args:
            place: The index of the column.
            missing: The number of records that the release leaves out; with any, an answer is not exact for the source.
        """
        if self.is_exact:
            return "point" if missing else "exact"
        return "interval" if place in self._numbers else "point"

    def has_equal_draws(self, place: int) -> bool:
        """Return whether a column has no interval in some row because all completed tables have the same number."""
        is_number = not self.is_exact and place in self._numbers
        return is_number and any(one[0] is not None and one[2] is None for one in self._combined[place])

    def least_agreeing(self, place: int) -> int | None:
        """Return how many completed tables agree with the shown value of a column, in the row where the fewest do.

        The result is None for keys and numbers, which are not chosen by majority.
        """
        is_choice = not self._statement.columns[place].is_key and place not in self._numbers
        if self.is_exact or not is_choice or not self._cells:
            return None
        agreeing: list[int] = []
        for cell, (value, *_) in zip(self._cells, self._combined[place], strict=True):
            held = [row[place] for row in cell if row is not None]
            agreeing.append(sum(_hashable(one) == _hashable(value) for one in held))
        return min(agreeing)

    def build_rows(self, missing: int) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Yield the rows of the answer in order, each with the number of completed tables that contain it.

        In a completed table, each record of the release has one drawn sensitive value.

        Args:
            missing: The number of records that the release leaves out; with any, exact answers are shown without
                bounds.
        """
        statement = self._statement
        chosen = []
        for at, cell in enumerate(self._cells):
            held = sum(row is not None and self._meets(row) for row in cell)
            if 2 * held >= self.draws or statement.condition is None:
                chosen.append((at, held))
        orders = statement.orders or [
            Order(place, False, False) for place, one in enumerate(statement.columns) if one.is_key
        ]
        for order in reversed(orders):
            values = [self._combined[order.place][at][0] for at, _ in chosen]
            chosen = _sort(chosen, values, order)
        for at, held in chosen[statement.offset :][: statement.limit]:
            row: list[Any] = []
            for place in range(statement.shown):
                figures = self._combined[place][at]
                is_key = statement.columns[place].is_key
                bare = (figures[0], None, None, None) if self.is_exact and missing else figures
                row += [figures[0]] if is_key else bare
            yield tuple(row), held

    def _meets(self, row: tuple[Any, ...]) -> bool:
        return self._statement.condition is None or bool(row[self._statement.condition])


def combine_draws(values: Floats, confidence: float, *, moment: bool, count: bool) -> list[tuple[Any, ...]]:
    """Combine the values that M completed tables give for each of G rows by Rubin's rules.

    In a completed table, each record of the release has one drawn sensitive value. For whole numbers the variance is at
    least ``LEAST_VARIANCE`` and bounds are whole; if all tables agree, the bounds are the next whole numbers. Other
    values on which all tables agree get no bounds.

    Args:
        values: The values (G, M); NaN where a table has none.
        confidence: The confidence of the intervals.
        moment: Whether the values are moments, such as variances; their error is multiplied for the model's misfit.
        count: Whether the values are counts, which can't be negative.

    Returns:
        (estimate, standard error, low, high) of each row; None for what is unknown.
    """
    known = np.isfinite(values)
    number = known.sum(axis=1)
    some = np.maximum(number, 1)
    mean = np.where(known, values, 0).sum(axis=1) / some
    between = (np.where(known, values - mean[:, None], 0) ** 2).sum(axis=1) / np.maximum(number - 1, 1)
    between = np.where(np.sqrt(between) > ROUNDED * np.abs(mean), between, 0)
    variance = (1 + 1 / some) * between * (MISFIT_OF_MOMENTS if moment else 1)
    whole = (~known | (values == np.round(values))).all(axis=1)
    variance = np.where(whole, np.maximum(variance, LEAST_VARIANCE), variance)
    error, degrees = np.sqrt(variance), np.maximum(number - 1.0, 1.0)
    if count:
        low, high = count_intervals(mean, error, confidence, degrees)
    else:
        width = student_quantile((1 - confidence) / 2, degrees) * error
        low, high = mean - width, mean + width
    near, beyond = round_bounds(low, high), (np.floor(low), np.ceil(high))
    low, high = (np.where(whole, np.where(between > 0, *ends), one)
                 for one, ends in zip((low, high), zip(near, beyond, strict=True), strict=True))  # fmt: skip
    bounded = (number > 1) & (error > 0)
    return [
        (None,) * 4 if not n else (float(m), *((float(e), float(a), float(b)) if is_bounded else (None,) * 3))
        for n, m, e, a, b, is_bounded in zip(number, mean, error, low, high, bounded, strict=True)
    ]


def _state_exactly(value: Any, one: Column) -> tuple[Any, ...]:
    """Return an exact value as (estimate, standard error, low, high), which is (value, 0, value, value).

    The last three are None for NULL, an infinite number, or a column that is not estimated.
    """
    if one.is_key or value is None:
        return (value, None, None, None)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        value = as_number(value)
    sure = not isinstance(value, float) or math.isfinite(value)
    return (value, 0.0, value, value) if sure else (value, None, None, None)


def _most_common(cell: Sequence[tuple[Any, ...] | None], place: int) -> Any:
    """Return the value that most completed tables have in one row and column; of equally frequent ones the first.

    Args:
        cell: The row as each completed table has it; None for a table without it.
        place: The index of the column.
    """
    values = [row[place] for row in cell if row is not None]
    counted = Counter(map(_hashable, values))
    return next(value for value in values if counted[_hashable(value)] == max(counted.values()))


def _hashable(value: Any) -> Any:
    """Return a value that can be a key of a dictionary: lists and other containers become texts."""
    value = same_nan(value)
    return repr(value) if isinstance(value, list | dict | set) else value


def _sort(chosen: list[tuple[int, int]], values: list[Any], order: Order) -> list[tuple[int, int]]:
    """Return the chosen rows, stably sorted by one column.

    Args:
        chosen: The rows, as (index, number of tables).
        values: The value of each row in the column.
        order: The direction of the sort, and where NULL goes.
    """
    pairs = list(zip(chosen, values, strict=True))
    nulls = [row for row, value in pairs if value is None]
    known = [(row, value) for row, value in pairs if value is not None]
    is_nan = [isinstance(value, float) and math.isnan(value) for _, value in known]
    plain = [pair for pair, nan in zip(known, is_nan, strict=True) if not nan]
    try:
        plain.sort(key=lambda pair: pair[1], reverse=order.descending)
    except TypeError:  # values that Python can't compare, such as structs
        plain.sort(key=lambda pair: repr(pair[1]), reverse=order.descending)
    nans = [row for (row, _), nan in zip(known, is_nan, strict=True) if nan]
    middle = [row for row, _ in plain]
    middle = [*nans, *middle] if order.descending else [*middle, *nans]
    return [*nulls, *middle] if order.nulls_first else [*middle, *nulls]
