"""What a publication asks of the ledger, and the entry that it becomes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from privsql.engine.names import fold
from privsql.releases.identity import MAIN, digest
from privsql.releases.ledger.book import Entry, bare, promised, published
from privsql.source.address import address, resolved
from privsql.source.names import known_as

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.noise import Key
    from privsql.releases.ledger.book import Book
    from privsql.source.spec import Spec


@dataclass(frozen=True)
class Wish:
    """A publication: where its ledger lies (None: nowhere), its key if its publisher names one, and what it may do.

    ``allow``: no guarantee need cover it and what was published before; ``replaces``: digest of the release at its
    target.
    """

    spec: Spec
    path: Path | None
    key: Key | None = None
    allow: bool = False
    replaces: str | None = None

    @property
    def ledger(self) -> Path:
        """Where the ledger lies, for who has one."""
        if self.path is None:
            raise ValueError("this publication keeps no ledger")
        return self.path

    @property
    def source(self) -> tuple[str, ...]:
        """What the source is called."""
        return known_as(self.spec.source)

    @property
    def columns(self) -> tuple[str, ...]:
        """The published columns."""
        return published(self.spec.columns.model_dump(mode="json"))

    @property
    def bare(self) -> tuple[str, ...]:
        """Their names in the source."""
        return bare(self.spec.columns.model_dump(mode="json"))

    @property
    def person(self) -> str | None:
        """The column that names the persons of whom the release promises something; None where it is of records."""
        return promised(vars(self.spec.source))

    @property
    def plain(self) -> dict[str, Any]:
        """The specification without where it lies and goes, as plain data."""
        place: dict[str, Any] = {"ledger": True, "release": {"to", "schema_"}}
        parts: dict[str, Any] = json.loads(self.spec.model_dump_json(exclude=place))
        source = self.spec.source
        parts["source"] = {"table": source.table, "query": source.query, "id": source.id, "name": source.name}
        more = {"person": source.person, "persons": source.persons}
        parts["source"] |= more if source.person is not None else {}
        parts["source"] |= {"id_space": source.id_space} if source.id_space is not None else {}
        return parts

    @property
    def target(self) -> str:
        """Where the release goes."""
        return str(resolved(self.spec.target))

    def digest(self, made: Path) -> str:
        """That of the release at its target, from the file or folder that becomes it."""
        return digest(address(made, MAIN) if self.spec.release.schema_ is not None else made)

    def replaced(self, book: Book) -> Entry | None:
        """The release at the target, if it is in the ledger; of several that are alike, the one that went there."""
        alike = [entry for entry in book.live if self.replaces is not None and entry.digest == self.replaces]
        there = [entry for entry in alike if entry.target == self.target]
        return next(reversed(there or alike[:1] if len(alike) == 1 else there), None)

    def entry(self, number: int, **told: Any) -> Entry:
        """The entry in the ledger; ``told``: what the specification does not tell."""
        spec = self.spec
        told = {"digest": "", "records": None, "fresh": None, "held_back": None, "allowed": False, "key": "", **told}
        return Entry(
            number=number,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            name=spec.name,
            target=self.target,
            mechanism=spec.mechanism.kind,
            algorithm=spec.mechanism.algorithm,
            subject=fold(spec.source.id or ""),
            spec=self.plain,
            source=self.source,
            **told,
        )


def request(spec: dict[str, Any]) -> Any:
    """What of a specification makes a release what it is, besides the records and the key."""
    order = spec.get("release", {}).get("order") or "stream"
    return [spec["columns"], spec["mechanism"], *([order] if order != "stream" else [])]
