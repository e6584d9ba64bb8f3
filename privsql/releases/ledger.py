"""The publisher's private record of what was released: for each release its specification, time, digest and key
reference, and which record (by ``id``) went to which group. It lies beside the source and is never part of a release.

Publishing the same subjects again is checked against it. A guarantee covers a chain of releases that agree in their
mechanism's terms and in the columns; anything else is refused, unless composition is allowed, which the release then
says of itself.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.names import fold
from privsql.engine.open import scratch
from privsql.engine.positions import positions
from privsql.engine.sqlfiles import Holes, all_rows, column, every, fill, table, temp
from privsql.errors import EngineError, GuaranteeError, UsageError
from privsql.mechanisms.contract import Budget, Groups
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from privsql.engine.database import Container, Workshop
    from privsql.model.records import Records
    from privsql.noise import Key
    from privsql.source.spec import Spec

LEDGER = "ledger"  # the attached database
SHOWN = 5  # records that a message names


@dataclass(frozen=True)
class Entry:
    """One release in the ledger. ``composes`` says what it and its predecessors guarantee together."""

    number: int
    made: str
    name: str
    target: str
    mechanism: str
    algorithm: str
    subject: str
    spec: dict[str, Any]
    digest: str
    key: str
    records: int | None  # None where no exact number is stated
    fresh: int | None
    held_back: int | None
    composes: str
    allowed: bool

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        return asdict(self)


def path_of(spec: Spec) -> Path | None:
    """Where the ledger of a source lies; None if records have no names, or nothing asks for a ledger.

    ``[ledger]`` asks for one, and so do mechanisms whose guarantee covers several releases, and a ledger that is there
    already.
    """
    composition = of(spec.mechanism.kind).composition
    if spec.source.id is None and not isinstance(composition, Budget):
        return None
    default = spec.source.path.with_name(f"{spec.source.path.stem}.ledger.duckdb")
    where = spec.ledger.database if spec.ledger is not None and spec.ledger.database is not None else default
    wanted = spec.ledger is not None or isinstance(composition, Groups) or where.exists()
    return where if wanted else None


class Ledger:
    """An open ledger, attached to the engine that publishes."""

    def __init__(self, db: Workshop, path: Path, spec: Spec, source: Records) -> None:
        self._db, self._path, self._spec, self._source = db, path, spec, source
        self.entries = entries(db)
        self._subject = fold(spec.source.id or "")
        self._fresh = source.records
        self._composes, self._allowed = "the first release", False
        self._same: list[Entry] = []
        self._last: NDArray[np.int64] | None = None  # of a chain: groups in the last release

    @property
    def composition(self) -> list[str]:
        """What a release has to say of itself: nothing, or that composition was allowed."""
        return [self._composes] if self._allowed else []

    def check(self, key: Key, *, allow: bool) -> None:
        """Compare with what was released; tells the source of earlier groups that a guarantee takes in.

        Raises ``GuaranteeError`` where no guarantee covers the composition and it is not allowed.
        """
        self._source.sort()
        same = [entry for entry in self.entries if entry.subject == self._subject and self._comparable(entry)]
        chain = bool(same) and self._chained(same)
        known = self._last_known(same[-1]) if chain else self._known_now(same) if same else 0
        if not known:
            return
        self._same, self._fresh = same, self._source.records - known
        changed = self._changed(same)
        repeat = self._repeats(same, key) and not self._fresh and not changed
        if chain and not changed:
            self._source.history.releases = len(same)
            self._source.history.fetch = lambda last: np.stack([self._groups(entry) for entry in same[-last:]])
            self._composes = _composition(
                self._spec.mechanism.kind, [*(entry.algorithm for entry in same), self._spec.mechanism.algorithm]
            )
        elif repeat:
            self._composes = "a repeat of an earlier release"
        else:
            self._refuse_or(allow, self._reason(same, changed, chain=chain))

    def _refuse_or(self, allow: bool, reason: str) -> None:
        if not allow:
            raise GuaranteeError(f"{reason}; --allow-composition publishes all the same, and says so in the release")
        self._composes, self._allowed = f"composition allowed by the publisher: {reason}", True

    def _reason(self, same: list[Entry], changed: list[tuple[Any, str]], *, chain: bool) -> str:
        last = same[-1]
        if changed and chain:
            names = ", ".join(f"{name} ({fate})" for name, fate in changed[:SHOWN])
            more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            return f"records of earlier releases may not change: {self._spec.source.id} {names}{more}"
        return (
            f"these subjects are in release {last.number} ({last.name}, {last.mechanism}) already, "
            "and no guarantee covers both"
        )

    def _chained(self, same: list[Entry]) -> bool:
        """Whether all releases of these subjects are (k,e)-anonymous in the same sense."""
        own = _terms(plain(self._spec))
        return own is not None and all(not entry.allowed and _terms(entry.spec) == own for entry in same)

    def _repeats(self, same: list[Entry], key: Key) -> bool:
        own = plain(self._spec)
        return any(entry.spec == own and entry.key == key.reference for entry in same)

    # What the tables say ---

    def _known(self, same: list[Entry]) -> exp.Query:
        """The names of the records of earlier releases."""
        parts = [exp.select(column("id")).from_(table(f"records_{entry.number}", LEDGER)) for entry in same]
        return _union(parts)

    def _comparable(self, entry: Entry) -> bool:
        """Whether the names of a release's records are of the type of those here: else none can be the same."""
        own = exp.select(column("id")).from_(temp("records"))
        return self._db.fields(own) == self._db.fields(exp.select(column("id")).from_(members(entry)))

    def _last_known(self, entry: Entry) -> int:
        """How many of the records are in the last release of a chain, which holds all that were released."""
        self._last = self._groups(entry)
        return int((self._last >= 0).sum())

    def _known_now(self, same: list[Entry]) -> int:
        """How many of the records are in some earlier release."""
        known = self._known(same).subquery()
        return int(self._db.rows(fill("ledger/overlap", {"ids": temp("records"), "known": known}))[0][0])

    def _changed(self, same: list[Entry]) -> list[tuple[Any, str]]:
        """Records that are not what they were, where the columns are the same; (name, fate)."""
        roles = self._source.roles
        keys = (*roles.qi_keys, *roles.sa_keys)
        found: list[tuple[Any, str]] = []
        for entry in same:
            if _columns(entry.spec) != _columns(plain(self._spec)):
                continue
            equal = [exp.NullSafeEQ(this=column(k, "r"), expression=column(k, "k")) for k in keys]
            holes: Holes = {
                "known": table(f"records_{entry.number}", LEDGER),
                "records": temp("records"),
                "same": every(equal),
            }
            found += [(name, str(fate)) for name, fate in self._db.rows(fill("ledger/changed", holes))]
        return found

    def _groups(self, entry: Entry) -> NDArray[np.int64]:
        """Group of every record in an earlier release."""
        if self._same and entry is self._same[-1] and self._last is not None:
            return self._last
        holes: Holes = {
            "records": temp("records"),
            "members": members(entry),
            "position": self._db.position("r"),
        }
        return np.asarray(self._db.arrow(fill("ledger/earlier", holes))["bid"].to_numpy(), dtype=np.int64)

    # Writing ---

    def record(self, made: Path, key: Key, facts: dict[str, Any]) -> None:
        """Write the release down; in one step, before it comes into place."""
        number = max((entry.number for entry in self.entries), default=0) + 1
        held = int(facts.get("held_back", 0))
        entry = Entry(
            number=number,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            name=self._spec.name,
            target=str(self._spec.target),
            mechanism=self._spec.mechanism.kind,
            algorithm=self._spec.mechanism.algorithm,
            subject=self._subject,
            spec=plain(self._spec),
            digest=digest(made),
            key=key.reference,
            records=self._source.records - held,
            fresh=self._fresh - held,
            held_back=held,
            composes=self._composes,
            allowed=self._allowed,
        )
        with self._db.together():
            self._write(entry)

    def _write(self, entry: Entry) -> None:
        db, roles, groups = self._db, self._source.roles, self._source.history.groups
        db.put("positions", positions(groups if groups is not None else np.zeros(self._source.records, dtype=np.int32)))
        assigned = db.matched(temp("records"), temp("positions")).subquery()
        db.make(
            members(entry).name, fill("ledger/members", {"assigned": assigned}), into=LEDGER, title="Writing the ledger"
        )
        db.drop("positions")
        flags = self._is_fresh()
        db.put("positions", positions(flags))
        marked = db.matched(temp("records"), temp("positions")).subquery()
        holes: Holes = {"marked": marked, "columns": [*roles.qi("r"), *roles.sa("r")]}
        db.make(f"records_{entry.number}", fill("ledger/fresh", holes), into=LEDGER)
        db.drop("positions")
        write_entry(db, entry)

    def _is_fresh(self) -> NDArray[np.int32]:
        """1 for every record that is published for the first time with these columns, else 0."""
        assigned = self._source.history.groups
        shown = np.ones(self._source.records, dtype=bool) if assigned is None else assigned >= 0
        if self._last is not None and self._same:
            shown &= self._last < 0  # a chain's last release holds all that were released
            return shown.astype(np.int32)
        for entry in self._same:
            if _columns(entry.spec) == _columns(plain(self._spec)):
                shown &= self._groups(entry) < 0
        return shown.astype(np.int32)


