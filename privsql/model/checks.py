"""Checks of a release. A check is a query that returns offending rows; if there are none, the check holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlglot import exp

from privsql.engine.database import SILENT, Reporter, report_steps
from privsql.engine.files import label_value
from privsql.engine.sqlfiles import (
    Hole,
    Holes,
    Roles,
    alias_as,
    all_rows,
    column,
    fill,
    list_holes,
    same_columns,
    table,
    temp_table,
)
from privsql.errors import EngineError, PrivsqlError, UsageError
from privsql.model.parameters import Facts, Parameters
from privsql.outcomes import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.model.tables import Tables

MOST_OFFENDING_ROWS = 1000  # offending rows are counted up to this number
SHOWN = 10  # so many offending rows are shown
WIDTH = 400  # characters of an offending row that are shown
ALLOWANCES = {"allow_certain", "allow_empty"}  # parameters that permit to publish what would be refused
# The errors that computing with damaged tables can raise.
BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Check:
    """One named check of a release.

    Attributes:
        name: A statement, which is true if the check finds nothing.
        query: A query for offending rows, or a function that returns a list of faults or such a query.
        compared: Says what was compared; it is called after the check has run.
        limit: Says what the check can't tell; it is called after the check has run.
    """

    name: str
    query: exp.Query | Callable[[], list[str] | exp.Query]
    compared: Callable[[], str] = str
    limit: Callable[[], str] = str


@dataclass(frozen=True)
class CheckResult(JsonObject):
    """The outcome of a check.

    Attributes:
        name: The statement that was checked.
        violations: The number of offending rows, up to ``MOST_OFFENDING_ROWS``.
        offending: The first offending rows as text.
        compared: What was compared.
        limit: What the check can't tell.
    """

    json_keys = ("name", "ok", "violations", "offending?", "compared?", "limit?")

    name: str
    violations: int
    offending: tuple[str, ...] = field(default=())
    compared: str = ""
    limit: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the check found no offending row."""
        return self.violations == 0


NO_BELIEF = "-"  # ``found`` of a value without a bound


@dataclass(frozen=True)
class VerifiedBound(JsonObject):
    """A bound that was verified, with what the release reaches. Numbers are exact texts.

    Attributes:
        value: The value, or the group of values, whose bound this is.
        bound: The bound that is promised.
        found: The highest belief, or other bounded figure, that the tables of the release lead to.
        records: How many published records have the value; None if the release does not state it.
        even: A share of the value in buckets, from which the error of its counts is predicted. Counts are as precise as
            if each bucket had either this share of the value or none of it. None if it is not known.
        group: Whether several values are bounded together.
        belief: Whether ``bound`` and ``found`` are probabilities.
    """

    json_keys = ("value", "bound", "found", "records?")

    value: str
    bound: str
    found: str
    records: int | None = None
    even: float | None = None
    group: bool = False
    belief: bool = True

    @property
    def protects(self) -> bool:
        """Return whether the value is protected: its bound limits a belief to less than 1."""
        return self.belief and self.found != NO_BELIEF and Fraction(self.bound) < 1


def run_checks(db: Relations | None, checks: Sequence[Check], report: Reporter = SILENT) -> list[CheckResult]:
    """Run checks in order, and return their results.

    A check whose query can't be run on the release counts as failed.

    Args:
        db: The engine in which the release is open. None if there is none: then checks by a query fail, and only checks
            by a function can hold.
        checks: The checks.
        report: What shows the progress; it is called for each check.
    """
    return [_run_check(db, check) for check in report_steps(report, checks, len(checks))]


