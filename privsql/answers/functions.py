"""What may stand in an expression of an analyst's: pure functions of one row, whose work grows with their arguments.

None of them reads a file, a setting, the time or a random number, and none can make a text longer than what it is
given and the query itself (no ``repeat``, ``replace``, ``lpad``, ``format``). Regular expressions are RE2's.
"""

from __future__ import annotations

from sqlglot import exp

from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)
AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.CountIf)

_PLAIN = (
    *CONNECTIVES, *COMPARISONS, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike, exp.Escape, exp.Column,
    exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Var, exp.Interval,
)  # fmt: skip
_NUMBERS = (
    exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Abs, exp.Ceil, exp.Floor, exp.Round,
    exp.Trunc, exp.Sign, exp.Sqrt, exp.Ln, exp.Exp, exp.IsNan,
)  # fmt: skip
_TEXTS = (
    exp.Upper, exp.Lower, exp.Length, exp.Trim, exp.Substring, exp.Left, exp.Right, exp.StartsWith, exp.EndsWith,
    exp.Contains, exp.StrPosition, exp.SplitPart, exp.Concat, exp.DPipe, exp.RegexpLike, exp.RegexpFullMatch,
    exp.RegexpExtract, exp.SimilarTo, exp.Glob,
)  # fmt: skip
_TIMES = (
    exp.Year, exp.Quarter, exp.Month, exp.Week, exp.WeekOfYear, exp.Day, exp.DayOfWeek, exp.DayOfWeekIso,
    exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.TimestampTrunc, exp.Extract, exp.DateDiff,
    exp.DateAdd, exp.TimeToStr, exp.Monthname, exp.Dayname, exp.LastDay,
)  # fmt: skip
SCALAR = frozenset((*_PLAIN, *_NUMBERS, *_TEXTS, *_TIMES))
NAMED = frozenset(
    [
        "date_part",
        "datepart",
        "isfinite",
        "isinf",
        "weekday",
        "strip_accents",
        "prefix",
        "suffix",
        "even",
        "decade",
        "century",
    ]
)
ASKED = frozenset((*SCALAR, *AGGREGATES, exp.Star, exp.Distinct, exp.Filter, exp.Where))
TYPES = frozenset(
    getattr(exp.DataType.Type, name)
    for name in [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "INT128",
        "UTINYINT",
        "USMALLINT",
        "UINT",
        "UBIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL",
        "TEXT",
        "VARCHAR",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMPNTZ",
    ]
)
EXAMPLES = "comparisons, arithmetic, CASE, coalesce, upper, regexp_matches, year, date_trunc and the like work"


def check(clause: str, root: exp.Expr, *, aggregates: bool = False) -> None:
    """``UsageError`` for what may not stand in an expression of ``clause``."""
    known = ASKED if aggregates else SCALAR
    for node in root.walk():
        if isinstance(node, AGGREGATES) and not aggregates:
            raise UsageError(f"{clause}: {short(node)} is not supported; use HAVING")
        if type(node) is exp.Anonymous and node.name.lower() in NAMED and isinstance(node.this, str):
            continue
        if type(node) not in known:
            raise UsageError(f"{clause}: {short(node, type(node).__name__)} is not supported; {EXAMPLES}")
        _check_details(clause, node)


def _check_details(clause: str, node: exp.Expr) -> None:
    if isinstance(node, exp.Cast | exp.TryCast):
        plain = node.to.this in TYPES and not node.to.args.get("nested") and _is_plain(node)
        if not plain and not node.meta.get(ORDERED) and any(node.find_all(exp.Column)):
            raise UsageError(f"{clause}: {short(node)}: columns can be cast to numbers, texts and points in time")
    elif isinstance(node, exp.Star) and (any(node.args.values()) or not isinstance(node.parent, exp.Count)):
        raise UsageError(f"{clause}: {short(node)} is not supported")


def _is_plain(node: exp.Expr) -> bool:
    return not any(value for key, value in node.args.items() if key not in ("this", "to", "safe"))


WRITTEN = "written"
ORDERED = "ordered"  # marks a cast that no analyst wrote: of a column to its own type (``answers.orders``)


def keep_text(item: exp.Expr) -> None:
    """Let ``text`` give an expression as it is written now, whatever its names become."""
    item.meta[WRITTEN] = item.sql(dialect=DIALECT)


def forget(root: exp.Expr) -> None:
    """Let a tree hold what ``text`` needs and nothing else beside itself: the rest is most of what a copy costs."""
    for node in root.walk():
        kept = {key: node.meta[key] for key in (WRITTEN, ORDERED) if node.meta.get(key)}
        node._meta = kept or None  # noqa: SLF001 (there is no public way to forget it)


def text(item: exp.Expr) -> str:
    """An expression as SQL, as it was written."""
    return str(item.meta.get(WRITTEN) or item.sql(dialect=DIALECT))


def short(item: exp.Expr, else_: str | None = None) -> str:
    """An expression as SQL; where that is long, its beginning, or ``else_``."""
    written = text(item)
    return written if len(written) < 60 else else_ or f"{written[:57]}..."
