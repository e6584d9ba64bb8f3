"""Queries of an analyst, drawn at random from the columns of a release, and simpler ones of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Column:
    """A column of a release: whole numbers, texts, dates or a list; some of its values, or items, as SQL."""

    name: str
    kind: str
    values: tuple[str, ...]
    sensitive: bool = False


@dataclass(frozen=True)
class Condition:
    """A comparison (``word`` empty), or what AND, OR or NOT make of others."""

    word: str
    parts: tuple[Condition, ...] = ()
    text: str = ""
    sensitive: bool = False

    def __str__(self) -> str:
        """As SQL."""
        if not self.word:
            return self.text
        if self.word == "NOT":
            return f"NOT ({self.parts[0]})"
        return f" {self.word} ".join(f"({part})" for part in self.parts)

    @property
    def touches(self) -> bool:
        """Whether a sensitive column is in it."""
        return self.sensitive or any(part.touches for part in self.parts)

    def simpler(self) -> Iterator[Condition]:
        """Its parts, and itself with a part less or a simpler one."""
        yield from self.parts
        for i, part in enumerate(self.parts):
            if len(self.parts) > 2:
                yield replace(self, parts=self.parts[:i] + self.parts[i + 1 :])
            for one in part.simpler():
                yield replace(self, parts=(*self.parts[:i], one, *self.parts[i + 1 :]))


@dataclass(frozen=True)
class Shown:
    """An expression of the select list and its alias; ``sensitive``: whether a sensitive column is in it."""

    text: str
    alias: str
    sensitive: bool = False


@dataclass(frozen=True)
class Query:
    """A query; ``nested``: as a SELECT over itself; ``grouping``: ALL, ROLLUP, CUBE, or a plain list.

    ``source``: how FROM names the table: itself, in a schema, as a derived table, one with the condition, or by WITH.
    """

    table: str
    groups: tuple[Shown, ...]
    figures: tuple[Shown, ...]
    where: Condition | None = None
    grouping: str = ""
    having: str = ""
    order: tuple[str, ...] = ()
    limit: int | None = None
    nested: bool = False
    source: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether no sensitive column is in it."""
        shown = any(one.sensitive for one in (*self.groups, *self.figures))
        return not shown and not (self.where and self.where.touches)

    def __str__(self) -> str:
        """As SQL."""
        items = ", ".join(f"{one.text} AS {one.alias}" for one in (*self.groups, *self.figures))
        where = f"WHERE {self.where}" if self.where else ""
        rows = f"SELECT * FROM {self.table} {where if self.source in ('filtered', 'with') else ''}"
        source = {"": self.table, "schema": f"main.{self.table}", "with": "picked"}.get(
            self.source, f"({rows}) AS picked"
        )
        first = f"WITH picked AS ({rows}) " if self.source == "with" else ""
        parts = [f"SELECT {items} FROM {source}", "" if self.source in ("filtered", "with") else where]
        names = ", ".join(one.alias for one in self.groups)
        if self.groups and self.grouping in ("ROLLUP", "CUBE"):
            parts.append(f"GROUP BY {self.grouping} ({names})")
        elif self.groups:
            parts.append("GROUP BY ALL" if self.grouping == "ALL" else f"GROUP BY {names}")
        parts.append(f"HAVING {self.having}" if self.having else "")
        last = [f"ORDER BY {', '.join(self.order)}"] if self.order else []
        last += [f"LIMIT {self.limit}"] if self.limit is not None else []
        if self.nested:
            return first + " ".join(["SELECT * FROM (", *filter(None, parts), ") AS inside", *last])
        return first + " ".join([*filter(None, parts), *last])

    def simpler(self) -> Iterator[Query]:
        """Simpler ones."""
        bare = replace(self, having="", order=(), limit=None, nested=False, grouping="")
        yield from (one for one in (bare, replace(bare, order=self.order), replace(bare, having=self.having)))
        yield from (replace(self, **{key: value}) for key, value in _plain(self).items())
        for i in range(1, len(self.figures)):  # the number of records stays: groups without any are none
            yield replace(self, figures=self.figures[:i] + self.figures[i + 1 :], having="", order=())
        for i in range(len(self.groups)):
            yield replace(self, groups=self.groups[:i] + self.groups[i + 1 :], having="", order=())
        if self.where:
            yield from (replace(self, where=one) for one in (None, *self.where.simpler()))


def _plain(query: Query) -> dict[str, object]:
    plain = {"having": "", "order": (), "limit": None, "nested": False, "grouping": "", "source": ""}
    return {key: value for key, value in plain.items() if getattr(query, key) != value}


