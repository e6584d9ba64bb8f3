"""What every differentially private release has in common: what it promises and states, and how it is written."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from math import exp as e_to
from typing import TYPE_CHECKING, Any, ClassVar

from privsql import dpnoise
from privsql.answers import base
from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import all_rows, temp
from privsql.errors import UsageError
from privsql.exact import text
from privsql.mechanisms import alternatives
from privsql.model import checks
from privsql.model.checks import Check, Promised
from privsql.model.told import Words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from fractions import Fraction

    import pyarrow as pa
    from sqlglot import exp

    from privsql.answers.asked import Statement
    from privsql.answers.sources import Lookups
    from privsql.dpnoise import CountNoise
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest
    from privsql.model.parameters import Parameters

RECORD = "Privacy is for one record, added or removed."
MEMBERSHIP = "membership"  # the adversary that the promise is about
DAMAGED = "the release is damaged (privsql verify tells more)"
NOT_PLANNED = alternatives.none(
    "what its algorithms tell depends on the noise that is drawn, not on a plan; compare with privsql compare"
)
NOISE = (
    "Records were counted, and random noise was added to every count. What was published is made of these noisy counts "
    "alone: no record of the source is in it."
)
BOUND = (
    "Whatever somebody knows of all other records, one record more or less changes the probability of everything that "
    "is published by a factor of at most e^epsilon, with epsilon = {epsilon}, which is {factor:.3g}. Who thought it as "
    "likely as not that the record is in the table believes so with at most {most:.1%} afterwards."
)
NOT = (
    "For a person with several records: that many times epsilon, unless one record of each person was taken.",
    "Against what follows of a person from what is true of people in general: statistics are what is published.",
    "For several releases of the same records their epsilons add up.",
    "The names of columns, and of values where these were taken from the records, are not protected by the noise.",
)
KNOWS = "every record but one, and asks whether that one is in the table; the belief if all noise points the same way"


def made_with(noise: CountNoise) -> dict[str, Any]:
    """The facts on where the noise is from."""
    return {"noise": noise.origin, "opendp": dpnoise.made_with()}


def promise(asked: Any) -> str:
    """Differential privacy, for one record added or removed."""
    return f"epsilon = {text(asked.epsilon)}"


def words(asked: Any) -> Words:
    """Differential privacy, in sentences."""
    factor = e_to(float(asked.epsilon))
    most = factor / (1 + factor)
    return Words((NOISE, BOUND.format(epsilon=text(asked.epsilon), factor=factor, most=most)), NOT)


def figure(facts: dict[str, Any]) -> tuple[str, str]:
    """Where the noise is from, as a person wants to see it."""
    return "noise", f"OpenDP {facts['opendp']}" if facts["noise"] == "opendp" else "seeded: NOT private, for tests only"


def bounds(epsilon: Fraction) -> list[Promised]:
    """The budget, all of which is spent."""
    return [Promised("one record, added or removed: epsilon", text(epsilon), text(epsilon), belief=False)]


def write(db: Relations, name: str, data: pa.Table, query: exp.Query | None = None, *, title: str = "") -> None:
    """Make a table of the release, of ``data`` as it lies or by a query over relation ``given``."""
    db.put("given", data)
    db.make(name, query or all_rows(temp("given")), into="release", title=title)
    db.drop("given")


def known_opendp(manifest: Manifest) -> Check:
    """The check that a release was made with no newer OpenDP than this version of privsql knows."""
    return Check("made with a known version of OpenDP", partial(_unknown_opendp, manifest))


def _unknown_opendp(manifest: Manifest) -> list[str]:
    stated, here = (str(v).split(".") for v in (manifest.facts["opendp"], dpnoise.NEWEST))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    return [] if known and [*map(int, stated[:2])] <= [*map(int, here[:2])] else [f"OpenDP {manifest.facts['opendp']}"]


def wrong_facts(manifest: Manifest, own: Mapping[str, Any]) -> list[str]:
    """Facts that are not what the tables tell (``own``), or name another origin of the noise than the manifest."""
    found = {**own, "noise": "seed" if manifest.randomness == "seed" else "opendp"}
    pairs = ((name, manifest.facts[name], value) for name, value in found.items())
    return [f"{name}: stated {stated}, found {value}" for name, stated, value in pairs if stated != value]


def as_asked(stated: Parameters, asked: Parameters) -> list[str]:
    """Parameters that are not those of the specification; that it may be empty is said when it is published."""
    return checks.as_asked(stated, asked.model_copy(update={"allow_empty": getattr(stated, "allow_empty", False)}))


@contextmanager
def whole() -> Iterator[None]:
    """``UsageError`` for tables that can't be those of such a release."""
    try:
        yield
    except checks.BROKEN as error:
        raise UsageError(f"{DAMAGED}: {error}") from error


class Answers(base.Answers):
    """An open private release: no bound of its answers is certain, and there are no buckets and no perturbation."""

    certain = frozenset()
    measures = frozenset()
    formulas: ClassVar[Mapping[str, str]]
    """By estimator, in words."""

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest)
        self._database = database

    def read(self, sql: str, lookups: Lookups) -> Statement:
        """Take the analyst's SQL apart; ``UsageError`` for all but numbers of records."""
        found = super().read(sql, lookups)
        for one in found.asked:
            if one.measure.kind != "count":
                raise UsageError(f"{one.written}: the release tells numbers of records alone; ask for COUNT(*)")
        return found

    @property
    def channel(self) -> None:
        """There is none."""


def membership(epsilon: Fraction, beliefs: Sequence[float], unit: str) -> Finding:
    """What the adversary ``MEMBERSHIP`` comes to believe, beside e^epsilon/(1 + e^epsilon), which is promised.

    ``beliefs``: that the record is in the table, given even odds before, about every ``unit``.
    """
    if not beliefs:
        return Finding(MEMBERSHIP, KNOWS, promised=True, attacked=0, unit=unit)
    most = 1 / (1 + e_to(-float(epsilon)))
    return Finding(
        MEMBERSHIP,
        KNOWS,
        promised=True,
        attacked=len(beliefs),
        unit=unit,
        mean=sum(beliefs) / len(beliefs),
        highest=max(beliefs),
        above=sum(one > most * (1 + 1e-12) for one in beliefs) / len(beliefs),
        baseline=0.5,
        notes=(f"epsilon {float(epsilon):g} promises at most {most:.1%}",),
    )
