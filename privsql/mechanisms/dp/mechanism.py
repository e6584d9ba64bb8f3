"""The parts that all differentially private mechanisms share: what they promise and state, and how it is written."""

from __future__ import annotations

from contextlib import contextmanager
from fractions import Fraction
from math import exp as e_to
from typing import TYPE_CHECKING, Any, ClassVar

from privsql import dp_random
from privsql.answers import answer
from privsql.attacks.scene import Finding
from privsql.dp_random import CONCENTRATED, PURE, NoiseLaw, concentrated_rho
from privsql.engine.sqlfiles import all_rows, column, table, temp_table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.base import NO_CURVE, BudgetComposition, Composition, F, Mechanism, P
from privsql.model.checks import BROKEN, CheckedRelease, VerifiedBound
from privsql.model.explanations import ReleasePromises
from privsql.model.parameters import Facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from sqlglot import exp

    from privsql.answers.sql.question import Lookups, Statement
    from privsql.attacks.scene import ReleaseView
    from privsql.attacks.suite import JointAttack, LearningRisk
    from privsql.engine.database import Relations
    from privsql.mechanisms.base import Alternatives, Curve
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    Ints = NDArray[np.integer[Any]]

# Private --------------------------------------------------------------------------------------------------------------
# What every differentially private release has in common: what it promises and states, and how it is written.

RECORD = "Privacy is for one record, added or removed."
MEMBERSHIP = "membership"  # the adversary that the promise is about
DAMAGED = "the release is damaged (run privsql verify for details)"
NOT_PLANNED = (
    "algorithms: what its algorithms tell depends on the noise that is drawn, not on a plan; "
    "compare with privsql evaluate"
)
NOISE = (
    "Records were counted, and random noise was added to every count. The release is made of these noisy counts alone. "
    "It holds no record of the source."
)
BOUND = (
    "One {unit} more or less changes the probability of any release by a factor of at most e^epsilon, whatever an "
    "attacker knows of all other {unit}s. Here epsilon = {epsilon}, and the factor is {factor:.3g}. An attacker who "
    "gives even odds that the {unit} is in the table becomes at most {most:.1%} sure."
)
SHARED = (
    " A secret key chose at most {records} records of each person, whatever they hold. Noise is scaled by {records}: "
    "each of them spends {share}."
)
UNLESS = (
    " That may fail with a probability of {delta:g} at most (delta). The noise is discrete Gaussian: the release is "
    "zero-concentrated differentially private with rho = {rho:.6g}."
)
MANY_RECORDS = "A person with several records has that many times epsilon, unless one record of each was taken."
NOT = (
    "The release shows what is true of records in general, and that says something about each of them.",
    "The epsilons of several releases of the same records add up.",
    "The names of columns, and of values where these were taken from the records, are not protected by the noise.",
)
KNOWS = "every record but one, and asks whether that one is in the table; the belief if all noise points the same way"


def find_law(params: Any) -> NoiseLaw:
    """Return the law of the noise: zero-concentrated where there is a delta."""
    return CONCENTRATED if getattr(params, "delta", 0) else PURE


def person_budget(params: Any) -> Fraction:
    """Return what a person spends, with all records that were taken: epsilon, or the rho that (epsilon, delta) allows.

    Where one record of each person is taken at most, or persons are not known, it is that of a record.
    """
    return concentrated_rho(params.epsilon, params.delta) if find_law(params).concentrated else params.epsilon


def total_budget(params: Any) -> Fraction:
    """Return what all tables and choices together spend on a record: epsilon / k, or rho / k^2, of k a person.

    Neighbours that differ in k records are k steps apart: pure budgets add up, and the root of rho does (group privacy;
    Bun, Steinke, TCC 2016, proposition 27). Noise is so scaled by k.
    """
    records = max_records(params)
    return person_budget(params) / (records**2 if find_law(params).concentrated else records)


def max_records(params: Any) -> int:
    """Return how many records of a person are taken at most."""
    return int(getattr(params, "max_records", 1))


def protected_unit(params: Any) -> str:
    """Return what is protected, in words: a record, or a person with several."""
    records = max_records(params)
    return "record" if records == 1 else f"person, of at most {records} records,"


