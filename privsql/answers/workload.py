"""Workloads to measure a release by: queries as SQL text, answered by the release and by the source alike."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from privsql.engine.sqlfiles import DIALECT, Holes, column, fill, table, temp
from privsql.errors import UsageError
from privsql.noise import seed_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from privsql.engine.database import Ordered
    from privsql.engine.roles import Roles

LEAST_SHARE = 0.002  # a condition on quasi-identifiers must select more of the records than this
QUERIES, OF_EACH = 1200, 300
KINDS = ("equality", "random", "ranges")
CELLS = 40  # of the tables by as many columns, for every query
TRIES = 200  # conditions drawn for one that selects enough


@dataclass(frozen=True)
class Question:
    """A query, and the groups of its answer that count (None: all that either side has)."""

    sql: str
    groups: tuple[tuple[Any, ...], ...] | None = None


@dataclass(frozen=True)
class Workload:
    """What to evaluate with: ``equality``, ``random`` or ``ranges`` predicates, or the queries of ``file``.

    Differentially private tables and item sets have classes of questions of their own in place of ``equality``;
    ``ways``: columns of the largest tables that are then asked for by GROUP BY. ``queries``: how many, of such classes
    at most how many of each; None: as many as a first look takes. ``cells``: how many the tables by so many columns may
    have together; None: ``CELLS`` for each query. ``true_answers``: only questions whose true answer lies between the
    two count, both included, of those that are drawn; None: no such end. ``estimators``: those that are asked;
    None: all.
    """

    kind: str = "equality"
    queries: int | None = None
    attributes: int = 3
    selectivity: float = 0.05
    seed: int = 1
    file: Path | None = None
    ways: int = 2
    cells: int | None = None
    true_answers: tuple[float | None, float | None] | None = None
    estimators: tuple[str, ...] | None = None

    def wants(self, truth: float) -> bool:
        """Whether a question with that true answer counts."""
        low, high = self.true_answers or (None, None)
        return (low is None or low <= truth) and (high is None or truth <= high)

    @property
    def number(self) -> int:
        """How many queries there are to be."""
        return QUERIES if self.queries is None else self.queries

    @property
    def each(self) -> int:
        """How many there are to be of each class, where there are classes."""
        return OF_EACH if self.queries is None else self.queries

    @property
    def affordable(self) -> int:
        """How many cells tables may have together."""
        return CELLS * self.each if self.cells is None else self.cells

    @property
    def noise(self) -> np.random.Generator:
        """What draws its queries."""
        return seed_key(self.seed).stream("workload", self.kind)


def questions(db: Ordered, roles: Roles, name: str, asked: Workload) -> tuple[Iterable[Question], int]:
    """The queries of a workload over the source, which lies in ``db`` as ``records`` and ``domain``; how many.

    Raises ``UsageError`` for a workload that is unknown or that such columns can't have.
    """
    if asked.file is not None:
        given = from_file(asked.file)
        return given, len(given)
    if not roles.quasi_identifiers and asked.kind != "random":
        raise UsageError(f"workload {asked.kind!r} needs quasi-identifiers; take --workload random, or a file")
    if asked.kind == "random":
        shape = (asked.number, asked.attributes, asked.selectivity)
        return random(db, roles, name, shape, asked.noise), asked.number
    if asked.kind == "ranges":
        if len(roles.sensitive) != 1:
            raise UsageError("workload 'ranges' needs one sensitive column")
        return ranges(db, roles, name, asked.number, asked.noise), asked.number
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r} is neither 'equality', 'random', 'ranges' nor a file")
    conditions = max(1, asked.number // 4)
    return equality(db, roles, name, conditions, asked.noise), conditions


def equality(db: Ordered, roles: Roles, name: str, conditions: int, noise: np.random.Generator) -> Iterator[Question]:
    """Equality on 1-3 quasi-identifiers with the values of a random record, and four sensitive values.

    After Small Domain, 10.9. Conditions that select no more than ``LEAST_SHARE`` of the records are drawn again.
    ``db`` holds the source as ``records`` and ``domain``.
    """
    values = db.rows(fill("core/values", {"domain": temp("domain"), "columns": roles.sa()}))
    shown = [column(f.name) for f in roles.sensitive]
    for own in _conditions(db, roles, conditions, noise):
        groups = tuple(tuple(values[i]) for i in noise.choice(len(values), min(4, len(values)), replace=False))
        yield Question(count_query(name, own, shown), groups)


def ranges(db: Ordered, roles: Roles, name: str, queries: int, noise: np.random.Generator) -> Iterator[Question]:
    """Equality on 1-3 quasi-identifiers, and the sensitive value between two others that hold 1 to 50 % of the records.

    ``db`` holds the source as ``records`` and ``domain``; there is one sensitive column, which has an order.
    """
    key, field = column(roles.sa_keys[0]), roles.sensitive[0]
    rows = db.rows(fill("core/values", {"domain": temp("domain"), "columns": [key, column("records")]}))
    ends = np.cumsum([row[-1] for row in rows])
    for own in _conditions(db, roles, queries, noise):
        share = noise.uniform(0.01, 0.5)
        first = noise.uniform(0, 1 - share)
        low, high = (rows[int(np.searchsorted(ends, part * ends[-1]))][0] for part in (first, first + share))
        least, most = (equals(column(field.name), end, field.type) for end in (low, high))
        between = exp.Between(this=column(field.name), low=least.expression, high=most.expression)
        yield Question(count_query(name, exp.and_(own, between), []))


def _conditions(db: Ordered, roles: Roles, number: int, noise: np.random.Generator) -> Iterator[exp.Expr]:
    """Equality on 1-3 quasi-identifiers with the values of a random record; ``UsageError`` if too few select enough."""
    records = int(db.rows(fill("core/size", {"table": temp("records")}))[0][0])
    for row in sampled(db, roles.qi("r"), records, number * TRIES, noise):
        chosen = noise.choice(len(roles.quasi_identifiers), noise.integers(1, min(3, len(row)) + 1), replace=False)
        inner = exp.and_(*(equals(column(roles.qi_keys[i]), row[i], roles.quasi_identifiers[i].type) for i in chosen))
        selected = int(db.rows(fill("core/matching", {"table": temp("records"), "filter": inner}))[0][0])
        if selected <= LEAST_SHARE * records:
            continue
        yield exp.and_(
            *(equals(column(f.name), row[i], f.type) for i, f in enumerate(roles.quasi_identifiers) if i in chosen)
        )
        number -= 1
        if not number:
            return
    raise UsageError(f"too few conditions select more than {LEAST_SHARE:.1%} of the records; take --workload random")


def random(
    db: Ordered, roles: Roles, name: str, shape: tuple[int, int, float], noise: np.random.Generator
) -> Iterator[Question]:
    """Predicates of a given expected selectivity s (Anatomy, section 6).

    ``shape``: queries, qd quasi-identifiers in each, s. These and the sensitive columns are each restricted to
    ceil(|A| s^(1/(qd+1))) random values.
    """
    queries, attributes, selectivity = shape
    domains = {
        f.name: [row[0] for row in db.rows(fill("core/values", {"domain": _distinct(key), "columns": [column(key)]}))]
        for key, f in zip((*roles.qi_keys, *roles.sa_keys), (*roles.quasi_identifiers, *roles.sensitive), strict=True)
    }
    qd = min(attributes, len(roles.quasi_identifiers))
    part = selectivity ** (1 / (qd + len(roles.sensitive)))
    for _ in range(queries):
        chosen = [roles.quasi_identifiers[i] for i in noise.choice(len(roles.quasi_identifiers), qd, replace=False)]
        conditions = []
        for field in (*chosen, *roles.sensitive):
            domain = domains[field.name]
            kept = noise.choice(len(domain), ceil(len(domain) * part), replace=False)
            conditions.append(among(column(field.name), [domain[i] for i in kept], field.type))
        yield Question(count_query(name, exp.and_(*conditions), []))


def from_file(path: Path) -> list[Question]:
    """The queries of a file of SQL, separated by semicolons."""
    try:
        statements = sqlglot.parse(path.read_text(encoding="utf-8"), dialect=DIALECT)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except sqlglot.errors.SqlglotError as error:
        raise UsageError(f"{path}: {str(error).splitlines()[0]}") from error
    return [Question(statement.sql(dialect=DIALECT)) for statement in statements if statement is not None]


def sampled(
    db: Ordered, columns: Sequence[exp.Expr], records: int, number: int, noise: np.random.Generator
) -> Iterator[Sequence[Any]]:
    """Columns (of ``r``) of random ones of so many ``records``, with replacement."""
    size = 1000
    for _ in range(0, number, size):
        drawn = noise.integers(0, records, size)
        db.put("drawn", pa.table({"rank": np.arange(size), "pos": drawn}))
        holes: Holes = {
            "records": temp("records"),
            "drawn": temp("drawn"),
            "columns": columns,
            "position": db.position("r"),
        }
        rows = db.rows(fill("core/drawn", holes))
        db.drop("drawn")
        yield from rows


def count_query(name: str, condition: exp.Expr | None, groups: Sequence[exp.Expr]) -> str:
    """Text of a count query over the release ``name``."""
    query = exp.select(*groups, exp.Count(this=exp.Star())).from_(table(name))
    query = query if condition is None else query.where(condition)
    return (query.group_by(*groups) if groups else query).sql(dialect=DIALECT)


def _distinct(key: str) -> exp.Subquery:
    return exp.select(column(key)).distinct().from_(temp("records")).subquery("values")


def among(left: exp.Expr, values: Sequence[object], kind: str) -> exp.Expr:
    """``left`` being one of some values, which are flat however many they are; NULL may be one."""
    known = [equals(left, value, kind).expression for value in values if value is not None]
    parts: list[exp.Expr] = [exp.In(this=left.copy(), expressions=known)] if known else []
    return exp.or_(*parts, *(equals(left.copy(), None, kind) for value in values if value is None))


def equals(left: exp.Expr, value: object, kind: str) -> exp.Expr:
    """``left = value`` with the value as a constant of its type; IS NULL for NULL."""
    if value is None:
        return exp.Is(this=left, expression=exp.null())
    literal = exp.Literal.string("true" if value is True else "false" if value is False else str(value))
    return exp.EQ(this=left, expression=exp.cast(literal, exp.DataType.build(kind, dialect=DIALECT)))
