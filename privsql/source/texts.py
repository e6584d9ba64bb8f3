"""Find columns of CSV files that are read wrongly: codes that lose leading zeros, dates, and numbers read as texts.

DuckDB guesses the types of columns from the first lines of a file. A code such as 007 that comes later becomes 7, a
date such as 03/04/2020 may be read either way, and one text among numbers turns all of them into texts. Columns whose
types the specification states are not examined. A release that spends a budget reads texts by stated types alone, so
its records are not examined either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Field, alias_as, column, is_null, table
from privsql.errors import UsageError
from privsql.model.bins import is_number_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from privsql.engine.database import TextWarehouse, Warehouse
    from privsql.source.places import Source

SAMPLE = 20_480  # the lines from which DuckDB guesses types
FEWEST = 20  # fewest lines for advice on a single one that is no number
LOOKED_AT = 1_000  # values of a text column that are examined first
# Texts that stand for a missing value, whatever else a column of texts holds: nobody calls a category so.
MISSING = ("", "?", "-", "--", "NA", "N/A", "n/a", "#N/A", "#NA", "NULL", "null", "NaN", "nan")
# Among numbers, words and points can only stand for a missing value, too. Among texts they may be values: the diagnosis
# "none" is one, and so is the answer "missing".
MISSING_NUMBER = (*MISSING, "na", "none", "None", "NONE", "nil", "missing", ".", "..")
CODE = r"\s*([+]\s*[0-9]|-?0[0-9]).*"  # a leading plus sign or zero, which a number loses
PLAIN = r"\s*[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?\s*"
FORMS = {  # patterns of formatted numbers (for DuckDB and Python), by the options that read them
    (("thousands", ","),): r"\s*[+-]?[0-9]{1,3}(,[0-9]{3})+([.][0-9]+)?\s*",
    (("decimal_separator", ","),): r"\s*[+-]?[0-9]+,[0-9]+\s*",
    (("decimal_separator", ","), ("thousands", ".")): r"\s*[+-]?[0-9]{1,3}([.][0-9]{3})+(,[0-9]+)?\s*",
    (("thousands", " "),): r"\s*[+-]?[0-9]{1,3}( [0-9]{3})+([.][0-9]+)?\s*",
    (("thousands", "'"),): r"\s*[+-]?[0-9]{1,3}('[0-9]{3})+([.][0-9]+)?\s*",
}
DAY_MONTH = re.compile(r"\s*([0-9]{1,2})([/.-])([0-9]{1,2})[/.-]([0-9]{4}|[0-9]{2})\s*")


@dataclass(frozen=True)
class Misreading:
    """A column of a CSV file that is probably not read as it is meant, such as codes that are read as numbers.

    Attributes:
        column: The column.
        why: What is wrong with it.
        options: The keys of ``source.options`` with which it is read as meant; empty if no option does that.
        otherwise: What else the publisher can do, and in which case.
        surely: Whether nearly everybody would choose these options, so that ``init`` proposes them.
    """

    column: str
    why: str
    options: dict[str, Any] = field(default_factory=dict)
    otherwise: str = ""
    surely: bool = True

    def __str__(self) -> str:
        does = f"say source.options = {write_options(self.options)}" if self.options else ""
        return f"column {self.column!r} {self.why}; {', or '.join(filter(None, (does, self.otherwise)))}"


def write_options(options: dict[str, Any]) -> str:
    """Return the options of a CSV file as TOML, in one line.

    >>> write_options({"nullstr": ["", "none"], "types": {"zip code": "VARCHAR"}})
    '{ nullstr = ["", "none"], types = { "zip code" = "VARCHAR" } }'
    """

    def write(value: Any) -> str:
        if isinstance(value, dict):
            pairs = (f"{_write_key(key)} = {write(one)}" for key, one in value.items())
            return f"{{ {', '.join(pairs)} }}"
        if isinstance(value, list):
            return f"[{', '.join(map(write, value))}]"
        return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'

    return write(options)


def _write_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def refuse_misread(db: Warehouse, source: Source, names: Iterable[str | None]) -> None:
    """Raise ``UsageError`` if one of the columns ``names`` of a CSV file is probably not read as it is meant."""
    for one in find_misread(db, source, [name for name in names if name is not None])[:1]:
        raise UsageError(str(one))


def find_misread(db: Warehouse, source: Source, names: Collection[str] | None) -> list[Misreading]:
    """Return the columns of a CSV file that are probably not read as they are meant.

    Args:
        db: The session in which the file is readable.
        source: The source.
        names: The columns that matter, of the file or of the query over it; None for all.
    """
    options = source.options.model_dump(exclude_none=True) if source.options is not None else {}
    if source.kind != "csv" or options.get("all_varchar"):
        return []
    file = table("source", "temp")
    stated = {fold_name(name) for name in options.get("types") or {}}
    fields = [one for one in db.list_fields(file) if fold_name(one.name) not in stated]
    wanted = None if names is None else {fold_name(name) for name in names}
    if source.query is not None and wanted is not None:
        tree: exp.Expr = exp.maybe_parse(source.query, dialect=DIALECT)
        stars = any(not isinstance(one.parent, exp.Count) for one in tree.find_all(exp.Star))
        wanted = None if stars else {fold_name(one.name) for one in tree.find_all(exp.Column)}
    fields = [one for one in fields if wanted is None or fold_name(one.name) in wanted]
    passed = [one for one in fields if source.query is None or _passes_on(source.query, one.name)]
    found = _find_numbers(db, file, [one for one in passed if one.type == "VARCHAR"], options)
    texts = _Texts(cast("TextWarehouse", db), source)
    if "dateformat" not in options:
        found += _find_dates(texts, [one for one in fields if one.type == "DATE"])
    numbers = [one for one in fields if is_number_type(one.type)]
    if numbers and options.get("sample_size") != -1 and _count(db, file) > options.get("sample_size", SAMPLE):
        found += _find_codes(texts, numbers)
    return found


def _passes_on(query: str, name: str) -> bool:
    """Return whether a query over a file returns the column ``name`` unchanged, and not as part of an expression.

    In an expression, such as a cast, the publisher has said how to read the column.
    """
    tree: exp.Expr = exp.maybe_parse(query, dialect=DIALECT)
    for item in tree.selects if isinstance(tree, exp.Query) else ():
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            changed = [*(star.args.get("except_") or ()), *(star.args.get("replace") or ())]
            return fold_name(name) not in {fold_name(one.alias_or_name) for one in changed}
        if isinstance(item.unalias(), exp.Column) and fold_name(item.unalias().name) == fold_name(name):
            return True
    return False


class _Texts:
    """The values of a CSV file as texts; the file is only read once they are needed."""

    def __init__(self, db: TextWarehouse, source: Source) -> None:
        self.db, self._source, self._mounted = db, source, False

    @property
    def table(self) -> exp.Table:
        if not self._mounted:
            self.db.mount_texts("as_texts", self._source.origin)
            self._mounted = True
        return table("as_texts", "temp")

    def list_values(self, name: str, most: int | None = None) -> list[str]:
        """Return the different texts of a column without NULL, or the first ``most`` of them."""
        value = column(name)
        query = exp.select(value).distinct().from_(self.table).where(exp.not_(is_null(value.copy())))
        return [str(text) for (text,) in self.db.rows(query if most is None else query.limit(most))]


def _count(db: Warehouse, file: exp.Table) -> int:
    return int(db.rows(exp.select(exp.Count(this=exp.Star())).from_(file))[0][0])


def _matches(value: exp.Expr, pattern: str) -> exp.Expr:
    return exp.Anonymous(this="regexp_full_match", expressions=[value, exp.Literal.string(pattern)])


def _find_codes(texts: _Texts, fields: Iterable[Field]) -> list[Misreading]:
    """Return the columns read as numbers that seem to hold codes: some have a plus sign or a leading zero."""
    fields = list(fields)
    counts = [exp.CountIf(this=_matches(column(one.name), CODE)) for one in fields]
    row = texts.db.rows(exp.select(*counts).from_(texts.table))[0]
    return [
        Misreading(
            one.name,
            f"is read as numbers, and {number:,} of its values begin with 0 or +, which would be lost",
            {"types": {one.name: "VARCHAR"}},
            f'"{one.type}" in its place if they are numbers',
        )
        for one, number in zip(fields, row, strict=True)
        if number
    ]


def read_day_month(values: Iterable[str]) -> tuple[str, bool] | None:
    """Return the format of dates such as 31.12.2020, and whether month and day could also be swapped.

    The result is None for dates that are written in another way.

    >>> read_day_month(["31/12/2020"]), read_day_month(["3/4/2020"]), read_day_month(["2020-04-03"])
    (('%d/%m/%Y', False), ('%d/%m/%Y', True), None)
    """
    matches = [DAY_MONTH.fullmatch(one) for one in values]
    if not matches or None in matches:
        return None
    parts = [(int(one[1]), one[2], int(one[3]), one[4]) for one in matches if one is not None]
    mark, year = parts[0][1], "%Y" if len(parts[0][3]) == 4 else "%y"
    month_first = max(one[2] for one in parts) > 12
    both = not month_first and max(one[0] for one in parts) <= 12
    return mark.join(("%m", "%d", year) if month_first else ("%d", "%m", year)), both


def _find_dates(texts: _Texts, fields: Iterable[Field]) -> list[Misreading]:
    """Return the columns of dates that may be read wrongly: day and month could be swapped, or the format differs."""
    found = []
    for one in fields:
        if read_day_month(texts.list_values(one.name, LOOKED_AT)) is None:
            continue
        read = read_day_month(texts.list_values(one.name))
        if read is None or not read[1]:
            continue
        other = read[0].replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
        why = "holds dates of which day and month can't be told apart"
        how = f'dateformat = "{other}" if the month comes first'
        found.append(Misreading(one.name, why, {"dateformat": read[0]}, how, surely=False))
    return found


def find_date_format(db: Warehouse, source: Source) -> str | None:
    """Return the format of the dates in a CSV file that is readable in the session, such as %d.%m.%Y.

    The result is None if the file has no dates or several formats.
    """
    if source.kind != "csv" or (source.options is not None and source.options.dateformat):
        return None
    fields = [one for one in db.list_fields(table("source", "temp")) if one.type == "DATE"]
    texts = _Texts(cast("TextWarehouse", db), source)
    formats = set()
    for one in fields:
        read = read_day_month(texts.list_values(one.name))
        formats.add(read and read[0])
    return next(iter(formats)) if len(formats) == 1 else None


def _find_numbers(db: Warehouse, file: exp.Table, fields: Iterable[Field], options: dict[str, Any]) -> list[Misreading]:
    """Return the columns of texts that are numbers once their format, or marks for missing values, are stated.

    Args:
        db: The session.
        file: The table with the file's values as texts.
        fields: The columns to examine.
        options: The options with which the file is read.
    """
    fields = list(fields)
    if not fields:
        return []
    first = db.rows(exp.select(*(column(one.name) for one in fields)).from_(file).limit(LOOKED_AT))
    anyhow = "|".join((PLAIN, *FORMS.values()))
    found = []
    for place, one in enumerate(fields):
        known = [str(row[place]) for row in first if row[place] is not None]
        fitting = sum(re.fullmatch(anyhow, text) is not None for text in known)
        if known and 2 * fitting >= len(known):
            found += _read_numbers(db, file, one, anyhow, options, [other for other in fields if other is not one])
    return found


def _read_numbers(
    db: Warehouse, file: exp.Table, one: Field, anyhow: str, options: dict[str, Any], others: Iterable[Field]
) -> list[Misreading]:
    """Return the options with which a column of texts is read as numbers; empty if it is no column of numbers.

    That is so if it holds other texts than marks for missing values. It is also so if a number has a plus sign or a
    leading zero, since such numbers are probably codes.

    Args:
        db: The session.
        file: The table with the file's values as texts.
        one: The column.
        anyhow: A regular expression for numbers in any known format.
        options: The options with which the file is read.
        others: The other columns of texts.
    """
    value = column(one.name)
    rows = exp.select(value).distinct().from_(file).where(exp.not_(_matches(value.copy(), anyhow)))
    odd = [str(row[0]) for row in db.rows(rows.limit(len(MISSING_NUMBER) + 1))]
    if len(odd) == 1 and odd[0].strip() not in MISSING_NUMBER:
        return _read_strange_line(db, file, one, odd[0])
    if any(text.strip() not in MISSING_NUMBER for text in odd):
        return []
    patterns = [CODE, PLAIN, r"[^.]*", *FORMS.values(), anyhow]
    counts = [exp.CountIf(this=_matches(value.copy(), pattern)) for pattern in patterns]
    codes, plain, no_points, *forms, every = db.rows(exp.select(*counts).from_(file))[0]
    if codes:
        return []
    needed: dict[str, Any] = {}
    otherwise = ""
    if plain < every:
        fitting = [how for how, number in zip(FORMS, forms, strict=True) if number and plain + number >= every]
        if not fitting and forms[1] and forms[2]:  # some numbers are like 1.234 and some like 5,6
            fitting = [tuple(FORMS)[2]]
        if not fitting:
            return []
        needed = dict(fitting[0])
        whole = "decimal_separator" not in needed and no_points >= every
        # DuckDB's guess of types does not know thousands separators.
        needed["types"] = {one.name: "BIGINT" if whole else "DOUBLE"}
        if len(fitting) > 1:
            otherwise = " and ".join(f'{key} = "{text}"' for key, text in fitting[1]) + " in place of it"
    why = []
    if needed:
        marks = " and ".join(f"{'decimals' if key == 'decimal_separator' else 'thousands'} behind {text!r}"
                             for key, text in fitting[0])  # fmt: skip
        why.append(f"its numbers have {marks}")
    as_text = f"source.options = {write_options({'types': {one.name: 'VARCHAR'}})} if it is text"
    if odd:
        why.append(f"{', '.join(map(repr, sorted(odd)))} {'stands' if len(odd) == 1 else 'stand'} among its numbers")
        taken = _find_elsewhere(db, file, odd, others)
        if taken:
            text = f"cast it in source.query: {_cast_in_query(one.name)}"
            return [Misreading(one.name, f"is text, since {' and '.join(why)}, as in {taken!r}", {},
                               f"{text}, or say {as_text}", surely=False)]  # fmt: skip
        needed["nullstr"] = sorted({*(options.get("nullstr") or ("",)), *odd})
    if not why:
        return []
    texts = ", or ".join(filter(None, (otherwise, as_text)))
    return [Misreading(one.name, f"is text, since {' and '.join(why)}", needed, texts, surely=not otherwise)]


def _cast_in_query(name: str, *, filled: bool = False) -> str:
    """Return a query for ``source.query`` that reads a column as numbers; any other text becomes NULL.

    If ``filled`` is true, the query leaves out the rows whose text is no number.
    """
    number = exp.TryCast(this=column(name), to=exp.DataType.build("DOUBLE"))
    query = exp.select(exp.Star(replace=[alias_as(number, name)])).from_("source")
    return (query.where(exp.not_(is_null(number.copy()))) if filled else query).sql(DIALECT)


def _read_strange_line(db: Warehouse, file: exp.Table, one: Field, text: str) -> list[Misreading]:
    """Return the advice to leave out the only line whose value is no number, such as a total at the end.

    It is empty if the text occurs in several lines, or if the file has fewer than 20 lines (``FEWEST``). It is also
    empty if a number begins with a plus sign or a zero, since such numbers are probably codes.

    Args:
        db: The session.
        file: The table with the file's values as texts.
        one: The column.
        text: The value of that line.
    """
    value = column(one.name)
    lines = exp.CountIf(this=exp.EQ(this=value, expression=exp.Literal.string(text)))
    codes = exp.CountIf(this=_matches(value.copy(), CODE))
    number, coded, every = db.rows(exp.select(lines, codes, exp.Count(this=exp.Star())).from_(file))[0]
    if number != 1 or coded or every < FEWEST:
        return []
    leave_out = f"if that line is no record, leave it out by source.query: {_cast_in_query(one.name, filled=True)}"
    as_text = f"source.options = {write_options({'types': {one.name: 'VARCHAR'}})}"
    why = f"is text, since one line has {text!r} among its numbers"
    return [Misreading(one.name, why, {}, f"{leave_out}, or else say {as_text}", surely=False)]


def _find_elsewhere(db: Warehouse, file: exp.Table, marks: Iterable[str], others: Iterable[Field]) -> str:
    """Return the name of another text column that holds one of these marks for a missing value; empty if none does.

    In that column the mark, such as "NA", may be a real value, so it can't be read as NULL in the whole file. Columns
    with numbers among their texts are not examined.
    """
    texts = [exp.Literal.string(mark) for mark in marks]
    for other in others:
        value = column(other.name)
        numbers = exp.CountIf(this=_matches(value, PLAIN))
        marked = exp.CountIf(this=value.copy().isin(*(one.copy() for one in texts)))
        plain, found = db.rows(exp.select(numbers, marked).from_(file))[0]
        if found and not plain:
            return other.name
    return ""
