"""The class of permutation, which gives (k,e)-anonymity: values are shuffled within groups of records.

US patent 8,112,422 B2 (granted 2012) concerns (k,e)-anonymization for aggregate queries; users may want to check it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import UsageError
from privsql.mechanisms.base import NO_CURVE, WEIGHTED, GroupComposition, Mechanism, TableShape
from privsql.mechanisms.permute import tables
from privsql.mechanisms.permute.parameters import Permute, PermuteFacts
from privsql.model.explanations import LEARNT, LINKED, ReleasePromises, by_range, make_structure
from privsql.model.parameters import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.answer import Answers
    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.attacks.suite import Adversary, JointAttack
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import Alternatives, Curve, LedgerRelease, ProfiledSource, Proposal, Views
    from privsql.mechanisms.permute import attacks
    from privsql.mechanisms.permute.checks import PermutedRelease
    from privsql.mechanisms.permute.parameters import GroupFacts
    from privsql.model.checks import Check, VerifiedBound
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

NESTED, LAST, CELLS = "nested", "reapply-last", "cells"

MADE = (
    "Records are put into groups by their sensitive value, and values are shuffled within a group. The release shows "
    "which records and which values a group has, not which record has which value."
)
MADE_BY_CELLS = (
    "Records are put into cells by their quasi-identifiers, and values are shuffled within a cell. The release shows "
    "which records and which values a cell has, not which record has which value. Where cells end follows from "
    "quasi-identifiers and numbers of records alone, so the belief in a value is its share in the cell."
)
SEVERAL = (
    "An attacker can combine several releases of the same people, unless each was made with the earlier ones of a "
    "growing table in view: privsql verify --against compares these."
)
NOT = (
    "The belief in one value has no bound: what most records of a group have is likely for each of them.",
    "An attacker who knows the values of other records in the group can exclude these.",
    LINKED,
    LEARNT,
    SEVERAL,
)
NEAR = "The release shows who is in the table and in which group. The group shows roughly which value a record has."
CELL_SHOWS = "A cell shows all values of the records in it, and so what is usual among people like these."
REFUSED = "Whoever knows that cells were tried before, with other columns, k or e, and refused, knows more."


class PermutationChain(GroupComposition[Permute]):
    """What several releases of a growing table guarantee together.

    Each release takes earlier ones into account, so that groups of different releases can't be combined to break (k,e).
    """

    def terms(self, params: Permute) -> tuple[int, str]:
        """Return (k, e as text), which all releases of a chain share."""
        return params.k, str(params.e)

    def covered(self, algorithms: Sequence[str]) -> str | None:
        """Return in words what releases of the same subjects guarantee together; None if they guarantee nothing.

        That depends on the algorithms that grouped the records. With ``nested``, every combination of groups is
        covered. ``exact`` and ``reapply-all`` compare each pair of releases. ``reapply-last`` sees the last release
        only, which is enough for a second release. ``cells`` allows one release.

        Args:
            algorithms: The algorithm of each release, oldest first.
        """
        if CELLS in algorithms:
            return None
        later = list(algorithms[1:])
        if set(later) == {LAST}:
            return "groups are checked against those of the last release only; older ones may breach"
        if LAST in later[1:]:
            return None
        if set(later) <= {NESTED}:
            return "every Boolean combination of groups of all releases is (k,e)-anonymous or empty"
        return "no two groups of two releases breach (k,e)-anonymity (Definition 5); three may"

    def comparable(self, names: Sequence[str], manifests: Sequence[Manifest]) -> None:
        """Raise ``UsageError`` unless all releases are (k,e)-anonymous and have the same columns."""
        from privsql.mechanisms.permute import checks

        checks.require_comparable(names, manifests)

    def published(self, db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
        """Return the checks that an adversary can't combine groups of two releases to break (k,e), for every pair.

        They use the published files, by which groups are matched.
        """
        from privsql.mechanisms.permute import checks

        return checks.check_pairs(db, names, manifests)

    def by_record(
        self, db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
    ) -> list[Check]:
        """Return the checks that groups of several releases can't be combined to break (k,e), record by record.

        The publisher's ledger says in which group of each release a record was.
        """
        from privsql.mechanisms.permute import checks

        return checks.check_records(db, releases, known, manifest)


class Permutation(Mechanism[Permute, PermuteFacts]):
    """Permutation: each group has at least k values over a range of e, and values are shuffled within groups."""

    kind = "permute"
    algorithms = ("nested", "exact", "reapply-last", "reapply-all", "cells")
    parameters = Permute
    facts = PermuteFacts
    shape = TableShape(numeric=True, most_numbers=None)
    composition = PermutationChain()
    layout = tables.TABLES
    advice = (
        "a larger k or e: more and more different values in every group",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    )

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose k and e; e is at most half of the median, so that groups still tell low values from high ones."""
        from privsql.mechanisms.permute import plan

        return plan.propose_parameters(db, source)

    def plan(self, db: Relations, source: Records, params: Permute) -> GroupFacts:
        """Return the facts of the groups that the next release would have."""
        from privsql.mechanisms.permute import plan

        return plan.plan_release(db, source, params)

    def compare_algorithms(self, db: Relations, source: Records, params: Permute) -> Alternatives:
        """Compare grouping by near values (``nested``) and by near quasi-identifiers (``cells``).

        They are compared by the errors of means of the sensitive value. Other algorithms make the same first release as
        ``nested``.
        """
        from privsql.mechanisms.permute import plan

        return plan.compare_algorithms(db, source, params)

    def predict_curve(self, db: Relations, source: Records, params: Permute) -> Curve:
        """Raise ``UsageError``, because permutation has no threshold that could be varied."""
        raise UsageError(NO_CURVE)

    def publish(self, db: Relations, source: Records, params: Permute, key: Key) -> PermuteFacts:
        """Shuffle values within groups, write QIT (records by group) and ST (values by group), and return the facts."""
        from privsql.mechanisms.permute import publish

        return publish.publish_release(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Permute) -> None:
        """Raise ``UsageError`` unless there is one sensitive column, of numbers or dates, that suits e."""
        from privsql.mechanisms.permute import scale

        scale.find_scale(manifest.sensitive, params.e)

    def views(self, manifest: Manifest) -> Views:
        """Return the view of every record with the value that the shuffle gave it."""
        return {WEIGHTED: tables.weighted_view(manifest)}

    def checks(self, release: PermutedRelease) -> list[Check]:
        """Return the checks of (k,e) for every group, and of the agreement of all tables."""
        from privsql.mechanisms.permute import checks

        return checks.release_checks(release)

    def long_checks(self, release: PermutedRelease) -> list[Check]:
        """Return an empty list, because all checks are quick."""
        return []

    def source_checks(self, release: PermutedRelease, source: Records, params: Permute) -> list[Check]:
        """Return the checks that values, quasi-identifiers and groups are those of the source."""
        from privsql.mechanisms.permute import checks

        return checks.source_checks(release, source)

    def measured(self, release: PermutedRelease) -> Facts:
        """Return no facts for ``verify`` to compare, because ``checks`` compares everything that is stated."""
        return Facts()

    def bounds(self, release: PermutedRelease) -> list[VerifiedBound]:
        """Return the fewest different values in any group, and the narrowest range of any group."""
        from privsql.mechanisms.permute import checks

        return checks.measured_bounds(release)

    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """Return the object that answers questions on an open release."""
        from privsql.mechanisms.permute import answers

        return answers.PermuteAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Compare answers with the source over a workload of questions."""
        from privsql.answers.accuracy import by_questions

        return by_questions(context)

    def attack_view(self) -> type[attacks.PermutedView]:
        """Return the class that reads a release's groups for adversaries."""
        from privsql.mechanisms.permute import attacks

        return attacks.PermutedView

    def adversaries(self) -> tuple[Adversary[attacks.PermutedView], ...]:
        """Return the adversaries: those who look for groups that break (k,e), and those who guess values."""
        from privsql.mechanisms.permute import attacks

        return attacks.ADVERSARIES

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return the attacks that intersect and subtract groups of two releases."""
        from privsql.attacks.adversaries import attack_by_intersection
        from privsql.mechanisms.permute import attacks

        return attack_by_intersection, attacks.attack_together

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None, because no model of a learning attacker exists for permuted values."""
        return None

    def promise(self, params: Permute) -> str:
        """Return k and e in a few words, such as ``5 values over 1000``."""
        return f"{params.k} values over {params.e}"

    def words(self, params: Permute) -> ReleasePromises:
        """Return in sentences what (k,e)-anonymity promises, and what it does not."""
        bound = (
            f"Every group has at least {params.k} different values, and the largest and the smallest of them are at "
            f"least {params.e} apart."
        )
        if params.algorithm == CELLS:
            return ReleasePromises((MADE_BY_CELLS, bound), (*NOT, CELL_SHOWS, REFUSED))
        return ReleasePromises((MADE, bound), (*NOT, NEAR))

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return two tables for the report: groups by number of different values, and by number of records."""
        held, result = tables.read_contents(db, manifest.roles, None), []
        values = np.bincount(held.group, minlength=held.groups).tolist()
        for title, numbers in (("different values", values), ("records", held.group_sizes.tolist())):
            rows: list[tuple[object, ...]] = [*by_range(numbers)]
            sentence = f"The {held.groups:,} groups have {min(numbers):,} to {max(numbers):,} {title}."
            result.append(make_structure(f"Groups by {title}", sentence, (title, "groups"), rows, 1))
        return result
