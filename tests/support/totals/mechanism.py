"""The mechanisms of totals: exact ones that are large enough, and noisy ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.accuracy import by_questions
from privsql.dp_random import PURE, opendp_version, table_noise_for
from privsql.engine.sqlfiles import all_rows, table
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.base import NO_CURVE, WEIGHTED, CategoricalShape, Mechanism, NoComposition, Proposal
from privsql.mechanisms.dp.mechanism import PrivateMechanism
from privsql.model.checks import VerifiedBound
from privsql.model.explanations import ReleasePromises, make_structure
from privsql.model.parameters import Facts
from support.totals import attacks, checks
from support.totals.answers import NoisyTotalsAnswers, TotalsAnswers
from support.totals.parameters import NoisyTotalsFacts, Totals, TotalsFacts
from support.totals.publish import write_totals
from support.totals.tables import TABLES, weigh_totals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import AttackView, Finding, ReleaseView
    from privsql.attacks.suite import Adversary
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import ProfiledSource, Views
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.model.universes import Universe

    Release = CheckedRelease[Totals, TotalsFacts]
    NoisyRelease = CheckedRelease[Totals, NoisyTotalsFacts]


class TotalsShape(CategoricalShape[Totals]):
    """Columns with the domains that the parameters state."""

    def domains(self, params: Totals) -> Mapping[str, Universe]:
        return params.domains


SHAPE = TotalsShape()


def propose(source: ProfiledSource) -> Proposal:
    return Proposal({"kind": "totals", "domains": {one.name: "data" for one in source.columns}})


def describe_totals(db: Relations) -> list[Structure]:
    rows = [(" and ".join(map(str, values)), records) for *values, records in db.rows(all_rows(table("totals")))]
    return [make_structure("Totals", f"There are {len(rows)} totals.", ("value", "records"), rows, 1)]


class ExactTotals(Mechanism[Totals, TotalsFacts]):
    """Totals that are stated as they are; none may be small."""

    kind = "totals"
    algorithms = ("exact",)
    parameters = Totals
    facts = TotalsFacts
    shape = SHAPE
    composition = NoComposition()
    sql = ("core/",)
    layout = TABLES
    advice = ("a larger least",)

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        return propose(source)

    def plan(self, db: Relations, source: Records, params: Totals) -> TotalsFacts:
        smallest = min(source.counts)
        if smallest < params.least:
            raise InfeasibleError(f"a total has {smallest} records; lower mechanism.least to {smallest}")
        return TotalsFacts(totals=len(source.counts), smallest=smallest)

    def compare_algorithms(self, db: Relations, source: Records, params: Totals) -> Any:
        raise UsageError("algorithms: exact and noisy totals have no figure in common")

    def predict_curve(self, db: Relations, source: Records, params: Totals) -> Any:
        raise UsageError(NO_CURVE)

    def publish(self, db: Relations, source: Records, params: Totals, key: Key) -> TotalsFacts:
        facts = self.plan(db, source, params)
        write_totals(db, source, source.counts)
        return facts

    def require_columns(self, manifest: Manifest, params: Totals) -> None:
        checks.require_columns(manifest)

    def views(self, manifest: Manifest) -> Views:
        return {WEIGHTED: weigh_totals(manifest)}

    def checks(self, release: Release) -> list[Check]:
        return checks.check_totals(release)

    def long_checks(self, release: Release) -> list[Check]:
        return []

    def source_checks(self, release: Release, source: Records, params: Totals) -> list[Check]:
        return checks.compare_totals(release)

    def measured(self, release: Release) -> Facts:
        return Facts()

    def bounds(self, release: Release) -> list[VerifiedBound]:
        least, smallest = release.params.least, release.facts.smallest
        return [VerifiedBound("records of a total", f">= {least}", str(smallest), belief=False)]

    def answers(self, db: Relations, manifest: Manifest) -> TotalsAnswers:
        return TotalsAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        return by_questions(context)

    def attack_view(self) -> None:
        """Return None: no adversary learns from quasi-identifiers."""

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        return attacks.EXACT

    def joint_attacks(self) -> tuple[()]:
        return ()

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        return None

    def promise(self, params: Totals) -> str:
        return f"totals of {params.least} records or more"

    def words(self, params: Totals) -> ReleasePromises:
        return ReleasePromises(("Records were counted.", f"No total is below {params.least}."), ("Totals are exact.",))

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        return describe_totals(db)


class NoisyTotals(PrivateMechanism[Totals, NoisyTotalsFacts]):
    """Totals with Laplace noise of scale 1/epsilon."""

    kind = "totals"
    algorithms = ("noisy",)
    parameters = Totals
    facts = NoisyTotalsFacts
    shape = SHAPE
    sql = ("core/",)
    layout = TABLES
    advice = ("a smaller epsilon",)

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        return propose(source)

    def plan(self, db: Relations, source: Records, params: Totals) -> Facts:
        return Facts()

    def publish(self, db: Relations, source: Records, params: Totals, key: Key) -> NoisyTotalsFacts:
        noise = table_noise_for(key, PURE)
        write_totals(db, source, noise.add_noise(np.array(source.counts), params.epsilon).tolist())
        return NoisyTotalsFacts(totals=len(source.counts), noise=noise.origin, opendp=opendp_version())

    def require_columns(self, manifest: Manifest, params: Totals) -> None:
        checks.require_columns(manifest)

    def views(self, manifest: Manifest) -> Views:
        return {WEIGHTED: weigh_totals(manifest)}

    def checks(self, release: NoisyRelease) -> list[Check]:
        return checks.check_noisy_totals(release)

    def long_checks(self, release: NoisyRelease) -> list[Check]:
        return []

    def source_checks(self, release: NoisyRelease, source: Records, params: Totals) -> list[Check]:
        return []

    def answers(self, db: Relations, manifest: Manifest) -> NoisyTotalsAnswers:
        return NoisyTotalsAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        return by_questions(context)

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        return attacks.NOISY

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        return describe_totals(db)