def _run_check(db: Relations | None, check: Check) -> CheckResult:
    if db is None or not isinstance(check.query, exp.Expr):
        try:
            wrong = check.query() if callable(check.query) else ["no database"]
            if isinstance(wrong, exp.Query):
                return _run_check(db, replace(check, query=wrong))
        except PrivsqlError as error:
            wrong = [f"can't be evaluated: {error}"]
        except BROKEN as error:
            wrong = [f"can't be evaluated: {type(error).__name__} on what the release holds"]
        else:
            return replace(_make_result(check, wrong), compared=check.compared(), limit=check.limit())
        return _make_result(check, wrong)
    columns = [projection.alias_or_name for projection in check.query.selects]
    try:
        offending_rows = exp.select("*", copy=False).from_(check.query.subquery("offending", copy=False), copy=False)
        rows = db.rows(offending_rows.limit(MOST_OFFENDING_ROWS, copy=False))
    except (UsageError, EngineError) as error:
        return _make_result(check, [f"can't be evaluated: {error}"])
    offending = [", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=False)) for row in rows[:SHOWN]]
    return replace(_make_result(check, offending), violations=len(rows))


def _make_result(check: Check, wrong: Sequence[str]) -> CheckResult:
    lines = [line if len(line) <= WIDTH else f"{line[:WIDTH]}.." for line in wrong[:SHOWN]]
    return CheckResult(check.name, len(wrong), tuple(lines))


def differ_from_spec(stated: Parameters, params: Parameters) -> list[str]:
    """Return the parameters of a release that differ from the specification's, one line each.

    Parameters that merely permit to publish (``ALLOWANCES``) are not compared.
    """
    one, other = stated.as_stated(), params.as_stated()
    names = sorted((one.keys() | other.keys()) - ALLOWANCES)
    return [
        f"{name}: stated {one.get(name)}, asked for {other.get(name)}"
        for name in names
        if one.get(name) != other.get(name)
    ]


# Queries that several mechanisms check with --------------------------------------------------------------------------

WeightedRows = tuple[exp.Expr, exp.Expr]  # a relation, and how many rows each of its rows stands for
ONE = exp.Literal.number(1)


def in_order(relation: exp.Table, columns: Sequence[str], *, strict: bool) -> exp.Query:
    """Return the query for rows of a table that are not sorted by some columns, with NULL as the largest value.

    Only the first column that differs is compared. That is three times as fast as comparing whole rows, and the
    expression is nested no deeper for many columns than for one.

    Args:
        relation: The table.
        columns: The columns by which it has to be sorted.
        strict: Whether two equal rows are a fault, too.
    """
    numbers = range(len(columns))
    keys = [(column(f"c_{k}"), column(f"p_{k}")) for k in numbers]
    differing = []
    for current, before in keys:
        smaller = exp.or_(before.is_(exp.null()), exp.LT(this=current, expression=before))
        behind = exp.and_(exp.not_(current.is_(exp.null())), smaller)
        differing.append(exp.If(this=exp.NullSafeNEQ(this=current, expression=before), true=behind))
    lagged = [exp.Window(this=exp.Lag(this=column(name))) for name in columns]
    holes: Holes = {
        "table": relation,
        "columns": [alias_as(column(name), f"c_{k}") for k, name in zip(numbers, columns, strict=True)],
        "previous": [alias_as(one, f"p_{k}") for k, one in zip(numbers, lagged, strict=True)],
        "stored": [],
        "keys": [one for pair in keys for one in pair],
        "behind": exp.Case(ifs=differing, default=exp.Boolean(this=strict)),
    }
    return fill("verify/rows_in_order", holes)


def compare_rows(
    columns: Sequence[exp.Expr], first: WeightedRows, second: WeightedRows, *, fewer: bool = False
) -> exp.Query:
    """Return the query for combinations of values that two relations contain a different number of times.

    Args:
        columns: The columns whose values are compared.
        first: A relation, and SQL for the number of rows that each of its rows stands for.
        second: The other relation, in the same way.
        fewer: Whether the second relation may contain a combination less often than the first.
    """
    total, none = exp.Sum(this=column("n")), exp.Literal.number(0)
    holes: Holes = {"columns": columns, "first": first[0], "first_weight": first[1]}
    holes |= {"second": second[0], "second_weight": second[1]}
    fault = exp.LT(this=total, expression=none) if fewer else exp.NEQ(this=total, expression=none)
    return fill("verify/surplus", holes | {"fault": fault})


# The release that is checked ------------------------------------------------------------------------------------------

P = TypeVar("P", bound=Parameters)
F = TypeVar("F", bound=Facts)


@dataclass(frozen=True)
class CheckedRelease(Generic[P, F]):
    """A release that is being checked.

    Checks read each table as a view ``v_<name>``. In this view columns have the names of privsql's code, such as q0 for
    the first quasi-identifier, instead of the published ones.

    Attributes:
        db: The engine that holds the tables.
        manifest: The manifest of the release.
        params: The parameters that the manifest states.
        facts: The facts that the manifest states.
        database: The database that holds the tables; None for the current one.
        tables: The layout of every table, by its name.
    """

    db: Relations
    manifest: Manifest
    params: P
    facts: F
    database: str | None
    tables: Tables

    @property
    def roles(self) -> Roles:
        """Return the published columns by role."""
        return self.manifest.roles

    @property
    def algorithm(self) -> str:
        """Return the algorithm that the release states."""
        return self.manifest.algorithm

    def name_tables(self) -> None:
        """Create the view ``v_<name>`` of each table, which gives its columns the names that checks use."""
        for name, one in self.tables.items():
            rows = one.select_inside(self.roles, table(name, self.database))
            self.db.create_view(f"v_{one.view or name.removeprefix('privsql_')}", rows)

    def view(self, name: str) -> exp.Table:
        """Return SQL for the view of a table, given by its name without ``v_`` or ``privsql_``."""
        return temp_table(f"v_{name}")

    def read_view(self, name: str) -> pa.Table:
        """Return all rows of a table, given by its name without ``v_`` or ``privsql_``."""
        return self.db.arrow(all_rows(self.view(name)))

    def list_values(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return a row for every listed value, by code: its text, and then its entries in ``columns``.

        Args:
            columns: Columns of view ``v_values``.
        """
        labels = [exp.cast(item, "VARCHAR") for item in self.roles.sa_columns()]
        listed = exp.select(*labels, *map(column, columns)).from_(self.view("values")).order_by("code")
        return [(label_value(row[: len(labels)]), *row[len(labels) :]) for row in self.db.rows(listed)]

    def fill_query(self, file: str, **holes: Hole | str) -> exp.Query:
        """Return the query in a file of ``sql/``, with its holes (placeholders such as ``__sa__``) filled.

        A hole that is not among the arguments is filled by its name. ``sa`` and ``qi`` become the sensitive columns and
        the quasi-identifiers; ``sa_x`` and ``qi_x`` become those of the table with alias x in the query. Any other hole
        becomes the view of its name.

        Args:
            file: The file, without its ending.
            **holes: By hole, its SQL. A text of two aliases, such as ``same_value="st v"``, stands for the condition
                that these two tables have equal values.
        """
        filled: dict[str, Hole] = {hole: self._fill_by_name(hole) for hole in list_holes(file) - holes.keys()}
        for hole, filling in holes.items():
            if isinstance(filling, str):
                left, right = filling.split()
                filled[hole] = same_columns(
                    left, right, self.roles.qi_keys if hole == "same_qi" else self.roles.sa_keys
                )
            else:
                filled[hole] = filling
        return fill(file, filled)

    def _fill_by_name(self, hole: str) -> Hole:
        kind, _, alias = hole.partition("_")
        if kind in ("sa", "qi"):
            return self.roles.sa_columns(alias or None) if kind == "sa" else self.roles.qi_columns(alias or None)
        return self.view(hole)

    def compare_values(self, weight: exp.Expr, *, fewer: bool = False) -> exp.Query:
        """Return the query for sensitive values that ST and the source contain a different number of times.

        Args:
            weight: SQL for the number of records that a row of ST stands for.
            fewer: Whether ST may contain a value less often.
        """
        source = temp_table("domain"), column("records")
        return compare_rows(self.roles.sa_columns(), source, (self.view("st"), weight), fewer=fewer)

    def compare_people(
        self, source: Records, view: str, *, fewer: bool = False
    ) -> Callable[..., list[str] | exp.Query]:
        """Return a check that a table and the source contain the same quasi-identifiers, equally often.

        Args:
            source: The records.
            view: The name of the table's view, without ``v_``.
            fewer: Whether the table may contain them less often.
        """
        columns = self.roles.qi_columns()

        def find_differences(_: object) -> list[str] | exp.Query:
            packed = source.packed
            if packed is not None and packed.has_same_people(self.db, exp.select(*columns).from_(self.view(view))):
                return []
            source.sort_records()
            return compare_rows(columns, (temp_table("records"), ONE), (self.view(view), ONE), fewer=fewer)

        return find_differences

    def list_checks(
        self, named: Mapping[str, exp.Query | Callable[[CheckedRelease[P, F]], list[str] | exp.Query]]
    ) -> list[Check]:
        """Return checks by name, each from a query for offending rows or from a function that lists faults."""
        return [Check(name, one if isinstance(one, exp.Query) else partial(one, self)) for name, one in named.items()]

    def compare_facts(self, recomputed: Mapping[str, Any]) -> list[str]:
        """Return a line for each stated fact that differs from the value in ``recomputed``, by name."""
        pairs = [(name, getattr(self.facts, name), value) for name, value in recomputed.items()]
        return [f"{name}: stated {stated}, found {value}" for name, stated, value in pairs if stated != value]

    def compare_records(self, published: int) -> list[str]:
        """Return a line for each number of records in the manifest that the tables contradict.

        Args:
            published: The number of records in the tables.
        """
        stated = self.manifest.published, self.manifest.records
        found = published, published + (self.manifest.suppressed or 0)
        pairs = zip(("published", "records"), stated, found, strict=True)
        return [f"{name}: stated {one}, found {other}" for name, one, other in pairs if one != other]

    def check_orders(self, orders: Mapping[str, Sequence[str]]) -> list[Check]:
        """Return the checks that the rows of each table are sorted by the given columns, without equal rows."""
        queries = {name: in_order(self.view(name), keys, strict=True) for name, keys in orders.items()}
        return self.list_checks({f"rows of {name} lie in order, once each": one for name, one in queries.items()})