class Writer:
    """Draws queries over the columns of a release; ``sums``: whether quasi-identifiers can be added up there."""

    def __init__(self, dice: random.Random, table: str, columns: Sequence[Column], *, sums: bool = True) -> None:
        self.dice, self.table, self.sums = dice, table, sums
        self.columns = list(columns)
        self.own = [column for column in columns if not column.sensitive]

    # Expressions ---

    def expression(self, columns: Sequence[Column]) -> tuple[str, str, Column]:
        """An expression of one column, its kind, and the column."""
        column = self.dice.choice(columns)
        name, value = column.name, self.dice.choice(column.values)
        forms = {
            "int": [
                ("{n}", "int"), ("{n}", "int"), ("{n} // 10", "int"), ("{n} % 3", "int"), ("abs({n} - {v})", "int"),
                ("coalesce({n}, 0)", "int"), ("CASE WHEN {n} < {v} THEN 1 WHEN {n} = {v} THEN 2 ELSE 3 END", "int"),
                ("CAST({n} AS VARCHAR)", "text"), ("greatest({n}, {v})", "int"), ("if({n} > {v}, 'x', 'y')", "text"),
            ],
            "text": [
                ("{n}", "text"), ("{n}", "text"), ("upper({n})", "text"), ("left({n}, 1)", "text"),
                ("length({n})", "int"), ("coalesce({n}, '?')", "text"), ("{n} || '!'", "text"),
                ("CASE WHEN {n} = {v} THEN 'this' ELSE 'other' END", "text"), ("nullif({n}, {v})", "text"),
                ("regexp_extract({n}, '^.')", "text"),
            ],
            "date": [
                ("{n}", "date"), ("year({n})", "int"), ("month({n})", "int"), ("date_trunc('month', {n})", "time"),
                ("strftime({n}, '%Y-%m')", "text"), ("date_diff('day', {v}, {n}) // 30", "int"),
                ("{n} + INTERVAL 1 MONTH", "time"), ("monthname({n})", "text"),
            ],
        }  # fmt: skip
        text, kind = self.dice.choice(forms[column.kind])
        return text.format(n=name, v=value), kind, column

    def leaf(self, columns: Sequence[Column]) -> Condition:
        """A comparison."""
        dice = self.dice
        column = dice.choice(columns)
        name, value, other = column.name, dice.choice(column.values), dice.choice(column.values)
        if column.kind == "set":
            sign, both = dice.choice(["<", "=", "<>", ">="]), f"{name}, [{value}, {other}]"
            forms = [f"list_contains({name}, {value})", f"list_has_all({both})", f"list_has_any({both})"]
            return Condition("", text=dice.choice([*forms, f"len({name}) {sign} {dice.randrange(4)}"]), sensitive=True)
        forms = [
            f"{name} {dice.choice(['=', '<>', '<', '<=', '>', '>=', 'IS DISTINCT FROM'])} {value}",
            f"{name} IN ({value}, {other})", f"{name} NOT IN ({value}, {other})", f"{name} IS NULL",
            f"{name} BETWEEN {value} AND {other}", f"{name} IS NOT NULL", f"coalesce({name}, {value}) = {other}",
            f"CASE WHEN {name} = {value} THEN {name} = {other} ELSE {name} > {other} END",
        ]  # fmt: skip
        if column.name == "age" and not column.sensitive:
            band = dice.randrange(9)
            forms += [f"{name} IN (SELECT years FROM bands WHERE band < {band})",
                      f"EXISTS (SELECT 1 FROM bands WHERE years = {name} AND band = {band})"]  # fmt: skip
        if column.kind == "text":
            forms += [f"{name} LIKE '%a%'", f"upper({name}) = upper({value})", f"regexp_matches({name}, '^[a-f]')"]
        if column.kind == "int":
            forms += [f"{name} % 2 = 0", f"{name} + 1 > {value}", f"{name} // 10 = {value} // 10"]
        return Condition("", text=dice.choice(forms), sensitive=column.sensitive)

    def condition(self, columns: Sequence[Column], depth: int = 2) -> Condition:
        """A Boolean combination of comparisons."""
        if not depth or self.dice.random() < 0.4:
            return self.leaf(columns)
        word = self.dice.choice(["AND", "AND", "OR", "NOT"])
        number = 1 if word == "NOT" else self.dice.choice([2, 2, 3])
        return Condition(word, tuple(self.condition(columns, depth - 1) for _ in range(number)))

    # Figures ---

    def figure(self, alias: str, *, exact: bool) -> Shown:
        """An aggregate function, or arithmetic of such; ``exact``: of quasi-identifiers alone."""
        columns = self.own if exact and self.own else self.columns
        among = self.condition(columns, 1)
        any_of = self.dice.choice(columns)
        forms = [
            (f"COUNT(*) FILTER (WHERE {among})", among.touches), (f"COUNT_IF({among})", among.touches),
            (f"COUNT({any_of.name})", any_of.sensitive), ("COUNT(1)", False), ("COUNT(*)", False),
            (f"100.0 * COUNT(*) FILTER (WHERE {among}) / COUNT(*)", among.touches),
            (f"COUNT(*) - COUNT_IF({among})", among.touches),
            (f"AVG(CASE WHEN {among} THEN 1.0 ELSE 0 END)", among.touches),
            (f"COUNT(CASE WHEN {among} THEN 1 END)", among.touches),
            (f"100.0 * COUNT(*) / (SELECT COUNT(*) FROM {self.table})", False),
        ]  # fmt: skip
        numbers = [column for column in self.own if column.kind == "int"]
        constants = [("AVG(7)", False), ("SUM(2)", False), ("SUM(0)", False), ("COUNT(NULL)", False)]
        forms += [self.dice.choice(constants)] if self.dice.random() < 0.3 else []
        if self.sums and numbers:
            number = self.dice.choice(numbers).name
            forms += [(f"SUM({number})", False), (f"AVG({number} * 2)", False), (f"AVG({number})", False)]
            forms += [
                (f"{self.dice.choice(['SUM', 'AVG', 'COUNT'])}(CASE WHEN {among} THEN {number} END)", among.touches)
            ]
            forms += [(f"SUM(CASE WHEN {among} THEN {number} ELSE 0 END)", among.touches)]
            forms += [(f"{self.dice.choice(['SUM', 'AVG'])}({number} - {self.dice.randrange(50)})", False)]
        amounts = [column.name for column in self.columns if column.kind == "int" and column.sensitive and self.own]
        forms += [(f"{self.dice.choice(['MIN', 'MAX', 'SUM', 'AVG', 'MEDIAN'])}({name})", True) for name in amounts]
        if exact and self.own:
            own = self.dice.choice(self.own)
            forms += [
                (f"{self.dice.choice(['MIN', 'MAX'])}({own.name})", False),
                (f"COUNT(DISTINCT {own.name})", False),
            ]
            forms += [(f"MEDIAN({own.name})", False)] if own.kind == "int" else []
        text, touches = self.dice.choice(forms)
        return Shown(text, alias, touches)

    def query(self) -> Query:
        """A count query; its groups come first in ORDER BY, so that ties are in one order."""
        dice = self.dice
        if any(column.kind == "set" for column in self.columns):
            some = f"COUNT(*) FILTER (WHERE {self.condition(self.columns, 1)})"
            form = dice.choice(["{c}", "100.0 * {c} / COUNT(*)", "COUNT(*) - {c}"])
            figures = Shown("COUNT(*)", "n"), Shown(form.format(c=some), "f0", sensitive=True)
            return Query(self.table, (), figures, self.condition(self.columns) if dice.random() < 0.7 else None)
        exact = bool(self.own) and dice.random() < 0.35
        columns = self.own if exact else self.columns
        groups = []
        for i in range(dice.choice([0, 0, 1, 1, 2])):
            text, _, column = self.expression(columns)
            groups.append(Shown(text, f"g{i}", column.sensitive))
        figures = [Shown("COUNT(*)", "n")] + [
            self.figure(f"f{i}", exact=exact) for i in range(dice.choice([0, 1, 1, 2]))
        ]
        where = self.condition(columns) if dice.random() < 0.7 else None
        made = Query(self.table, tuple(groups), tuple(figures), where)
        grouping = dice.choice(["", "", "ALL", "ROLLUP", "CUBE"]) if groups else ""
        order = tuple(f"{one.alias}{dice.choice(['', ' DESC', ' NULLS FIRST'])}" for one in groups)
        having = dice.choice(["", "", "n > 3.5", "COUNT(*) / 2 > 4.25 OR n < 1.5"]) if groups else ""
        limit = (
            dice.choice([None, None, 5]) if made.is_exact and grouping not in ("ROLLUP", "CUBE") and groups else None
        )
        nested, source = dice.random() < 0.15, dice.choice(["", "", "schema", "derived", "filtered", "with"])
        if not having and dice.random() < 0.2:
            text = dice.choice(
                ["SUM(COUNT(*)) OVER ()", "MAX(COUNT(*)) OVER ()", "1.0 * COUNT(*) / SUM(COUNT(*)) OVER ()"]
            )
            touches = any(one.sensitive for one in groups)
            figures.append(Shown(text, "w", touches))
        made = replace(made, figures=tuple(figures), grouping=grouping, order=order, having=having, limit=limit)
        return replace(made, nested=nested, source=source)