def write_entry(db: Workshop, entry: Entry) -> None:
    """Write an entry of an attached ledger down."""
    shown = entry.as_json()
    db.put("entry", pa.table({"key": list(shown), "value": [json.dumps(value) for value in shown.values()]}))
    db.make(f"release_{entry.number}", all_rows(temp("entry")), into=LEDGER)
    db.drop("entry")


def entries(db: Container) -> list[Entry]:
    """All releases of an attached ledger, oldest first."""
    names = [name for kind, name, _ in db.objects(LEDGER) if kind == "table" and name.startswith("release_")]
    try:
        found = [
            Entry(**{key: json.loads(value) for key, value in db.rows(all_rows(table(name, LEDGER)))}) for name in names
        ]
    except (TypeError, ValueError) as error:
        raise EngineError("the ledger is damaged or of another version of privsql") from error
    return sorted(found, key=lambda entry: entry.number)


@contextmanager
def opened(db: Workshop, spec: Spec, source: Records) -> Iterator[Ledger | None]:
    """The ledger of a source, attached for writing; None where there is none to keep."""
    path = path_of(spec)
    if path is None:
        yield None
        return
    with attached(db, path):
        yield Ledger(db, path, spec, source)


@contextmanager
def attached(db: Workshop, path: Path) -> Iterator[None]:
    """A ledger, made if it is not there, attached for writing."""
    _private(path)
    db.attach(path, LEDGER, read_only=False)
    try:
        yield
    finally:
        db.detach(LEDGER)


