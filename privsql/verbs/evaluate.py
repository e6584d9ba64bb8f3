"""``evaluate``: the answers of a release beside those of its source."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.answers.channel import quality
from privsql.answers.scores import Score, Truth, score
from privsql.answers.workload import equality, from_file, random, ranges
from privsql.engine.progress import Options, Silent
from privsql.errors import UsageError
from privsql.mechanisms.setvalued.measure import SHARES, by_class, classes, tops
from privsql.noise import seed_key
from privsql.releases.opened import Release
from privsql.source.sets import PreparedSets
from privsql.verbs.room import mounted, same_roles, workshop_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.answers.answer import Answer
    from privsql.answers.workload import Question
    from privsql.engine.database import Workshop
    from privsql.source.spec import Spec
    from privsql.source.table import Prepared


@dataclass(frozen=True)
class Evaluated:
    """Scores by estimator, and what the release's channel can tell."""

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)  # by estimator: what item sets have besides

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {name: found.summary() | self.extras.get(name, {}) for name, found in self.scores.items()}
        return {**shown, "channel": self.channel, "confidence": self.confidence}


@dataclass(frozen=True)
class Workload:
    """What to evaluate with: ``equality``, ``random`` or ``ranges`` predicates, or the queries of ``file``."""

    kind: str = "equality"
    queries: int = 1200
    attributes: int = 3
    selectivity: float = 0.05
    seed: int = 1
    file: Path | None = None


def evaluate(
    path: Path,
    spec: Spec,
    workload: Workload | None = None,
    *,
    confidence: float = 0.95,
    options: Options | None = None,
) -> Evaluated:
    """Compare a release's answers with those of its source."""
    asked, options = workload or Workload(), options or Options()
    report = options.report or Silent()
    with (
        tempfile.TemporaryDirectory(prefix="privsql-") as folder,
        workshop_in(Path(folder), replace(options, report=None)) as db,
        Release(path) as release,
    ):
        source = mounted(db, spec)
        same_roles(release.manifest, source)
        source.sort()
        source.named(release.manifest.name)
        if isinstance(source, PreparedSets) and asked.file is None:
            return _evaluated_sets(release, source, asked, confidence)
        questions, number = _questions(db, source, release.manifest.name, asked)

        def truth(sql: str) -> Truth:
            return {tuple(row[:-1]): float(row[-1] or 0) for row in db.ask(sql)}

        def answer(sql: str, estimator: str) -> Answer:
            return release.query(sql, confidence=confidence, estimator=estimator)

        scores = score(questions, number, answer, truth, report)
        channel = quality(release.channel) if source.roles.quasi_identifiers else {}
        return Evaluated(scores, channel, confidence)


def _evaluated_sets(release: Release, source: PreparedSets, asked: Workload, confidence: float) -> Evaluated:
    """Counting queries over random items by length, and the most frequent item sets."""
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r}: a release of item sets takes a file, or queries by length")
    sets, true = release.item_sets, source.holdings()
    if sets.labels != source.labels:
        raise UsageError("the specification's universe is not that of the release")
    draw = seed_key(asked.seed).stream("workload", "items")
    scores: dict[str, Score] = {}
    extras: dict[str, dict[str, Any]] = {}
    queries = classes(true.longest, max(1, asked.queries // len(SHARES)), true.items, draw)
    truth = {share: [float(true.weights[true.holding(q)].sum()) for q in questions] for share, questions in queries}
    for name, holdings in (("baseline", sets.counted), ("reconstructed", sets.holdings)):
        scores[name], found = Score(), []
        for share, questions in queries:
            answers = [sets.containing(question, name, confidence) for question in questions]
            for one, value in zip(answers, truth[share], strict=True):
                scores[name].add(value, (one.estimate or 0.0, one.low or 0.0, one.high or 0.0))
            found.append(by_class(share, truth[share], answers, source.records))
        extras[name] = {"classes": found, "top": tops(true, holdings)}
    return Evaluated(scores, {}, confidence, extras)


def _questions(
    db: Workshop, source: Prepared | PreparedSets, name: str, asked: Workload
) -> tuple[Iterable[Question], int]:
    noise = seed_key(asked.seed).stream("workload", asked.kind)
    if asked.file is not None:
        questions = from_file(asked.file)
        return questions, len(questions)
    if not source.roles.quasi_identifiers and asked.kind != "random":
        raise UsageError(f"workload {asked.kind!r} needs quasi-identifiers; take --workload random, or a file")
    if asked.kind == "random":
        shape = (asked.queries, asked.attributes, asked.selectivity)
        return random(db, source.roles, name, shape, noise), asked.queries
    if asked.kind == "ranges":
        if len(source.roles.sensitive) != 1:
            raise UsageError("workload 'ranges' needs one sensitive column")
        return ranges(db, source.roles, name, asked.queries, noise), asked.queries
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r} is neither 'equality', 'random', 'ranges' nor a file")
    conditions = max(1, asked.queries // 4)
    return equality(db, source.roles, name, conditions, noise), conditions