def format_epsilon(params: Any) -> str:
    """Differential privacy, for one record, or one person with several, added or removed."""
    more = f", delta = {float(params.delta):g}" if find_law(params).concentrated else ""
    persons = f" for persons of at most {max_records(params)} records" if max_records(params) > 1 else ""
    return f"epsilon = {fraction_text(params.epsilon)}{more}{persons}"


def explain_epsilon(params: Any) -> ReleasePromises:
    """Differential privacy, in sentences."""
    factor = e_to(float(params.epsilon))
    most = factor / (1 + factor)
    records = max_records(params)
    unit = "record" if records == 1 else "person"
    bound = BOUND.format(unit=unit, epsilon=fraction_text(params.epsilon), factor=factor, most=most)
    if find_law(params).concentrated:
        bound += UNLESS.format(delta=float(params.delta), rho=float(person_budget(params)))
    if records > 1:
        share = f"1/{records**2} of rho" if find_law(params).concentrated else f"1/{records} of epsilon"
        return ReleasePromises((NOISE, bound + SHARED.format(records=records, share=share)), NOT)
    return ReleasePromises((NOISE, bound), (MANY_RECORDS, *NOT))


def list_epsilon_bound(release: CheckedRelease[Any, Any]) -> list[VerifiedBound]:
    """Return the budget, all of which is spent."""
    params = release.params
    epsilon = fraction_text(params.epsilon)
    unit = f"one {protected_unit(params)}".removesuffix(",")
    result = [VerifiedBound(f"{unit}, added or removed: epsilon", epsilon, epsilon, belief=False)]
    if find_law(params).concentrated:
        delta, rho = fraction_text(params.delta), fraction_text(person_budget(params))
        result += [
            VerifiedBound(f"{unit}, added or removed: {name}", one, one, belief=False)
            for name, one in (("delta", delta), ("rho", rho))
        ]
    return result


def write_release_table(
    db: Relations, name: str, data: pa.Table | pa.RecordBatchReader, query: exp.Query | None = None, *, title: str = ""
) -> None:
    """Make a table of the release, of ``data`` as it lies or by a query over relation ``given``."""
    db.register_arrow("given", data)
    db.create_table(name, query or all_rows(temp_table("given")), into="release", title=title)
    db.drop("given")


OPENDP_CHECK = "made with a known version of OpenDP"


def unknown_opendp(release: CheckedRelease[Any, Any]) -> list[str]:
    """Return the version of OpenDP if it is newer than this version of privsql knows."""
    stated, here = (str(v).split(".") for v in (release.facts.opendp, dp_random.NEWEST))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    newest = known and [*map(int, stated[:2])] <= [*map(int, here[:2])]
    return [] if newest else [f"OpenDP {release.facts.opendp}"]


def wrong_facts(release: CheckedRelease[Any, Any], recomputed: Mapping[str, Any]) -> list[str]:
    """Return facts that differ from ``recomputed`` ones, or name another origin of the noise than the manifest."""
    manifest = release.manifest
    wrong = release.compare_facts({**recomputed, "noise": "seed" if manifest.randomness == "seed" else "opendp"})
    wrong += [] if manifest.algorithm == release.params.algorithm else [f"algorithm {manifest.algorithm}"]
    stated = manifest.persons.taken if manifest.persons is not None else None
    most = max_records(release.params)
    return wrong if stated == most or (stated is None and most == 1) else [*wrong, f"persons: {manifest.persons}"]


class RecordBudget(BudgetComposition[Any]):
    """The budget of a record, or of a person with several: epsilon, or (epsilon, delta) of discrete Gaussian noise."""

    unit = "presence"

    def epsilon(self, params: Any) -> Fraction:
        """Return the epsilon that a release spends."""
        epsilon: Fraction = params.epsilon
        return epsilon

    def delta(self, params: Any) -> Fraction:
        """Return the delta that a release spends; 0 where its noise is pure."""
        return getattr(params, "delta", Fraction(0))

    def rho(self, params: Any) -> Fraction | None:
        """Return the rho that (epsilon, delta) allows; None where the noise is pure."""
        return person_budget(params) if find_law(params).concentrated else None


