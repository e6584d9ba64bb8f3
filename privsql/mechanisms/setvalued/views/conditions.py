"""An analyst's condition on lists of items as a table over patterns.

The engine says what each part of the condition means: which items it is about, and what it is of the list of no item
and of the list of all. ``list_contains`` and ``list_has_any`` turn with the first of their items that is in a list,
``list_has_all`` with the last one. Then the engine evaluates the condition once for every combination of its parts, so
what AND, OR, NOT and NULL come to is the engine's, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.parse_sets import ITEMS
from privsql.engine.sqlfiles import column, fill, named, temp
from privsql.errors import UsageError
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.mechanisms.noisytables.measured import Ints

    Flags = NDArray[np.bool_]

PARTS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)
LENGTHS = (exp.Length, exp.ArraySize)
MOST_PARTS = 40
LENGTH = "length"


@dataclass(frozen=True)
class Part:
    """A part of a condition: the codes of the items that it is about, whether it needs ``all`` of them, what it is
    where it is met (of the list of all items), and what it is elsewhere (of the empty list); None for NULL.
    """

    codes: frozenset[int]
    all: bool
    met: bool | None
    unmet: bool | None

    def holds(self, present: Mapping[int, Flags], patterns: int) -> Flags:
        """In which patterns it is met; ``present``: by code, in which patterns an item is."""
        found = np.full(patterns, self.all and bool(self.codes))
        for code in sorted(self.codes):
            found = found & present[code] if self.all else found | present[code]
        return found

    def values(self, met: Flags) -> pa.Array:
        """What it is, where it is met and elsewhere."""
        found = [self.met if one else self.unmet for one in met.tolist()]
        return pa.array(found, pa.bool_())


@dataclass(frozen=True)
class Condition:
    """``tree``: over columns p_0, p_1, .. for the parts, and ``LENGTH`` for the number of items."""

    tree: exp.Expr
    parts: tuple[Part, ...]
    counts: bool

    @property
    def codes(self) -> tuple[int, ...]:
        """The items that it is about, ascending."""
        return tuple(sorted(frozenset[int]().union(*(part.codes for part in self.parts))))

    def over(self, db: Relations, codes: Sequence[int], length: Ints | None = None) -> Flags:
        """Where it is true, over all patterns of the items ``codes`` in row-major order (2^k,).

        ``length``: how many items the records of each pattern have, where it ``counts`` them.
        """
        number = 1 << len(codes)
        rows = np.arange(number)
        present = {code: rows >> (len(codes) - 1 - i) & 1 == 1 for i, code in enumerate(codes)}
        key = np.zeros(number, dtype=np.int64) if length is None else length.astype(np.int64)
        for part in self.parts:
            key = key << 1 | part.holds(present, number)
        different, which = np.unique(key, return_inverse=True)
        given: dict[str, pa.Array] = {"row": pa.array(np.arange(len(different)))}
        for i, part in enumerate(reversed(self.parts)):
            given[f"p_{len(self.parts) - 1 - i}"] = part.values(different >> i & 1 == 1)
        given[LENGTH] = pa.array(different >> len(self.parts), pa.int64())
        db.put("rows", pa.table(given))
        held = db.rows(fill("setvalued/held", {"rows": temp("rows"), "condition": self.tree}))
        db.drop("rows")
        true = np.zeros(len(different), dtype=bool)
        true[[row[0] for row in held]] = True
        return np.asarray(true[which.reshape(-1)])


def read(db: Relations, condition: exp.Expr, universe: exp.Table) -> Condition:
    """A condition that ``parse_sets`` let through; ``UsageError`` if it has too many parts."""
    tree = exp.paren(condition.copy())
    asked: list[exp.Expr] = []
    for node in list(tree.find_all(*PARTS)):
        same = next((i for i, one in enumerate(asked) if one == node), len(asked))
        asked += [node.copy()] if same == len(asked) else []
        node.replace(column(f"p_{same}"))
    lengths = list(tree.find_all(*LENGTHS))
    for node in lengths:
        node.replace(column(LENGTH))
    if len(asked) > MOST_PARTS:
        raise UsageError(f"a condition of more than {MOST_PARTS} different parts is not supported")
    return Condition(tree, tuple(_parts(db, asked, universe)), bool(lengths))


def _parts(db: Relations, asked: Sequence[exp.Expr], universe: exp.Table) -> list[Part]:
    if not asked:
        return []
    single = [named(_any(one), f"p_{i}") for i, one in enumerate(asked)]
    units = db.arrow(fill("duckdb/units", {"universe": universe, "conditions": single}))
    plain = [named(one, f"p_{i}") for i, one in enumerate(asked)]
    unmet, met = (row[1:] for row in db.rows(fill("duckdb/extremes", {"universe": universe, "conditions": plain})))
    found = []
    for i, one in enumerate(asked):
        about = frozenset(units.filter(pc.field(f"p_{i}"))["code"].to_pylist())
        found.append(Part(about, _needs_all(one), met[i], unmet[i]))
        if len(about) > TINY_UNIVERSE:
            raise UsageError(f"a condition on more than {TINY_UNIVERSE} items is not supported")
    return found


def _needs_all(part: exp.Expr) -> bool:
    return isinstance(part, exp.ArrayContainsAll | exp.Anonymous)


def _any(part: exp.Expr) -> exp.Expr:
    """Whether any of the items that a part is about is in the list."""
    if not _needs_all(part):
        return part
    wanted = part.expressions[1] if isinstance(part, exp.Anonymous) else part.expression
    return exp.ArrayOverlaps(this=column(ITEMS), expression=wanted.copy())
