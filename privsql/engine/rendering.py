"""Filled trees as the SQL of an engine other than DuckDB: looked at again, and said as that engine says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from privsql.engine.portable import alien, unordered
from privsql.engine.sqlfiles import PREFIX
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRANSLATED = frozenset({"encode", "decode", "regexp_replace"})  # how trees spell what an engine has its own words for
ALIKE = frozenset({"Avg", "DPipe", "Length", "Substring"})  # outside the subset, and the same or made the same


@dataclass(frozen=True)
class Engine:
    """Its name, sqlglot's name of its dialect, functions and kinds of its own, and how else it says a node.

    ``digest``, ``hashed``: 63 bits of the MD5 and 60 of the SHA-256 of texts, side by side.
    """

    name: str
    dialect: str
    own: frozenset[str]
    says: Callable[[exp.Expr], exp.Expr]
    collation: exp.Expr  # by which texts compare as their bytes do
    digest: Callable[[Sequence[exp.Expr]], exp.Expr]
    hashed: Callable[[Sequence[exp.Expr]], exp.Expr]

    def render(self, tree: exp.Expr, place: Callable[[exp.Table], str | None]) -> str:
        """The SQL of a tree; ``place``: under which name a table stands there, None for its own.

        Raises ``EngineError`` for what is outside the portable subset.
        """
        foreign = alien(tree, TRANSLATED | ALIKE | self.own) | unordered(tree)
        if foreign:
            wrong = ", ".join(sorted(foreign))
            raise EngineError(f"{self.name} can't run what is outside the portable subset: {wrong}")
        copied = tree.copy()
        for table in list(copied.find_all(exp.Table)):
            named = place(table)
            if named is not None:
                for part in ("catalog", "db"):
                    table.set(part, None)
                table.set("this", exp.to_identifier(named, quoted=True))
        for node in reversed(list(copied.walk())):  # what is inside first
            node.replace(self._said(node))
        try:
            return copied.sql(dialect=self.dialect, comments=False, unsupported_level=ErrorLevel.RAISE, copy=False)
        except UnsupportedError as error:
            raise EngineError(f"{self.name}: {error}") from error

    def _said(self, node: exp.Expr) -> exp.Expr:
        match node:
            case exp.DataType(this=exp.DType.INT128):
                return exp.DataType.build("DECIMAL(38, 0)")
            case exp.Window(this=exp.DenseRank()) if not node.args.get("order"):  # all rows are alike
                node.set("order", exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1))]))
            case exp.Avg():  # of decimals it would be one
                node.set("this", exp.cast(node.this, "DOUBLE"))
            case exp.Anonymous() if node.name.lower() == "decode":  # of encoded text: without a collation of its own
                return exp.Collate(this=node.expressions[0].expressions[0], expression=self.collation.copy())
        return self.says(node)


def temporary(table: exp.Table) -> str | None:
    """The name of a temporary relation of privsql's own, without the prefix."""
    return table.name.removeprefix(PREFIX) if "temp" in (table.catalog, table.db) else None


def call(name: str, *given: exp.Expr) -> exp.Anonymous:
    """A function of an engine's own."""
    return exp.Anonymous(this=name, expressions=list(given))
