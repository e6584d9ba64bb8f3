"""What a comparison has finished, kept in a folder: one that was stopped goes on from there.

A file for each specification, named by a digest of all that its figures follow from: the specification, the workload,
the seed, the version and the files of the source. It holds true answers, so only its owner may read it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from privsql._version import __version__
from privsql.answers.accuracy import Evaluated
from privsql.answers.scores import Put, Score
from privsql.engine import files
from privsql.engine.folders import private
from privsql.errors import EngineError, UsageError
from privsql.verbs.published import Published

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.answers.workload import Workload
    from privsql.source.places import Source
    from privsql.source.spec import Spec


@dataclass(frozen=True)
class Outcome:
    """A release's facts, its scores and the seconds that these took."""

    published: Published
    evaluated: Evaluated
    seconds: float


@dataclass(frozen=True)
class Finished:
    """``folder``: None keeps nothing; ``asked``: what was asked of each release."""

    folder: Path | None
    asked: str

    @classmethod
    def at(cls, folder: Path | None, workload: Workload, confidence: float, seed: int | None) -> Finished:
        """The folder is made if it is not there; ``UsageError`` without a seed, by which alone figures come again."""
        if folder is None:
            return cls(None, "")
        if seed is None:
            raise UsageError("--resume needs a seed: releases by fresh keys are others every time")
        try:
            with private:
                folder.mkdir(parents=True, exist_ok=True)
            text = workload.file.read_bytes() if workload.file is not None else b""
        except OSError as error:
            raise EngineError(f"{error.filename}: {error.strerror}") from error
        told = {**asdict(workload), "file": hashlib.sha256(text).hexdigest()}
        if told["estimators"] is None:
            del told["estimators"]  # as folders of earlier versions have it
        return cls(folder, json.dumps([__version__, told, confidence, seed], sort_keys=True, default=str))

    def file(self, spec: Spec) -> Path | None:
        """Where its figures lie, if any are kept."""
        if self.folder is None:
            return None
        parts = spec.model_dump_json(exclude={"ledger": True, "release": True})
        known = json.dumps([self.asked, parts, _stamps(spec.source)])
        return self.folder / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"

    def found(self, spec: Spec) -> Outcome | None:
        """What is kept of a specification; ``EngineError`` for a file that can't be read."""
        file = self.file(spec)
        if file is None or not file.exists():
            return None
        try:
            return _outcome(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise EngineError(f"{file}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{file}: nothing that compare has written; remove it") from error

    def keep(self, spec: Spec, found: Outcome) -> None:
        """Write it; a comparison that is stopped leaves all of a file or nothing."""
        file = self.file(spec)
        if file is None:
            return
        part = file.with_suffix(".part")
        try:
            with private:
                part.write_text(json.dumps(_plain(found)), encoding="utf-8")
            part.replace(file)
        except OSError as error:
            raise EngineError(f"{file}: {error.strerror}") from error


def _stamps(source: Source) -> list[tuple[str, int, int]]:
    """Path, size and time of the files of a source; ``UsageError`` for one whose changes can't be seen."""
    if source.database is not None:
        there = [source.database]
    elif source.file is not None:
        names = (source.file,) if isinstance(source.file, str) else source.file
        there = [] if any(files.scheme(name) for name in names) else files.found(names)
    else:
        there = []
    if not there:
        raise UsageError("--resume needs a source of files on this machine: of others it is not seen when they change")
    try:
        return [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in there]
    except OSError as error:
        raise EngineError(f"{error.filename}: {error.strerror}") from error


def _plain(found: Outcome) -> dict[str, Any]:
    """As JSON has it; groups of questions are texts."""
    published, evaluated = found.published, found.evaluated
    return {
        "published": {key: getattr(published, key) for key in ("facts", "ledger", "seconds", "warnings")},
        "scores": {name: asdict(score) | {"put": _puts(score)} for name, score in evaluated.scores.items()},
        "evaluated": {key: getattr(evaluated, key) for key in ("channel", "confidence", "extras")},
        "seconds": found.seconds,
    }


def _puts(score: Score) -> list[list[Any]]:
    return [[put.question, put.texts, put.of] for put in score.put]


def _outcome(kept: dict[str, Any]) -> Outcome:
    scores = {
        name: Score(**{**score, "put": [Put(question, tuple(group), of) for question, group, of in score["put"]]})
        for name, score in kept["scores"].items()
    }
    published = Published(None, **kept["published"])
    return Outcome(published, Evaluated(scores, **kept["evaluated"]), float(kept["seconds"]))
