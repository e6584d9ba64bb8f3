"""``report``: one page on a release: what it promises, who could learn what, how good its answers are, how to ask."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from privsql.answers.base import OURS, THEIRS
from privsql.answers.workload import Workload
from privsql.calls import as_path
from privsql.engine.progress import Silent, running
from privsql.mechanisms.contract import Table
from privsql.mechanisms.registry import of
from privsql.pages import report as page
from privsql.pages.facts import Compared, Learnt, Report
from privsql.releases.identity import digest
from privsql.releases.lines import lines
from privsql.releases.opened import Release, explained
from privsql.releases.stored import stored
from privsql.verbs.attack import attack
from privsql.verbs.evaluate import evaluate
from privsql.verbs.reporting.foreseen import foreseen
from privsql.verbs.reporting.ways import ways
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from privsql.answers.scores import Score
    from privsql.calls import PathLike
    from privsql.engine.progress import Options, Running
    from privsql.model.manifest import Manifest
    from privsql.source.given import Given
    from privsql.verbs.verify import Verified

__all__ = ["Report", "report"]
QUERIES, RANGES, OF_EACH = 120, 80, 40  # that the source is asked, too: with four answers each, one, by class
PAIRS = 40  # answers that are shown singly


def report(
    release: PathLike,
    source: Given | None = None,
    *,
    to: PathLike | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[Running],
) -> Report:
    """All that can be said of a release to whoever gets it, and with ``to`` a page of HTML that says it.

    Without ``source`` it follows from the release alone, is the same whoever makes it, and may be handed out with it.
    With the source (``source`` and ``key_file`` as of ``verify``) it is internal: it shows true counts. Checks that do
    not hold are part of what it returns, and nothing else is said of such a release. Raises ``UsageError`` for a page
    that does not end in .html and for a source of other columns, ``EngineError`` for files that can't be read or
    written, and where what makes pages
    pages is not installed.
    """
    path, target = as_path(release, "release"), as_path(to, "to") if to is not None else None
    if target is not None:
        page.ready(target)
    with running(how, report) as options:
        verified = verify(path, source, key_file=key_file, options=options)
        learnt = _learnt(path, source, key_file, verified, options) if verified.ok else None
        checks, notes = tuple(verified.checks), tuple(verified.notes)
        found = Report(verified.manifest, checks, notes, _digests(path), source is not None, learnt)
        if target is not None:
            (options.report or Silent()).step("Drawing the page")
            page.write(found, target)
    return found


def _learnt(path: Path, source: Given | None, own: PathLike | None, verified: Verified, options: Options) -> Learnt:
    """What is known of a release whose checks hold."""
    manifest, reported = verified.manifest, options.report or Silent()
    mechanism = of(manifest.mechanism)
    asked = mechanism.read(manifest)
    with Release(path) as opened, explained(path):
        parts = tuple(opened.structure())
        expected = foreseen(opened, reported)
        how_to_ask, certain = ways(opened, stored(path)), THEIRS in opened.answers.certain
    reported.step("Attacking the release")
    attacked = attack(path, source, key_file=own, options=options)
    return Learnt(
        mechanism.promise(asked),
        mechanism.words(asked),
        tuple(verified.told.bounds) if verified.told is not None else (),
        parts,
        tuple(attacked.findings),
        attacked.verdict,
        mechanism.advice,
        tuple(lines(manifest)),
        expected,
        certain,
        how_to_ask,
        _compared(path, source, own, manifest, options) if source is not None else None,
    )


def _compared(path: Path, source: Given, own: PathLike | None, manifest: Manifest, options: Options) -> Compared:
    """The release's answers beside those of its source; numbers are asked for in ranges."""
    shape = of(manifest.mechanism).shape
    numeric = isinstance(shape, Table) and shape.numeric
    number = RANGES if numeric else QUERIES if isinstance(shape, Table) else OF_EACH
    asked = Workload("ranges" if numeric else "equality", number, ways=1)
    found = evaluate(path, source, asked, key_file=own, options=options)
    summaries = {name: score.summary() for name, score in found.scores.items()}
    return Compared(summaries, _pairs(found.scores[OURS]), found.confidence)


def _pairs(score: Score) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """Some answers singly, of every size: true ones in order, every k-th."""
    rows = [(true, of["estimate"] or 0.0, of["low"], of["high"]) for _, true, of in score.points()]
    rows.sort(key=lambda row: row[:2])
    step = max(1, -(-len(rows) // PAIRS))
    return tuple(rows[step // 2 :: step])


def _digests(path: Path) -> dict[str, str]:
    """SHA-256 of the release's file, of the files of its folder by name, or of the tables of its schema."""
    found = stored(path)
    if found.schema is not None:
        return {"the tables of the schema": digest(path)}
    files = {file.relative_to(found.place).as_posix(): file for file in found.readable}
    digests = {}
    for name, file in (files or {"the file": found.place}).items():
        with file.open("rb") as read:
            digests[name] = hashlib.file_digest(read, "sha256").hexdigest()
    return digests
