"""A check is a query that returns the offending rows; no rows means that it holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, named
from privsql.errors import EngineError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydantic import BaseModel

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.model.manifest import Manifest

MOST = 1000  # offending rows that are counted
SHOWN = 10  # offending rows that are shown
WIDTH = 400  # characters of each
# What arithmetic comes to on tables that hold something else than they should.
BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Check:
    """A named check: a query for offending rows, or a function that lists what is wrong.

    ``compared``: what was compared, in words, once it has run.
    """

    name: str
    query: exp.Query | Callable[[], list[str]]
    compared: Callable[[], str] | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of a check; ``violations`` is counted up to ``MOST``."""

    name: str
    violations: int
    offending: tuple[str, ...] = field(default=())
    compared: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check holds."""
        return self.violations == 0

    def as_json(self) -> dict[str, Any]:
        """name, ok, violations, a few offending rows if there are any, and what was compared where that is said."""
        shown: dict[str, Any] = {"offending": list(self.offending)} if self.offending else {}
        shown |= {"compared": self.compared} if self.compared else {}
        return {"name": self.name, "ok": self.ok, "violations": self.violations, **shown}


@dataclass(frozen=True)
class Promised:
    """A bound that was verified: what of, the bound, and how far the release goes, as its tables say; exact texts.

    ``records``: how many published records have the value, where the release states that; ``belief``: whether bound and
    found are probabilities.
    """

    value: str
    bound: str
    found: str
    records: int | None = None
    belief: bool = True

    def as_json(self) -> dict[str, Any]:
        """value, bound, found, and records where they are stated."""
        stated = {} if self.records is None else {"records": self.records}
        return {"value": self.value, "bound": self.bound, "found": self.found, **stated}


def run(db: Relations | None, checks: Iterable[Check]) -> list[Result]:
    """Run checks in order. A check whose query can't run on what was found has failed."""
    return [_run(db, check) for check in checks]


def _run(db: Relations | None, check: Check) -> Result:
    if db is None or not isinstance(check.query, exp.Expr):
        try:
            wrong = check.query() if callable(check.query) else ["no database"]
        except PrivsqlError as error:
            wrong = [f"can't be evaluated: {error}"]
        except BROKEN as error:
            wrong = [f"can't be evaluated: {type(error).__name__} on what the release holds"]
        else:
            return replace(_result(check, wrong), compared=check.compared() if check.compared else "")
        return _result(check, wrong)
    columns = [projection.alias_or_name for projection in check.query.selects]
    try:
        rows = db.rows(exp.select("*").from_(check.query.subquery("offending")).limit(MOST))
    except (UsageError, EngineError) as error:
        return _result(check, [f"can't be evaluated: {error}"])
    shown = [", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=False)) for row in rows[:SHOWN]]
    return replace(_result(check, shown), violations=len(rows))


def _result(check: Check, wrong: Sequence[str]) -> Result:
    shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]}.." for line in wrong[:SHOWN]]
    return Result(check.name, len(wrong), tuple(shown))


def nothing_longer(manifest: Manifest) -> list[Check]:  # noqa: ARG001 (all mechanisms take it)
    """The long checks of a mechanism of which nothing takes longer than what publishing checks."""
    return []


def as_asked(stated: BaseModel, asked: BaseModel) -> list[str]:
    """Parameters of a release that are not those of the specification."""
    pairs = {name: (getattr(stated, name), getattr(asked, name)) for name in type(stated).model_fields}
    return [f"{name}: stated {was}, asked for {wanted}" for name, (was, wanted) in pairs.items() if was != wanted]


# Queries that several mechanisms check with ---


def in_order(relation: exp.Table, columns: Sequence[str], *, strict: bool) -> exp.Query:
    """Rows of a published table that lie out of canonical order; ``strict``: equal rows are a fault too.

    NULL is the largest. The first column that differs tells, which is three times as fast as rows as values; a CASE of
    many columns is no deeper than that of one.
    """
    numbers = range(len(columns))
    keys = [(column(f"c_{k}"), column(f"p_{k}")) for k in numbers]
    differing = []
    for own, before in keys:
        smaller = exp.or_(before.is_(exp.null()), exp.LT(this=own, expression=before))
        behind = exp.and_(exp.not_(own.is_(exp.null())), smaller)
        differing.append(exp.If(this=exp.NullSafeNEQ(this=own, expression=before), true=behind))
    lagged = [exp.Window(this=exp.Lag(this=column(name))) for name in columns]
    holes: Holes = {
        "table": relation,
        "columns": [named(column(name), f"c_{k}") for k, name in zip(numbers, columns, strict=True)],
        "previous": [named(one, f"p_{k}") for k, one in zip(numbers, lagged, strict=True)],
        "stored": [],
        "keys": [one for pair in keys for one in pair],
        "behind": exp.Case(ifs=differing, default=exp.Boolean(this=strict)),
    }
    return fill("verify/rows_in_order", holes)


def tally(relation: exp.Table, columns: list[exp.Expr], weight: exp.Expr | None = None) -> exp.Expr:
    """How often each combination of columns occurs, each row standing for ``weight``."""
    one = exp.Literal.number(1)
    return fill("verify/tally", {"table": relation, "columns": columns, "weight": weight or one}).subquery()


def exceed(columns: list[exp.Expr], first: exp.Expr, second: exp.Expr) -> exp.Query:
    """Combinations that the second tally holds more often than the first."""
    return fill("verify/multiset_exceeds", {"columns": columns, "first": first, "second": second})


def differ(columns: list[exp.Expr], first: exp.Expr, second: exp.Expr) -> exp.Query:
    """Combinations that two tallies do not hold equally often."""
    return fill("verify/multiset_differs", {"columns": columns, "first": first, "second": second})


def values_true(st: exp.Table | exp.Subquery, values: exp.Table, roles: Roles) -> exp.Query:
    """Listed values whose rank or records are not those of ST."""
    return fill("verify/values_true", {"st": st, "values": values, "sa": roles.sa()})
