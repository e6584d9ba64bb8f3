"""From a publisher's lists of items to counts of equal sets: mount, NULL policy, universe."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.names import fold
from privsql.engine.roles import Field, Roles
from privsql.engine.sqlfiles import DIALECT, Holes, column, fill, named, temp
from privsql.errors import UsageError
from privsql.model.listing import listed
from privsql.model.records import History, Persons
from privsql.noise import system_key
from privsql.source import persons
from privsql.source.columns import missing
from privsql.source.persons import Choice
from privsql.source.table import AS_TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Warehouse
    from privsql.model.parameters import Order
    from privsql.model.universe import Universe
    from privsql.noise import Key
    from privsql.source.columns import Columns
    from privsql.source.places import Source


@dataclass(frozen=True)
class SetRecords:
    """Item sets, mounted and counted.

    Relations ``universe``(code, item) and ``baskets``(basket, items, records): the different sets, in canonical order;
    once sorted ``contents``(basket, code) as well. How many records there are is private.
    """

    db: Warehouse
    roles: Roles
    labels: tuple[str, ...]  # text of the items, in the order of the universe
    source_records: int
    suppressed: int
    persons: Persons | None = None
    known_by: Mapping[str, exp.Expr] = field(default_factory=dict)
    history: History = field(default_factory=History)
    _made: set[str] = field(default_factory=set)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Records with every item."""
        holes: Holes = {"baskets": temp("baskets"), "apart": temp("apart"), "universe": temp("universe")}
        return tuple(int(row[0]) for row in self.db.rows(fill("sets/counts", holes)))

    @property
    def records(self) -> int:
        """Records that are published; those without items among them."""
        return self.source_records - self.suppressed

    @property
    def order(self) -> Order:
        """Nothing is told of single records."""
        return "stream"

    def bound(self, key: Key) -> Key:
        """The key: noise is fresh, whatever the records are."""
        return key

    def sort(self) -> None:
        """Make ``contents``: every set, item by item."""
        if "contents" in self._made:
            return
        holes: Holes = {"apart": temp("apart"), "universe": temp("universe")}
        self.db.make("contents", fill("sets/contents", holes), title="Sorting the sets")
        self._made.add("contents")

    def coded(self, *, ordered: bool) -> exp.Query:  # noqa: ARG002
        """Sets have no value each; ``TypeError``."""
        raise TypeError("sets are not records with a value each")

    def traces(self, *, values: bool) -> exp.Query:  # noqa: ARG002 (records of any shape are asked)
        """What the sets are known by in other releases; beside them stand the names of all records."""
        text = exp.cast(column("items", "b"), "VARCHAR")
        sets = fill("ledger/sets", {"baskets": temp("baskets"), "trace": self.db.digest([text])})
        if not self.known_by:
            return sets
        nobody = exp.cast(exp.null(), "VARCHAR")
        names = {key: self.known_by.get(key, nobody) for key in ("id", "person")}
        return exp.union(sets, fill("ledger/names", {"source": temp("source"), **names}), distinct=False)

    @property
    def has_ids(self) -> bool:
        """Whether records are followed one by one; sets are not."""
        return False

    @property
    def keep(self) -> exp.Expr:
        """Every row of relation ``source``."""
        return exp.true()

    def seen_as(self, columns: Sequence[str]) -> exp.Query | None:  # noqa: ARG002
        """Sets are sets, whatever the columns are called."""
        return None

    def values_of(self, columns: Sequence[str]) -> dict[str, tuple[exp.Expr, str]]:  # noqa: ARG002
        """No column of its own for a value."""
        return {}

    def done(self) -> None:
        """Forget the sets."""
        self.db.drop("contents", "apart", "baskets")
        self._made.discard("contents")

    def named(self, name: str) -> None:
        """Make the records' sets readable as ``name``, under the publisher's own column name."""
        own = named(column("items"), self.roles.sensitive[0].name)
        records = fill("duckdb/records", {"baskets": temp("baskets")})
        self.db.publish_as(name, exp.select(own).from_(records.subquery("records")))


def prepare_sets(
    db: Warehouse, source: Source, columns_: Columns, universe: Universe, choice: Choice | None = None
) -> SetRecords:
    """Mount the source, apply the NULL policy, find the universe and count the sets; ``choice``: as of ``prepare``.

    Items outside the universe are dropped, as NULL is, and one that stands twice in a list counts once: no record is
    refused. Raises ``UsageError`` for unknown columns and types.
    """
    given = persons.mount(db, source)
    known = {fold(one.name): one for one in db.fields(given)}
    columns = [_resolved(known, name) for name in columns_.sets]
    kind = _kind(columns[-1], is_list=columns_.items is not None)
    choice = choice or Choice.by(system_key(), "")
    told = Persons(rule="one", choice=choice.reference) if source.person is not None else None
    if told is not None:
        persons.reduce(db, source, given, [(column(columns[0].name), columns[0].type)], exp.true(), choice)
    records, suppressed = _baskets(db, columns_, columns, kind)
    occurring = fill("duckdb/items", {"baskets": temp("baskets")})
    labels = listed(db, universe, kind, occurring)
    db.make("apart", fill("duckdb/apart", {"baskets": temp("baskets")}))
    roles = Roles((), (Field(columns[-1].name, f"{kind}[]"),))
    return SetRecords(db, roles, labels, records, suppressed, persons=told)


def _resolved(known: dict[str, Field], name: str) -> Field:
    if fold(name) not in known:
        raise missing(name, (one.name for one in known.values()))
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


def _baskets(db: Warehouse, asked: Columns, columns: Sequence[Field], kind: str) -> tuple[int, int]:
    """Make ``baskets``; records of the source, and those left out."""
    if asked.items is not None:
        source: exp.Table = temp("source")
        items: exp.Expr = column(columns[0].name)
    else:
        holes: Holes = {"source": temp("source"), "record": column(columns[0].name), "item": column(columns[1].name)}
        db.make("gathered", fill("duckdb/gathered", holes), title="Gathering the items of each record")
        source, items = temp("gathered"), column("items")
    items = exp.cast(items, exp.DataType.build(f"{kind}[]", dialect=DIALECT))
    suppress = exp.true() if "suppress" in {asked.policy(one.name) for one in columns} else exp.false()
    marked = fill("duckdb/marked", {"source": source, "items": items, "suppress": suppress})
    db.make("marked", marked, title="Reading the sets")
    records, missing = (int(n) for n in db.rows(fill("sets/missing", {"marked": temp("marked")}))[0])
    db.make("baskets", fill("duckdb/baskets", {"marked": temp("marked")}), title="Counting equal sets")
    db.drop("marked", "gathered")
    return records, missing
