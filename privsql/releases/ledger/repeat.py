"""Prove that a release comes from its source: publish the source again with the same key, and compare the tables.

The key, and what was known of earlier releases when the release was made, come from its entry in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import DIALECT, alias_as, column, table
from privsql.mechanisms.base import BudgetComposition, GroupComposition
from privsql.model.checks import ALLOWANCES, Check
from privsql.releases.contents import digest_release
from privsql.releases.draft import digest_table, digest_tables
from privsql.releases.ledger.book import LedgerEntry, LedgerRequest, get_secret, key_of, open_for_reading
from privsql.releases.ledger.composition import derive_release_key, find_ledger, read_key, restore_history
from privsql.releases.ledger.evidence import RecordSketch
from privsql.releases.opened import RELEASE
from privsql.releases.statements import has_same_choice
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from privsql.engine.database import EngineSession
    from privsql.keyed_random import Key
    from privsql.model.records import Records
    from privsql.releases.contents import AttachedRelease
    from privsql.source.spec import Spec
    from privsql.source.targets import Target

AGAIN = "published again from the source and its key, the release has the same tables"
SAME_RECORDS = "the source's records are those of the release in the ledger"


@dataclass(frozen=True)
class LedgerRecord:
    """What the publisher's ledger knows about a release.

    Attributes:
        path: The ledger.
        entries: The entries, newest first, including withdrawn ones.
        same_file: Whether the entries are about this very file. Otherwise the ledger does not know the file, and the
            entries are those of releases with the same name, columns and mechanism.
    """

    path: Path
    entries: tuple[LedgerEntry, ...]
    same_file: bool


@dataclass(frozen=True)
class Proof:
    """A check that publishes a release again and compares the tables, or the reason why this is impossible.

    Attributes:
        check: The check to run; None if there is nothing to check. If the release can't be made again but the ledger
            knows its records, the check only compares them with those of the source.
        unproved: Why the release can't be made again; empty if it can. It is also empty for a differentially private
            release, whose noise nobody can draw again; then ``check`` is None.
    """

    check: Check | None
    unproved: str = ""

    @property
    def proves(self) -> bool:
        """Return whether ``check``, if it holds, proves that the release comes from its source."""
        return self.check is not None and not self.unproved


def find_record(spec: Spec, target: Target, database: Path | None = None) -> LedgerRecord | None:
    """Return what a ledger knows of a release; None if there is no ledger, or it has no entry for the release.

    The result is also None if the release spends a privacy budget, because its noise can't be drawn again.

    Args:
        spec: The specification of the source.
        target: The release.
        database: The file of the ledger; None for the ledger of the specification.
    """
    if isinstance(spec.implementation.composition, BudgetComposition):
        return None
    with open_scratch() as db:
        path = database or find_ledger(db, spec)
        if path is None or not path.exists():
            return None
        digest, stated = digest_release(target), LedgerRequest.from_spec(spec)
        with open_for_reading(db, path) as book:
            newest = book.entries[::-1]
            same = tuple(one for one in newest if one.digest == digest)
            if same:
                return LedgerRecord(path, same, same_file=True)
            wanted = stated.name, stated.mechanism, stated.determining_parts
            alike = tuple(one for one in newest if (one.name, one.mechanism, one.determining_parts) == wanted)
            return LedgerRecord(path, alike, same_file=False) if alike else None


def prove_release(
    release: AttachedRelease, source: Records, spec: Spec, record: LedgerRecord | None, key_path: Path | None
) -> Proof:
    """Return the check that publishing the source's records again, with the release's key, gives the same tables.

    The check overwrites the release in its session, so it must run last.

    Args:
        release: The release, in database ``release``.
        source: The records of its source.
        spec: The specification of the source.
        record: What the ledger knows of the release; None if it knows nothing.
        key_path: A file that may hold the key of the release; None if there is none.
    """
    manifest = release.manifest
    if isinstance(release.mechanism.composition, BudgetComposition):
        return Proof(None)
    if not has_same_choice(manifest, source):
        return Proof(None, "the key that chose records is missing")
    entry, secret = None, None
    if record is not None:
        secret = get_secret(record.path) if key_of(record.path).exists() else None
        entry = _find_entry(release, record)
        if entry is None and secret is not None:
            differing = _list_differing(source, record, secret)
            if differing:
                return Proof(Check(AGAIN, lambda: differing))
    keys = [] if key_path is None else [read_key(key_path)]
    given = keys[0] if keys else None
    if entry is not None:
        keys += [] if secret is None else [derive_release_key(secret, entry.rows, entry)]
        key = next((one for one in keys if one.reference == entry.key), None)
    else:
        key = given
    why = ""
    if key is None:
        what = "its ledger has no entry of it" if entry is None else "its key is not in the ledger"
        why = f"{what}, and no key file was given" if given is None else f"{what}, and the key file holds another key"
    elif manifest.privsql != __version__:
        why = f"version {manifest.privsql} made it"
    elif entry is not None and not _names_same(spec, entry):
        why = "its specification names its ids and its population otherwise than the ledger"
    if key is None or why:
        if entry is not None and secret is not None:  # the file is known, and so are the records that it came from
            return Proof(Check(SAME_RECORDS, lambda: _compare_records(source, entry, secret)), why)
        return Proof(None, why)
    path = None if record is None else record.path

    def compare_again() -> list[str]:
        return _publish_again(release, source, spec, key, is_given=key == given, entry=entry, path=path)

    if entry is not None:
        return Proof(Check(AGAIN, compare_again))
    differing = compare_again()
    if differing:  # an earlier release, or another ledger, may have been part of it
        return Proof(None, "the ledger has no entry of it, and the key in the key file gives other tables")
    return Proof(Check(AGAIN, list))


def _find_entry(release: AttachedRelease, record: LedgerRecord) -> LedgerEntry | None:
    """Return the ledger's entry of a release; None if it has none.

    If the ledger does not know the file of the release, it is an entry of a release with the same tables.
    """
    if record.same_file:
        return record.entries[0]
    content = digest_tables(release.db, release.tables, RELEASE)
    return next((one for one in record.entries if one.content == content), None)


def _names_same(spec: Spec, entry: LedgerEntry) -> bool:
    """Return whether the specification identifies records as the ledger's entry does.

    Both must name the same column of ids. If a guarantee covers several releases of the mechanism, both must also name
    the same population.
    """
    stated = LedgerRequest.from_spec(spec)
    chains = isinstance(spec.implementation.composition, GroupComposition)
    return stated.subject == entry.subject and (not chains or entry.is_of(stated.population))


def _list_differing(source: Records, record: LedgerRecord, secret: Key) -> list[str]:
    """Return a line for each entry of the ledger which shows that the release was not made from this source.

    Such an entry records another release of exactly these records by the same request. Its key follows from the
    ledger's secret, so publishing the source again gives its tables. The release at hand has other tables.

    Args:
        source: The records of the release's source.
        record: What the ledger knows of the release.
        secret: The secret of the ledger.
    """
    own = [one for one in record.entries if derive_release_key(secret, one.rows, one).reference == one.key]
    rows = RecordSketch.collect(source.hash_records(secret)).summary if own else None
    return [
        f"{one.label} in ledger {record.path} is of the same records by the same request, and has other tables"
        for one in own
        if one.rows == rows
    ]


def _compare_records(source: Records, entry: LedgerEntry, secret: Key) -> list[str]:
    rows = RecordSketch.collect(source.hash_records(secret)).summary
    return [] if rows == entry.rows else [f"{entry.label} in the ledger is of other records"]


def _publish_again(
    release: AttachedRelease,
    source: Records,
    spec: Spec,
    key: Key,
    *,
    is_given: bool,
    entry: LedgerEntry | None,
    path: Path | None,
) -> list[str]:
    """Publish the records again into database ``release`` of the session, in place of the release, and compare both.

    Args:
        release: The release, in database ``release``.
        source: The records.
        spec: The specification.
        key: The key of all random choices.
        is_given: Whether the key comes from the publisher's key file.
        entry: The ledger's entry of the release; None if there is none.
        path: The ledger; None if there is none.

    Returns:
        A line for each table that differs from the release's.
    """
    db, before = cast("EngineSession", release.db), _digest_exactly(release)  # one that its source lies in, too
    db.detach(RELEASE)
    db.create_database(RELEASE)
    if entry is not None and path is not None:
        restore_history(db, source, spec, path, entry)
    bound = source.bind_key(key) if is_given or source.order != "stream" else key
    # A permission changes no table, and may have been an option.
    allowed = {name: True for name in ALLOWANCES if release.manifest.parameters.get(name)}
    spec.implementation.publish(db, source, spec.mechanism.model_copy(update=allowed), bound)
    after = _digest_exactly(release)
    return [f"table {name} is another one" for name in before if before[name] != after[name]]


def _digest_exactly(release: AttachedRelease) -> dict[str, str]:
    """Return the digest of each table, by which two releases are compared.

    Columns of doubles that privsql adds are left out, because another machine may round their last bits differently.
    """
    digests = {}
    for name, columns in release.tables.items():
        doubles = {called for _, called, kind in release.reserved_columns[name] if kind == "DOUBLE"}
        exact: Sequence[exp.Expr] = [
            alias_as(exp.cast(column(one), kind, dialect=DIALECT), one) for one, kind in columns if one not in doubles
        ]
        rows = exp.select(*exact).from_(table(name, RELEASE))
        digests[name] = digest_table(release.db, rows.subquery("exact"))
    return digests