def _private(path: Path) -> None:
    """Make a ledger that only its owner can read."""
    if path.exists():
        return
    try:
        with scratch() as db:
            db.attach(path, LEDGER, read_only=False)
            db.detach(LEDGER)
        path.chmod(0o600)
    except OSError as error:
        raise EngineError(f"ledger {path}: {error.strerror}") from error


@contextmanager
def read(db: Container, spec: Spec) -> Iterator[list[Entry]]:
    """The ledger of a specification, attached for reading; ``UsageError`` if there is none."""
    path = path_of(spec)
    if path is None or not path.exists():
        raise UsageError(
            f"{path or spec.source.path}: there is no ledger; releases with source.id and [ledger] keep one"
        )
    db.attach(path, LEDGER, read_only=True)
    yield entries(db)


def listed(spec: Spec) -> list[Entry]:
    """All releases of the ledger of a specification, oldest first; ``UsageError`` if there is none."""
    with scratch() as db, read(db, spec) as entries:
        return entries


def members(entry: Entry) -> exp.Table:
    """Who is in which group of a release, (id, bid), of an attached ledger."""
    return table(f"groups_{entry.number}", LEDGER)


def known_records(entries: Sequence[Entry], last: Entry, value: str) -> exp.Query:
    """(id, value) of all records that ``last``, of an attached ledger, or a release of its columns before it holds."""
    alike = [e for e in entries if e.number <= last.number and _columns(e.spec) == _columns(last.spec)]
    chosen = [column("id"), column(value).as_("value")]
    return _union([exp.select(*chosen).from_(table(f"records_{entry.number}", LEDGER)) for entry in alike])


def digest(made: Path) -> str:
    """SHA-256 of a release: of its file, or of the files of its folder in order."""
    found = hashlib.sha256()
    for path in sorted(made.glob("*.parquet")) if made.is_dir() else [made]:
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def plain(spec: Spec) -> dict[str, Any]:
    """The specification without where it lies and goes, as plain data."""
    parts: dict[str, Any] = json.loads(spec.model_dump_json(exclude={"ledger": True, "release": {"to"}}))
    parts["source"] = {"table": spec.source.table, "query": spec.source.query, "id": spec.source.id}
    return parts


def _columns(spec: dict[str, Any]) -> Any:
    return [spec["columns"][key] for key in ("quasi_identifiers", "sensitive")]


def _terms(spec: dict[str, Any]) -> Any:
    """What must agree for a guarantee over several releases; None if the mechanism has none."""
    mechanism = of(spec["mechanism"]["kind"])
    if not isinstance(mechanism.composition, Groups):
        return None
    asked = mechanism.parameters.model_validate(spec["mechanism"])
    return [mechanism.kind, mechanism.composition.terms(asked), _columns(spec)]


def _composition(kind: str, algorithms: list[str]) -> str:
    """The weakest of what the algorithms guarantee; the first release has nothing to breach."""
    composition = of(kind).composition
    if not isinstance(composition, Groups):
        raise TypeError(kind)
    order = list(composition.order)
    return composition.order[min(algorithms[1:], key=order.index)]


def _union(parts: list[exp.Select]) -> exp.Query:
    query: exp.Query = parts[0]
    for part in parts[1:]:
        query = exp.union(query, part, distinct=False)
    return query