class PrivateMechanism(Mechanism[P, F]):
    """A differentially private mechanism: what it promises and spends follows from epsilon.

    Its figures depend on noise that is drawn, so plans are not compared. Its checks recompute every fact that it
    states. No belief in a value is bounded, and no record is published beside a value.
    """

    composition: ClassVar[Composition] = RecordBudget()
    scene = None

    def compare_algorithms(self, db: Relations, source: Records, params: P) -> Alternatives:
        """Raise ``UsageError``: a plan does not tell what the noise will be."""
        raise UsageError(NOT_PLANNED)

    def predict_curve(self, db: Relations, source: Records, params: P) -> Curve:
        """Raise ``UsageError``: there is no threshold of beliefs."""
        raise UsageError(NO_CURVE)

    def measured(self, release: CheckedRelease[P, F]) -> Facts:
        """Return no facts: the checks of a private release compare all of them."""
        return Facts()

    def bounds(self, release: CheckedRelease[P, F]) -> list[VerifiedBound]:
        """Return epsilon, with delta and rho where the noise is Gaussian: all of the budget is spent."""
        return list_epsilon_bound(release)

    def joint_attacks(self) -> Sequence[JointAttack]:
        """Return no attack: the epsilons of two releases add up, and their noise is independent."""
        return ()

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None: what is learnt of everybody alike is no secret of a record."""
        return None

    def estimate_risk(self, view: ReleaseView) -> LearningRisk | None:
        """Return None: no belief in a value has a bound that learning could exceed."""
        return None

    def promise(self, params: P) -> str:
        """Return epsilon, and delta, in a few words."""
        return format_epsilon(params)

    def words(self, params: P) -> ReleasePromises:
        """Return what epsilon promises, by the factor and the belief that it allows, and what it does not."""
        return explain_epsilon(params)


@contextmanager
def refuse_damaged() -> Iterator[None]:
    """``UsageError`` for tables that can't be those of such a release."""
    try:
        yield
    except BROKEN as error:
        raise UsageError(f"{DAMAGED}: {error}") from error


class PrivateAnswers(answer.Answers):
    """An open private release: no bound of its answers is certain, and there are no buckets and no perturbation."""

    certain = frozenset()
    measures = frozenset()
    formulas: ClassVar[Mapping[str, str]]
    """By estimator, in words."""

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest)
        self._database = database

    def _read_table(self, name: str, *order: str) -> pa.Table:
        """The rows of a table of the release, in order of some columns."""
        return self._db.arrow(all_rows(table(name, self._database)).order_by(*map(column, order)))

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Take the analyst's SQL apart; ``UsageError`` for all but numbers of records."""
        statement = super().parse_sql(sql, lookups)
        for one in statement.calls:
            if one.measure.kind != "count" and one.measure.column not in self.measured_columns:
                of = f"SUM and AVG are of {', '.join(self.measured_columns)}" if self.measured_columns else ""
                raise UsageError(f"{one.written}: {of or 'the release answers counts only; use COUNT(*)'}")
        return statement

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Return the columns whose sums are published."""
        return ()

    @property
    def channel(self) -> None:
        """Return None: no sensitive value is published record by record."""


def make_membership_finding(params: Mapping[str, Any], exponents: Sequence[float], unit: str) -> Finding:
    """Return what the adversary ``MEMBERSHIP`` comes to believe, beside e^epsilon/(1 + e^epsilon), which is promised.

    ``exponents``: about every ``unit``, the logarithm of how much likelier the release is with the person's records in
    it; odds were even before.
    """
    epsilon, beliefs = Fraction(params["epsilon"]), [1 / (1 + e_to(-one)) for one in exponents]
    if not beliefs:
        return Finding(unit=unit)
    most = 1 / (1 + e_to(-float(epsilon)))
    return Finding(
        attacked=len(beliefs),
        unit=unit,
        mean=sum(beliefs) / len(beliefs),
        highest=max(beliefs),
        above=sum(one > most * (1 + 1e-12) for one in beliefs) / len(beliefs),
        baseline=0.5,
        notes=(f"epsilon {float(epsilon):g} promises at most {most:.1%}",),
    )
