"""The class of bucketization, which ties its modules together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.mechanisms.base import Mechanism, NoComposition, TableShape
from privsql.mechanisms.bucketize import tables
from privsql.mechanisms.bucketize.parameters import BeliefFacts, Bucketize, BucketizeFacts
from privsql.model.explanations import LEARNT, LINKED, SEVERAL, ReleasePromises, Structure, make_structure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.attacks.suite import Adversary, JointAttack
    from privsql.engine.database import IntervalFunctions, Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import Alternatives, Curve, ProfiledSource, Proposal, Views
    from privsql.mechanisms.bucketize.answers import BucketizedAnswers
    from privsql.mechanisms.bucketize.attacks import BucketAttackView
    from privsql.mechanisms.bucketize.parameters import BucketizePlan
    from privsql.model.checks import Check, CheckedRelease, VerifiedBound
    from privsql.model.manifest import Manifest
    from privsql.model.precision import Precision
    from privsql.model.records import Records


class Bucketization(Mechanism[Bucketize, BucketizeFacts]):
    """Bucketization: records lie in buckets, and each bucket lists its sensitive values apart from the records.

    An attacker who finds a record's bucket believes in a value at most as much as the value's threshold says.
    """

    kind = "bucketize"
    algorithms = ("anatomy", "one-size", "two-size", "multi-size", "optimal", "informative", "setting")
    parameters = Bucketize
    facts = BucketizeFacts
    shape = TableShape(numeric=False, most_numbers=500)
    composition = NoComposition()
    layout = tables.TABLES
    advice = (
        "larger buckets, by a lower threshold or a larger min_bucket_size",
        "fake values (fake_values, with a constant threshold)",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    )

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose a threshold for each value at which counts stay useful.

        If there is none, propose a rule that computes thresholds from the values' frequencies f, such as ``2*f +
        0.02``.
        """
        from privsql.mechanisms.bucketize import proposal

        return proposal.propose_parameters(db, source)

    def plan(self, db: Relations, source: Records, params: Bucketize) -> BucketizePlan:
        """Search for bucket sizes, and return the facts and predictions that ``privsql plan`` shows."""
        from privsql.mechanisms.bucketize import preview

        return preview.make_plan_facts(db, source, params)

    def compare_algorithms(self, db: Relations, source: Records, params: Bucketize) -> Alternatives:
        """Compare the predicted releases of all algorithms by loss, beliefs and errors of counts."""
        from privsql.mechanisms.bucketize import preview

        return preview.compare_algorithms(db, source, params)

    def predict_curve(self, db: Relations, source: Records, params: Bucketize) -> Curve:
        """Predict beliefs and errors for multiples of the stated threshold."""
        from privsql.mechanisms.bucketize import preview

        return preview.predict_curve(db, source, params)

    def foresee_precision(self, params: Bucketize, bounds: Sequence[VerifiedBound], columns: int) -> Precision | None:
        """Predict how precise counts of the least precise protected value will be; None if no formula applies."""
        from privsql.mechanisms.bucketize import precision

        return precision.foresee_precision(params, bounds)

    def publish(self, db: Relations, source: Records, params: Bucketize, key: Key) -> BucketizeFacts:
        """Assign records to buckets, write QIT (records by bucket) and ST (values by bucket), and return the facts."""
        from privsql.mechanisms.bucketize import publish

        return publish.publish(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Bucketize) -> None:
        """Accept all columns, because values of any type can lie in buckets."""

    def views(self, manifest: Manifest) -> Views:
        """Return the views over QIT and ST by name: ``weighted``, from which counts are estimated, and ``pairs``.

        In ``pairs``, each record stands beside every value of its bucket, with the value's share of the bucket.
        """
        return tables.make_views(manifest)

    def functions(self, manifest: Manifest) -> IntervalFunctions | None:
        """Return the SQL functions for counts with intervals; None if the view's weights are shares of buckets.

        Counts from such weights are biased, so an interval around them would be wrong.
        """
        return tables.make_functions(manifest)

    def checks(self, release: CheckedRelease[Bucketize, BucketizeFacts]) -> list[Check]:
        """Return the checks of buckets, thresholds, bounds, fake values and facts that need the release alone."""
        from privsql.mechanisms.bucketize import checks

        return checks.make_checks(release)

    def long_checks(self, release: CheckedRelease[Bucketize, BucketizeFacts]) -> list[Check]:
        """Return the check that table ``privsql_channel`` (how often two values share a bucket) agrees with ST."""
        from privsql.mechanisms.bucketize import checks

        return checks.long_checks(release)

    def source_checks(
        self, release: CheckedRelease[Bucketize, BucketizeFacts], source: Records, params: Bucketize
    ) -> list[Check]:
        """Return the checks that thresholds, sensitive values and records are those of the source."""
        from privsql.mechanisms.bucketize import checks

        return checks.source_checks(release, source, params)

    def measured(self, release: CheckedRelease[Bucketize, BucketizeFacts]) -> BeliefFacts:
        """Measure in the published tables how much attackers can believe, and how much analysts can tell groups apart.

        The facts are the highest beliefs, the mean belief and the singular values of the channel (the matrix from true
        to listed values).
        """
        from privsql.mechanisms.bucketize import checks
        from privsql.mechanisms.bucketize.estimator import channel_facts, make_channel

        channel = make_channel(release.read_view("channel"), release.facts).channel
        return BeliefFacts.join_parts(checks.list_sensitive(release).measure_beliefs(), channel_facts(channel))

    def bounds(self, release: CheckedRelease[Bucketize, BucketizeFacts]) -> list[VerifiedBound]:
        """Return the bounds of groups of values, then those of values, each with the highest belief in the release."""
        from privsql.mechanisms.bucketize import checks

        return checks.list_bounds(release)

    def answers(self, db: Relations, manifest: Manifest) -> BucketizedAnswers:
        """Return the object that answers questions on an open release."""
        from privsql.mechanisms.bucketize.answers import BucketizedAnswers

        return BucketizedAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Measure the errors of a release's answers: put a workload of questions to the release and to its source."""
        from privsql.answers.accuracy import by_questions

        return by_questions(context)

    def attack_view(self) -> type[BucketAttackView]:
        """Return the class that reads a release's buckets for adversaries."""
        from privsql.mechanisms.bucketize.attacks import BucketAttackView

        return BucketAttackView

    def adversaries(self) -> tuple[Adversary[BucketAttackView], ...]:
        """Return the adversaries: those who read the buckets only, and those who know or learn more."""
        from privsql.attacks import adversaries
        from privsql.mechanisms.bucketize import attacks

        return (
            adversaries.LINKAGE_ADVERSARY,
            attacks.HOMOGENEITY_ADVERSARY,
            adversaries.ORDER_ADVERSARY,
            adversaries.IDENTIFIERS_ADVERSARY,
            attacks.CORRUPTION_ADVERSARY,
            attacks.PERSON_ADVERSARY,
            attacks.ABSENCE_ADVERSARY,
            adversaries.NEGATIVE_ADVERSARY,
            attacks.LEARNING_ADVERSARY,
            adversaries.DETERMINATION_ADVERSARY,
        )

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return the attack that intersects the buckets of two releases."""
        from privsql.attacks import adversaries

        return (adversaries.attack_by_intersection,)

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return the finding of an attacker who fits a model to the buckets; None if no model can be fitted."""
        from privsql.mechanisms.bucketize import attacks

        return attacks.measure_learning(view)

    def promise(self, params: Bucketize) -> str:
        """Return in a few words the threshold, how many values have one of their own, and the bounds of groups."""
        threshold = params.threshold
        number = len(threshold.values)
        exceptions = f", {number} value{'s have' if number > 1 else ' has'} another bound" if number else ""
        absent = ", of those who are there" if params.absence == "unobservable" else ""
        set_bounds = [f"; {name} {rule.default or 'as queried'}" for name, rule in params.components.items()]
        set_bounds += [f"; {name} {group.threshold}" for name, group in params.groups.items()]
        return f"<= {threshold.default or 'as queried'}{exceptions}{''.join(set_bounds)}{absent}"

    def words(self, params: Bucketize) -> ReleasePromises:
        """Return in sentences what the release promises, and what it does not."""
        promised = [
            "Records lie in buckets. The release shows which records and which sensitive values a bucket has, but not "
            "which record has which value: every order within the bucket is equally likely.",
            "An attacker who knows the quasi-identifiers of every record, and how the release was made, can be at most "
            "as sure of a record's value as the bound of that value says.",
        ]
        if params.is_bounding:
            promised += [
                "If a group of values has a bound of its own, that bounds the belief that a record has any of them."
            ]
        if params.fake_values:
            promised += [f"Every bucket also lists {params.fake_values} values that none of its records has, unmarked."]
        if params.absence == "unobservable":
            promised += [
                "The bounds are for records in the release. Which ones were left out is assumed to be unknown."
            ]
        known = "An attacker who knows sensitive values of other records in the same bucket can exclude these."
        sums = "The belief in one of several values can be the sum of their bounds, except in groups with a bound."
        present = "The release does not hide who is in the table."
        return ReleasePromises(tuple(promised), (known, LINKED, LEARNT, SEVERAL, sums, present))

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return a table of bucket sizes for the report: how many buckets and records have each size."""
        setting = sorted(BucketizeFacts.model_validate(manifest.facts).sizes)
        rows: list[tuple[Any, ...]] = [(f"{size:,} records", number, size * number) for size, number in setting]
        buckets, records = sum(number for _, number in setting), sum(size * number for size, number in setting)
        many = f"{buckets:,} buckets" if buckets != 1 else "one bucket"
        sentence = f"{records:,} records lie in {many}. The fewer records a bucket has, the better are answers."
        return [make_structure("Buckets by size", sentence, ("size of bucket", "buckets", "records"), rows, 2)]
