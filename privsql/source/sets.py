"""From a publisher's lists of items to counts of equal sets: mount, NULL policy, universe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.roles import Field, Roles, fold
from privsql.engine.sqlfiles import DIALECT, Holes, all_rows, column, fill, named, temp
from privsql.errors import UsageError
from privsql.mechanisms.setvalued.holdings import Holdings
from privsql.model.universe import listed
from privsql.source.table import AS_TEXT, mount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Warehouse
    from privsql.source.spec import Spec

SHOWN = 3  # unknown items that a message names


@dataclass(frozen=True)
class PreparedSets:
    """The source, mounted and counted.

    Relations ``universe``(code, item), ``baskets``(basket, items, records): the different sets, in canonical order, and
    ``contents``(basket, code). How many records there are is private: a release states no exact number of them.
    """

    db: Warehouse
    roles: Roles
    labels: tuple[str, ...]  # text of the items, in the order of the universe
    source_records: int
    suppressed: int
    counts: tuple[int, ...] = ()
    releases: int = 0  # a budget covers earlier ones, not the groups of records

    @property
    def records(self) -> int:
        """Records that are published; those without items among them."""
        return self.source_records - self.suppressed

    def holdings(self) -> Holdings:
        """The source's sets and how many records have each."""
        contents = self.db.arrow(all_rows(temp("contents")))
        weights = self.db.arrow(fill("setvalued/weights", {"baskets": temp("baskets")}))["records"].to_numpy()
        starts = np.searchsorted(contents["basket"].to_numpy(), np.arange(len(weights) + 1))
        codes = contents["code"].to_numpy().astype(np.int64)
        return Holdings(starts, codes, weights.astype(np.float64), len(self.labels))

    def sort(self) -> None:
        """Nothing to do: sets are counted, records lie in no order."""

    def done(self) -> None:
        """Nothing to forget."""

    def earlier(self, last: int) -> NDArray[np.int64]:  # noqa: ARG002 (as of other sources)
        """No groups of records."""
        return np.zeros((0, self.records), dtype=np.int64)

    def assigned(self, groups: NDArray[np.integer[Any]]) -> None:
        """No groups of records."""

    def named(self, name: str) -> None:
        """Make the records' sets readable as ``name``, under the publisher's own column name."""
        own = named(column("items"), self.roles.sensitive[0].name)
        records = fill("duckdb/records", {"baskets": temp("baskets")})
        self.db.publish_as(name, exp.select(own).from_(records.subquery("records")))


def prepare_sets(db: Warehouse, spec: Spec) -> PreparedSets:
    """Mount the source, apply the NULL policy, find the universe and count the sets.

    Raises ``UsageError`` for unknown columns and types, NULL where it is refused, and items outside the universe.
    """
    mount(db, spec)
    known = {fold(one.name): one for one in db.fields(temp("source"))}
    columns = [_resolved(known, name) for name in spec.columns.sets]
    kind = _kind(columns[-1], is_list=spec.columns.items is not None)
    records, suppressed = _baskets(db, spec, columns, kind)
    occurring = fill("duckdb/items", {"baskets": temp("baskets")})
    labels = listed(db, spec.mechanism.universe, kind, occurring)  # type: ignore[union-attr]
    db.make("apart", fill("duckdb/apart", {"baskets": temp("baskets")}))
    _known_items(db, columns[-1].name)
    db.make("contents", fill("setvalued/contents", {"apart": temp("apart"), "universe": temp("universe")}))
    db.drop("apart")
    roles = Roles((), (Field(columns[-1].name, f"{kind}[]"),))
    return PreparedSets(db, roles, labels, records, suppressed)


def _resolved(known: dict[str, Field], name: str) -> Field:
    if fold(name) not in known:
        names = ", ".join(one.name for one in known.values())
        raise UsageError(f"column {name!r} is not in the source; it has {names}")
    return known[fold(name)]


def _kind(column_: Field, *, is_list: bool) -> str:
    """The type of an item as it is published; an ENUM would carry the names of items that do not occur."""
    kind = column_.type.removesuffix("[]") if is_list else column_.type
    if is_list and not column_.type.endswith("[]"):
        raise UsageError(f"column {column_.name!r} is {kind}, not a list; name columns record and item instead")
    if kind.split("(")[0] in AS_TEXT:
        return "VARCHAR"
    if not Field(column_.name, kind).is_scalar:
        raise UsageError(f"column {column_.name!r} holds {kind}, which can't be published; cast it in source.query")
    return kind


def _baskets(db: Warehouse, spec: Spec, columns: Sequence[Field], kind: str) -> tuple[int, int]:
    """Make ``baskets``; records of the source, and those left out."""
    if spec.columns.items is not None:
        source: exp.Table = temp("source")
        items: exp.Expr = column(columns[0].name)
    else:
        holes: Holes = {"source": temp("source"), "record": column(columns[0].name), "item": column(columns[1].name)}
        db.make("gathered", fill("duckdb/gathered", holes), title="Gathering the items of each record")
        source, items = temp("gathered"), column("items")
    items = exp.cast(items, exp.DataType.build(f"{kind}[]", dialect=DIALECT))
    db.make("marked", fill("duckdb/marked", {"source": source, "items": items}), title="Reading the sets")
    records, missing = (int(n) for n in db.rows(fill("setvalued/missing", {"marked": temp("marked")}))[0])
    if missing and "refuse" in {spec.columns.policy(one.name) for one in columns}:
        raise UsageError(
            f"column {columns[-1].name!r} is NULL, or holds NULL, in {missing} records; "
            f"set nulls.{columns[-1].name} to 'suppress' to leave these records out"
        )
    db.make("baskets", fill("duckdb/baskets", {"marked": temp("marked")}), title="Counting equal sets")
    db.drop("marked", "gathered")
    return records, missing


def _known_items(db: Warehouse, name: str) -> None:
    """``UsageError`` that names items of the source outside the universe."""
    holes: Holes = {
        "apart": temp("apart"),
        "universe": temp("universe"),
        "item": exp.cast(column("item", "a"), "VARCHAR"),
    }
    unknown = db.rows(fill("setvalued/unknown", holes))
    if unknown:
        shown = ", ".join(repr(row[0]) for row in unknown[:SHOWN])
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        raise UsageError(
            f"column {name!r} holds {shown}{more}, not in the universe; add them to mechanism.universe, "
            f"or leave their records out in source.query"
        )
