"""Decide whether one more release of the same people may follow, and find the ledger for it.

The rule depends on the mechanism: budgets add up to a cap, and groups such as buckets must fit those of earlier
releases.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.engine.files import fold_name
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import Holes, fill
from privsql.errors import EngineError, GuaranteeError, UsageError
from privsql.exact import fraction_text
from privsql.keyed_random import key_file, system_key
from privsql.mechanisms.base import BudgetComposition, GroupComposition
from privsql.model.manifest import BUDGET, DIGITS_OF_RELEASE, REASONS, Composed
from privsql.releases.contents import digest_release
from privsql.releases.draft import digest_tables
from privsql.releases.ledger.book import (
    SUBJECTS,
    VARIABLE,
    Book,
    LedgerEntry,
    default_path,
    get_secret,
    is_default_writable,
    key_of,
    make_cap,
    open_for_reading,
    open_for_writing,
    path_of,
    replay_wal,
    rows_of,
    select_releases,
    write_events,
)
from privsql.releases.ledger.budget import Budget, Cap, Spending, choose_delta
from privsql.releases.ledger.publication import (
    Publication,
    PublicationRequest,
    UnrecordedPublication,
    find_unwritten_events,
)
from privsql.releases.ledger.subjects import TRACES, Subjects
from privsql.source.population import name_population, require_population
from privsql.source.table import PersonChoice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from privsql.engine.database import EngineSession, Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import Columns, Unit
    from privsql.model.manifest import Manifest, Reason
    from privsql.model.parameters import Facts
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Event, LedgerRequest
    from privsql.releases.ledger.evidence import RecordSummary, Verdict
    from privsql.source.spec import Spec
    from privsql.source.targets import Target

PLACES = 6  # decimal places of an epsilon that a release states


def spell_command(path: Path, *words: object) -> str:
    """Return a quoted shell command on a ledger, for messages.

    The command names the ledger's file unless that is the user's own.

    >>> spell_command(default_path(), "withdraw", 1), spell_command(default_path(), "cap", "clinic", "1/2")
    ('"privsql ledger withdraw 1"', '"privsql ledger cap clinic 1/2"')
    """
    place: tuple[object, ...] = ("--ledger", path.resolve())
    with suppress(EngineError):  # there is no home folder for the user's own
        place = () if path.resolve() == default_path() else place
    return f'"{shlex.join(["privsql", "ledger", *map(str, (*words, *place))])}"'


@dataclass(frozen=True)
class Refusal:
    """The reason why no guarantee covers a publication together with earlier releases.

    Attributes:
        reason: The reason as a code.
        beside: The earlier releases.
        words: The reason in words.
    """

    reason: Reason
    beside: tuple[LedgerEntry, ...]
    words: str

    def state(self) -> Composed:
        """Return the statement with which a release admits this refusal, if its publisher publishes it nevertheless.

        The statement becomes part of the manifest.
        """
        last = self.beside[-1]
        named = last.digest[:DIGITS_OF_RELEASE] or None
        return Composed(reason=self.reason, releases=len(self.beside), release=named, date=str(last.day))


@dataclass
class RecordedPublication(Publication):
    """A publication that a ledger records, beside earlier releases of the same people.

    Attributes:
        subjects: The comparison of the source's records with those of earlier releases.
        verdicts: For each earlier release, by number, whether it holds the same people.
        crossing: The earlier releases of the same people that protect something else than this one. A budget protects
            the presence of a record or its value; a release without a budget protects neither in this way.
    """

    subjects: Subjects = field(init=False)
    verdicts: dict[int, Verdict] = field(default_factory=dict, init=False)
    crossing: list[LedgerEntry] = field(default_factory=list, init=False)

    def _judge_entries(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """Return those of some releases that hold people of this source, even if their populations have other names."""
        self.verdicts = self.subjects.judge_entries(entries)
        return [entry for entry in entries if self.verdicts[entry.number].is_same]

    def _refuse_crossing(self) -> list[Refusal]:
        """Return why no guarantee covers this release together with the earlier ones in ``crossing``.

        Those are of the same people and protect something else than this one: the presence of records, single values,
        or neither, if they have no budget.

        Raises:
            GuaranteeError: One release has a budget that protects values, and the other has no budget. Or a reason was
                found, and the publisher does not allow composition.
        """
        refusals = list_crossing(self.request.stated.unit, self.crossing, self.request.ledger_path)
        if refusals:
            self._require_allowed(refusals[-1].words)
        return refusals

    def _require_allowed(self, reason: str) -> None:
        if not self.request.allow:
            raise GuaranteeError(f"{reason}; option allow_composition publishes anyway, and the release says so")


# Budget ---------------------------------------------------------------------------------------------------------------
# The privacy budget of a population is the sum of what its differentially private releases spend (``budget``). What
# other populations have spent on any of its people is added. Releases of one population add up even if ids show that
# their people are different: what a release states must not depend on whether one person is in both.
#
# The ledger holds what was spent and the caps, each a pair of epsilon and delta. A specification can set or lower the
# epsilon of a cap; the first release under a cap states its delta. Only ``ledger cap`` raises them.
#
# A budget protects a record's presence, or one value of a record. If the same people have releases of both kinds, the
# epsilon of a release that protects presence counts twice for a value, since another value is one record less and one
# record more. Presence is no longer protected once the other release publishes who is there. The likelihood ratio of a
# value has no bound beside a release of its column as it is, or beside a release without a budget, which publishes
# exact frequencies or groups of values.

UNBOUNDED = (
    "these people are in {label} already, and one of the two publishes exact frequencies or groups of values: "
    "beside it no epsilon bounds what is learnt of a value, and nothing allows that; "
    "if nobody has received that one, run {withdraw}; else publish noisy tables of them, whose epsilons add up"
)
EXPOSED = (
    "these people are in {label} already: one of the two publishes column {name!r} as it is, the other one protects "
    "its values, and nothing allows both; if nobody has received that one, run {withdraw}"
)
CROSSING: dict[frozenset[str | None], Reason] = {
    frozenset({"presence", "value"}): "value",
    frozenset({"presence", None}): "presence",
}


def list_crossing(unit: Unit | None, entries: Sequence[LedgerEntry], path: Path) -> list[Refusal]:
    """Return the reasons why no guarantee covers a new release together with some others of the same people.

    A privacy budget hides either whether a record is present or the value that it has. Two releases that do not
    protect the same have no guarantee together.

    Args:
        unit: What the budget of the new release protects: "presence" or "value"; None if it has no budget.
        entries: The other releases, each of which protects something else than the new one.
        path: Their ledger.

    Raises:
        GuaranteeError: One release has a budget that protects values, and the other has no budget. The publisher can't
            allow this.
    """
    last = next((one for one in entries if {one.unit, unit} == {"value", None}), None)
    if last is not None:
        raise GuaranteeError(UNBOUNDED.format(label=last.label, withdraw=spell_command(path, "withdraw", last.number)))
    crossing: dict[Reason, tuple[LedgerEntry, ...]] = {}
    for one in entries:
        reason = CROSSING[frozenset({one.unit, unit})]
        crossing[reason] = (*crossing.get(reason, ()), one)
    return [
        Refusal(reason, those, f"{those[-1].label} is of the same people: {REASONS[reason]}")
        for reason, those in crossing.items()
    ]


def refuse_exposed(stated: LedgerRequest, entries: Sequence[LedgerEntry], path: Path) -> None:
    """Check that no column is sensitive in the new release and a quasi-identifier in an earlier one, or the reverse.

    Otherwise one of the two would publish in clear what the other one protects.

    Args:
        stated: The request for the new release.
        entries: The earlier releases of the same people; each is compared with the new one.
        path: Their ledger.

    Raises:
        GuaranteeError: There is such a column.
    """
    for one in entries:
        columns = [part.spec["columns"] for part in (stated, one)]
        public, protected = (
            {fold_name(name) for part in columns for name in part.get(key, ())}
            for key in ("quasi_identifiers", "sensitive")
        )
        for name in sorted(public & protected):
            withdraw = spell_command(path, "withdraw", one.number)
            raise GuaranteeError(EXPOSED.format(label=one.label, name=name, withdraw=withdraw))


def require_names(spec: Spec) -> None:
    """Check that the source has ids or persons, by which the people of a population with a cap are recognized.

    Raises:
        UsageError: It has neither.
    """
    if spec.source.id is None and spec.source.person is None:
        raise UsageError(
            "a budget needs source.id or source.person: otherwise a copy of the source, as another population and with "
            "one record less, would get a budget of its own"
        )


TWICE = " (presence counts twice for the odds of a value)"
IMPURE = (
    "{label} holds these people, and one of the two has a delta, beside which a value's budget of pure epsilon does "
    "not hold; leave out delta, or if nobody has received that one, run {withdraw}"
)


@dataclass
class BudgetPublication(RecordedPublication):
    """A publication that spends a privacy budget.

    The budget is recorded as spent before any noise is drawn, so it stays spent even if the release fails.

    Attributes:
        budgets: The budgets into which the release must fit: that of what it protects and, if it also counts for the
            values that other releases protect, that of values. Empty before the ledger was read.
    """

    budgets: list[Budget] = field(default_factory=list, init=False)

    @property
    def spending(self) -> Spending:
        """Return the epsilon, delta and rho that this release spends."""
        params, composition = self.request.spec.mechanism, self.request.spec.implementation.composition
        if not isinstance(composition, BudgetComposition):
            raise TypeError(params.kind)
        return Spending(composition.epsilon(params), composition.delta(params), composition.rho(params))

    def compare_earlier(self) -> None:
        """Read from the ledger what earlier releases have spent, and the caps."""
        self.subjects = Subjects(self.db, self.source, self.request, chains=False)
        with open_for_reading(self.db, self.request.ledger_path) as book:
            self._take_budget(book)

    def require_covered(self) -> None:
        """Record the release's epsilon as spent, after everything else that could refuse the release was checked.

        Raises:
            InfeasibleError: The release would spend more than is left. No option allows that.
            GuaranteeError: Earlier releases forbid this one.
        """
        self.request.spec.implementation.plan(self.db, self.source, self.request.spec.mechanism)
        self.subjects = Subjects(self.db, self.source, self.request, chains=False)
        with open_for_writing(self.db, self.request.ledger_path) as book:
            self._take_budget(book)
            crossing = self._refuse_crossing()
            for one in self.budgets:
                one.require_fitting(partial(spell_command, self.request.ledger_path))
            self._spend_epsilon(book, crossing)

    def _take_budget(self, book: Book) -> None:
        """Read from the contents of an attached ledger what earlier releases have spent, and the caps."""
        stated = self.request.stated
        self.replaced = self.request.find_replaced(book)
        live = [one for one in book.live_entries if one != self.replaced or not self.frees_replaced]
        spending = [one for one in book.entries if one.spending is not None]  # what was withdrawn was spent
        same = self._judge_entries([*spending, *(one for one in live if one.spending is None)])
        self.crossing = [one for one in same if one.unit != stated.unit and one in live]
        sharing = [one for one in spending if one in same or one.is_of(stated.population)]
        alike = [one for one in sharing if one.unit == stated.unit and one in live]
        refuse_exposed(stated, alike, self.request.ledger_path)
        self.budgets = self._list_budgets(book, sharing)
        if self.budgets[0].caps:
            require_names(self.request.spec)

    def _list_budgets(self, book: Book, sharing: Sequence[LedgerEntry]) -> list[Budget]:
        """Return the budgets into which this release must fit.

        A release protects either the presence of a record or one value of it. The first budget adds up all releases
        that protect the same as this one. If this one protects presence and others of the same people protect values,
        a second budget adds up what all of them spend on a value.

        Args:
            book: The contents of the ledger.
            sharing: The earlier releases that hold people of this source.

        Raises:
            GuaranteeError: Releases that protect presence and values would add up, and one of them has a delta above 0.
        """
        unit, new = self.request.stated.unit, self.spending
        presence = [one.spending for one in sharing if one.unit == "presence" and one.spending is not None]
        values = [one.spending for one in sharing if one.unit == "value" and one.spending is not None]
        doubled = [Spending(2 * one.epsilon) for one in presence]
        caps = self._list_caps(book, sharing)
        of_values = Budget((*values, *doubled), caps, new)
        if unit == "presence":
            of_values = replace(of_values, new=Spending(2 * new.epsilon), note=TWICE)
        crossing = [one for one in self.crossing if one.spending is not None]
        impure = next((one for one in crossing if new.delta or Fraction(one.delta)), None)
        if impure is not None:
            withdraw = spell_command(self.request.ledger_path, "withdraw", impure.number)
            raise GuaranteeError(IMPURE.format(label=impure.label, withdraw=withdraw))
        if unit == "value":
            return [of_values]
        return [Budget(tuple(presence), caps, new), *([of_values] if crossing else [])]

    def _list_caps(self, book: Book, sharing: Sequence[LedgerEntry]) -> tuple[Cap, ...]:
        """Return the caps on this population and on other populations with the same people.

        The specification may change the cap on this population.

        Args:
            book: The contents of the ledger.
            sharing: The earlier releases that hold people of this source.
        """
        stated, ledger = self.request.stated, self.request.spec.ledger
        caps = dict.fromkeys(cap for one in (stated, *sharing) for cap in book.list_caps(one.population))
        if ledger is None or ledger.epsilon is None:
            return tuple(caps)
        most, earlier = ledger.epsilon, [one.spending for one in sharing if one.spending and one.unit == stated.unit]
        own = book.list_caps(stated.population)
        delta = min((one.delta for one in own), default=choose_delta(earlier) or self.spending.delta)
        lowest = min([most, *(one.epsilon for one in own)])
        new = [Cap(name, lowest, delta, stated=most == lowest) for name in stated.population]
        return (*new, *(one for one in caps if one not in own))

    def _spend_epsilon(self, book: Book, refusals: list[Refusal]) -> None:
        """Record the release as having spent its budget, before it has a file.

        Its cap is recorded too, if the specification sets or lowers one.

        Args:
            book: The contents of the ledger.
            refusals: Why no guarantee covers this release and earlier ones, if the publisher allowed that; the release
                states these reasons.
        """
        stated, budget, spending = self.request.stated, self.budgets[0], self.spending
        composes = f"epsilon {fraction_text(spending.epsilon)}; all together {fraction_text(budget.total)}"
        composes += f" at delta {float(budget.delta):g}" if budget.delta else ""
        together = math.ceil(budget.total * 10**PLACES) / 10**PLACES
        most = None if budget.cap is None else float(budget.cap.epsilon)
        spent = Composed(reason=BUDGET, together=together, delta=float(budget.delta) or None, cap=most)
        self.statements = [spent, *(one.state() for one in refusals)]
        self.entry = LedgerEntry.from_request(
            stated,
            number=book.next_number,
            key=self.key.reference,
            composes=composes,
            allowed=bool(refusals),
            replaces=self.replaced and self.replaced.number,
            frees=self.frees_replaced,
            epsilon=fraction_text(spending.epsilon),
            delta=fraction_text(spending.delta),
            rho=None if spending.rho is None else fraction_text(spending.rho),
            rows=self.subjects.rows,
            counters=self.subjects.counters,
        )
        events: list[Event] = [self.entry.as_event()]
        cap = next((one for one in budget.caps if one.stated), None)
        if cap is not None and any(replace(one, stated=False) not in book.caps.values() for one in budget.caps):
            events.append(make_cap(stated.population, cap.epsilon, cap.delta, "specification"))
        with self.db.in_transaction():
            self.subjects.write_records(self.entry.number, None)
            write_events(self.db, book, *events)

    def record_release(self, path: Path, facts: Facts) -> None:
        """Add the digest of the finished release to its entry in the ledger."""
        if self.entry is None:
            raise TypeError("nothing was spent")
        self.entry = replace(self.entry, digest=self.request.digest_target(path))
        self._append_events([("made", {"number": self.entry.number, "digest": self.entry.digest})])

    def as_facts(self) -> dict[str, Any]:
        """Return the facts of the ledger for the outcome, with the epsilon spent so far.

        This release is included once the ledger records it.
        """
        budget = self.budgets[0] if self.budgets else Budget((), self._list_caps(Book(), ()), self.spending)
        facts = {"epsilon": self.spending.epsilon, "spent": budget.spent if self.entry is None else budget.total}
        facts |= {"delta": budget.delta}
        cap = None if budget.cap is None else fraction_text(budget.cap.epsilon)
        return super().as_facts() | {name: fraction_text(one) for name, one in facts.items()} | {"cap": cap}


# Groups of releases ---------------------------------------------------------------------------------------------------
# Releases of the same people by mechanisms whose guarantee is for one release, or for a chain of releases.
#
# A guarantee covers a chain of releases that agree in their mechanism's terms and in the columns. The same release
# again reveals nothing new. Anything else is refused, unless the publisher allows composition, and the release says so.

AGREEING = ("quasi_identifiers", "sensitive", "bins", "levels", "others")  # what must agree in a chain
CHANGED = "records of earlier releases may not change"
GROWN = (
    "a release of the new records alone is safe, with a source.query that leaves out those of earlier releases; "
    "plan with option changed writes the ids of changed records to a file of your own"
)
PREFIX = "put a prefix before them in source.query"


@dataclass(frozen=True)
class LedgerFindings:
    """What the ledger says about a publication.

    Attributes:
        fresh: The number of records that no earlier release holds.
        same: The numbers of the earlier releases that hold people of this source.
        chain: Whether these releases and the new one form a chain: a guarantee covers all of them together.
        again: The number of the release that this one repeats; None if it repeats none.
        composes: In words, what these releases and the new one guarantee together.
        refusal: Why no guarantee covers them together; None if one does.
        budgets: The numbers of the releases of these people that spend a budget.
    """

    fresh: int
    same: tuple[int, ...] = ()
    chain: bool = False
    again: int | None = None
    composes: str = "no earlier release of these people"
    refusal: Refusal | None = None
    budgets: tuple[int, ...] = ()


@dataclass
class GroupPublication(RecordedPublication):
    """A publication without a budget, whose guarantee holds for one release or for a chain of releases.

    A chain is a sequence of releases of the same people, by the same mechanism with the same terms, in which each new
    release takes the groups (such as buckets) of the earlier ones into account.

    Attributes:
        book: The contents of the ledger.
        findings: What the ledger says about the publication.
        content: The digest of the release's tables; empty before they are made.
    """

    book: Book = field(init=False)
    findings: LedgerFindings = field(init=False)
    content: str = field(default="", init=False)

    def compare_earlier(self) -> None:
        """Compare the records with earlier releases.

        If these and the new one form a chain, the mechanism can read their groups (such as buckets) from
        ``source.history``. It also finds there what its search found for an earlier release by the same request.
        """
        self.subjects = Subjects(self.db, self.source, self.request, chains=self._chains)
        before = self.request.before
        with open_for_reading(self.db, self.request.ledger_path, before=before) as book:
            self.book = book if before is not None else book.with_events(find_unwritten_events(book))
            self.replaced = self.request.find_replaced(self.book)
            self.findings = self._assess_book(self.book)
        self.crossing = self._list_entries(self.findings.budgets)
        if self.findings.chain:
            chain = self._list_entries(self.findings.same)

            def fetch_earlier_groups(last: int) -> NDArray[np.int64]:
                """Return in which group, such as a bucket, each record was in each of the last releases.

                Args:
                    last: The number m of releases.

                Returns:
                    The number of the group (m, n) for n records; -1 if a release did not hold the record.
                """
                holes: Holes = {"records": TRACES, "position": self.db.row_number("r")}
                with open_for_reading(self.db, self.request.ledger_path):
                    members = [{"members": rows_of(entry, SUBJECTS).subquery()} for entry in chain[-last:]]
                    tables = [self.db.arrow(fill("ledger/earlier", holes | one)) for one in members]
                return np.stack([groups["bid"].to_numpy().astype(np.int64, copy=False) for groups in tables])

            self.source.history.releases, self.source.history.fetch = len(chain), fetch_earlier_groups
        repeated = (one for one in reversed(self.book.live_entries) if one.setting is not None and self._is_repeat(one))
        if (last := next(repeated, None)) is not None:
            self.source.history.setting = last.setting
            self.source.history.withdraw = spell_command(self.request.ledger_path, "withdraw", last.number)
        self.few = [(self.book.releases[n], one) for n, verdict in self.verdicts.items() for one in verdict.few]
        others = self.crossing if self.findings.again is None else []
        crossing = list_crossing(None, others, self.request.ledger_path)
        refusals = [] if self.findings.refusal is None else [self.findings.refusal]
        self.statements = [one.state() for one in (*refusals, *crossing)]

    def require_covered(self) -> None:
        """Compare the records with earlier releases, and refuse a release that no guarantee covers.

        Raises:
            GuaranteeError: No guarantee covers it and earlier releases, and the publisher does not allow composition.
        """
        self.compare_earlier()
        if self.findings.again is None:
            self._refuse_crossing()
        if self.findings.refusal is not None:
            self._require_allowed("; ".join([self.findings.refusal.words, *self._list_remedies()]))

    def _list_remedies(self) -> list[str]:
        """Return sentences that say what a publisher can do about a refusal."""
        last = self._list_entries(self.findings.same)[-1]
        verdict, remedies = self.verdicts[last.number], []
        if self.changes:
            remedies.append(GROWN)
        elif verdict.assumed:
            remedies.append("if these are other people, give them a source.population of their own")
        elif not last.is_of(self.request.stated.population):
            remedies.append(f"if these are its people, say source.population = {last.population[0]!r}")
            remedies += [f"if the {verdict.kind} name others, {PREFIX}"] if verdict.kind else []
        way = f"run {spell_command(self.request.ledger_path, 'withdraw', last.number)}"
        if last == self.replaced:
            way = "option nobody_has_it withdraws it"
        return [*remedies, f"if nobody has received that one, {way}"]

    @property
    def key(self) -> Key:
        """Return the publisher's key; without one, a key derived from the ledger's secret, the records and the request.

        With a derived key, the same request for the same records gives the same release again.
        """
        if self.request.key is not None:
            return self.request.key
        return derive_release_key(get_secret(self.request.ledger_path), self.subjects.rows, self.request.stated)

    @property
    def repeats(self) -> bool:
        """Return whether this release reveals nothing that is not covered yet.

        It repeats an earlier release, or a guarantee covers it together with earlier ones.
        """
        return self.findings.chain or self.findings.again is not None

    @property
    def frees_replaced(self) -> bool:
        """Return whether the release that this one replaces no longer counts as an earlier release.

        It does not if nobody has received it, or if both releases have the same contents.
        """
        again = self.book.releases.get(self.findings.again or 0)
        is_same = again is not None and self.replaced is not None and again.content == self.replaced.content
        return self.request.nobody_has_it or is_same

    @property
    def _chains(self) -> bool:
        return isinstance(self.request.spec.implementation.composition, GroupComposition)

    def _list_entries(self, numbers: Sequence[int]) -> list[LedgerEntry]:
        return [entry for entry in self.book.entries if entry.number in numbers]

    # What the ledger says ---

    def _assess_book(self, book: Book) -> LedgerFindings:
        """Return what the contents of an attached ledger say about this publication."""
        replaced = self.replaced if self.request.nobody_has_it else None
        alike = self._judge_entries([entry for entry in book.live_entries if entry != replaced])
        budgets = tuple(entry.number for entry in alike if entry.epsilon is not None)
        alike = [entry for entry in alike if entry.epsilon is None]
        same = [entry for entry in alike if entry.is_of(self.request.stated.population)]
        others = [entry for entry in alike if entry not in same]
        fresh = self.subjects.count_fresh([entry for entry in same if entry.subject])
        found = LedgerFindings(fresh, tuple(entry.number for entry in (*same, *others)), budgets=budgets)
        if not alike:
            return found
        chain = self._cover_chain(same) if not others else None
        changed = self.subjects.list_changed(same[-1]) if chain else []
        if chain and not changed:
            return replace(found, chain=True, composes=chain)
        again = next((entry for entry in same if self._is_repeat(entry)), None)
        if again is not None and not self.request.allow:
            return replace(found, again=again.number, composes="a repeat of an earlier release")
        self.changes = changed
        refusal = self._explain_refusal(same, others)
        return replace(found, composes=f"composition allowed by the publisher: {refusal.words}", refusal=refusal)

    def _cover_chain(self, same: Sequence[LedgerEntry]) -> str | None:
        """Return in words what earlier releases and this one guarantee together; None if nothing covers all of them.

        A guarantee can only cover a chain: releases of one mechanism that agree in their columns and promised bounds
        (such as k and e), and whose records have ids.

        Args:
            same: The earlier releases of this population that hold people of this source.
        """
        stated, params = self.request.stated, self.request.spec.mechanism
        composition = self.request.spec.implementation.composition
        if not isinstance(composition, GroupComposition) or not self.subjects.named:
            return None
        if self._is_of_records_after(same) or any(entry.allowed or not entry.subject for entry in same):
            return None
        if any(entry.mechanism != stated.mechanism for entry in same):
            return None
        terms = []  # what must agree for a guarantee over several releases
        for one in (stated, *same):
            columns = {key: value for key, value in one.spec["columns"].items() if key in AGREEING}
            terms.append([composition.terms(params.model_validate(one.spec["mechanism"])), columns])
        if any(one != terms[0] for one in terms):
            return None
        return composition.covered([*(entry.algorithm for entry in same), stated.algorithm])

    def _is_of_records_after(self, same: Sequence[LedgerEntry]) -> bool:
        """Return whether this release promises per record while an earlier one promised per person.

        Then no guarantee covers both.
        """
        return self.request.stated.promised_person is None and any(entry.promised_person for entry in same)

    def _is_repeat(self, entry: LedgerEntry) -> bool:
        """Return whether an earlier release has the same records and key, and a request that gives the same release."""
        of_same = (entry.rows, entry.determining_parts) == (self.subjects.rows, self.request.stated.determining_parts)
        return of_same and entry.key == self.key.reference

    def _explain_refusal(self, same: Sequence[LedgerEntry], others: Sequence[LedgerEntry]) -> Refusal:
        beside = (*same, *others)
        if self.changes:
            counts = Counter(fate for _, fate in self.changes)
            fates = ", ".join(f"{number:,} {fate}" for fate, number in sorted(counts.items()))
            one = self.request.spec.source.chooses_records
            why = "; source.persons = 'one' takes a record again only as long as it is there unchanged" if one else ""
            return Refusal("changed", beside, f"{CHANGED}: {fates}{why}")
        last = beside[-1]
        verdict = self.verdicts[last.number]
        if others:
            words = f"{last.label}, of another population, holds these people ({verdict.why}); no guarantee covers both"
            return Refusal("population", beside, words)
        if self._chains and self.subjects.named and self._is_of_records_after(same):
            words = f"{last.label} has one record of each person, and without source.person this one may have more"
            return Refusal("persons", beside, words)
        if verdict.assumed:
            words = f"{last.label} is of this population, and {verdict.why}; no guarantee covers both"
            return Refusal("assumed", beside, words)
        words = f"these people are in {last.label} already ({verdict.why}), and no guarantee covers both"
        return Refusal("same", beside, words)

    # Writing ---

    def read_tables(self, db: Relations, tables: Columns) -> None:
        """Compute the digest of the release's tables, so that the ledger can later recognize a repetition.

        Args:
            db: The engine that has the tables in its database ``release``.
            tables: The columns of each table.
        """
        self.content = digest_tables(db, tables, "release", ordered=db.keeps_order)

    def record_release(self, path: Path, facts: Facts) -> None:
        """Record the release and its records in one transaction.

        Raises:
            GuaranteeError: Another process has published these people meanwhile, or a release that should repeat an
                earlier one differs from it.
        """
        held, digest, key = facts.count_waiting(), self.request.digest_target(path), self.key.reference
        with open_for_writing(self.db, self.request.ledger_path) as book:
            late = find_unwritten_events(book)
            known = book.with_events(late)
            if known.events != self.book.events and self._assess_book(known) != self.findings:
                raise GuaranteeError("another process has published these people meanwhile; publish again")
            again = known.releases.get(self.findings.again or 0)
            if again is not None and again.content != self.content:
                raise GuaranteeError(
                    f"{again.label} is of the same records, and differs from the earlier one (another version); "
                    "no guarantee covers both"
                )
            self.entry = LedgerEntry.from_request(
                self.request.stated,
                number=book.next_number,
                key=key,
                composes=self.findings.composes,
                allowed=self.findings.refusal is not None,
                rows=self.subjects.rows,
                counters=self.subjects.counters,
                digest=digest,
                records=self.source.records - held,
                fresh=self.findings.fresh - held,
                held_back=held,
                content=self.content,
                setting=self.source.history.setting,
                replaces=self.replaced and self.replaced.number,
                frees=self.frees_replaced,
                draft=str(path.parent.resolve()),
                out=False,
            )
            with self.db.in_transaction():
                self.subjects.write_records(self.entry.number, self.source.history.groups)
                write_events(self.db, book, *late, self.entry.as_event())


def derive_release_key(secret: Key, rows: RecordSummary, request: LedgerRequest) -> Key:
    """Derive the key of a release from the ledger's secret, the records and the request.

    The same three always give the same key.
    """
    request_text = json.dumps(request.determining_parts, sort_keys=True)
    return secret.derive_key(rows.records, rows.fingerprint, request_text)


def restore_history(db: EngineSession, source: Records, spec: Spec, path: Path, entry: LedgerEntry) -> None:
    """Give the source the history that it had when a release was published, to make this release again.

    It is the groups of records in earlier releases, and what the mechanism's search found.

    Args:
        db: The session.
        source: The records; their ``history`` is set.
        spec: The specification of the release.
        path: The ledger.
        entry: The ledger's entry of the release.
    """
    if isinstance(spec.implementation.composition, GroupComposition):
        with open_for_reading(db, path) as book:
            replaced = book.releases.get(entry.replaces or 0)
        request = PublicationRequest(
            spec,
            path,
            replaces=None if replaced is None else replaced.digest,
            nobody_has_it=entry.frees,
            before=entry.number,
        )
        GroupPublication(db, source, request).compare_earlier()
    source.history.setting = entry.setting


# Keeping --------------------------------------------------------------------------------------------------------------
# Find the ledger of a specification for the verbs that publish, list or verify.


def make_publication(db: EngineSession, source: Records, request: PublicationRequest) -> Publication:
    """Return the object that carries out a publication and records it in a ledger.

    Without a ledger it is an ``UnrecordedPublication``. With one it is a ``BudgetPublication`` if releases of the
    mechanism add up their budgets, else a ``GroupPublication``.
    """
    if request.path is None:
        return UnrecordedPublication(db, source, request)
    private = isinstance(request.spec.implementation.composition, BudgetComposition)
    return (BudgetPublication if private else GroupPublication)(db, source, request)


def find_ledger(db: EngineSession, spec: Spec) -> Path | None:
    """Return the ledger that already records releases of the population.

    If there is none, return the one that the specification names; None if the specification switches the ledger off.
    """
    path = path_of(spec)
    if path is None:
        return None
    replay_wal(path)
    named = spec.ledger is not None and spec.ledger.database is not None
    if named and not is_default_writable():  # who has no state folder names a place
        return path
    population = name_population(spec.source)
    with open_for_reading(db, default_path()) as book:
        other, here = book.find_other_ledger(population), book.list_of_population(population)
    if other is not None and other.exists():
        return other
    return default_path() if any(not one.withdrawn or one.epsilon is not None for one in here) else path


def prepare_ledger(db: EngineSession, spec: Spec) -> Path | None:
    """Return the ledger that will record a release.

    If it is another file than the user's own ledger, its path is noted there. So later publications find the earlier
    releases of the same population.

    Returns:
        The ledger; None if the specification switches it off.

    Raises:
        UsageError: Another ledger records releases of the population, or the source names no population.
    """
    path = path_of(spec)
    if path is None:
        return None
    population, ledger = require_population(spec.source), find_ledger(db, spec)
    if ledger != path:
        raise UsageError(
            f"releases of {', '.join(population)} are recorded in {ledger}; name that ledger by ledger.database "
            f"or {VARIABLE}"
        )
    if is_default_writable() and path != default_path():
        with open_for_reading(db, default_path()) as book:
            known = book.find_other_ledger(population)
        if path != known:
            with open_for_writing(db, default_path()) as book, db.in_transaction():
                write_events(db, book, ("elsewhere", {"population": list(population), "database": str(path)}))
    return path


def require_ledger(spec: Spec | None, database: Path | None = None, *, exists: bool = True) -> Path:
    """Return the ledger for a command: the given file, otherwise the specification's ledger, otherwise the user's own.

    Args:
        spec: The specification; None if there is none.
        database: The file of the ledger; None if the caller names none.
        exists: Whether the ledger must exist already.

    Raises:
        UsageError: The specification switches the ledger off, or the ledger does not exist.
    """
    path: Path | None = database or default_path()
    if spec is not None and database is None:
        with open_scratch() as db:
            path = find_ledger(db, spec)
    elif path is not None:
        replay_wal(path)
    if path is None:
        raise UsageError("there is no ledger: the specification says ledger.off")
    if exists and not path.exists():
        raise UsageError(
            f"there is no ledger yet; the first release will make {path}. If releases are recorded in another "
            f"one, give option ledger or set {VARIABLE}"
        )
    return path


# Choosing -------------------------------------------------------------------------------------------------------------
# The key that chooses one record of each person: the publisher's, else one derived from the ledger's secret.
#
# It depends neither on the records nor on the request, so that every release of the same people shows the same record
# of each. Records that an earlier release in the ledger holds are chosen again as long as they are there.


def make_choice(
    db: EngineSession, request: PublicationRequest, *, publishing: bool, otherwise: Key | None = None
) -> PersonChoice | None:
    """Return how a publication chooses one record of each person; None if it publishes all records.

    Args:
        db: A session.
        request: The publication.
        publishing: Whether to create the ledger's secret if there is none; False for a plan.
        otherwise: The key that chooses if neither the publisher nor the ledger has a key, such as in trials before the
            first release; None to draw a new key.
    """
    spec, path = request.spec, request.path
    if not spec.source.chooses_records or request.choice is not None:
        return request.choice
    key = request.key
    if key is None and path is not None and (publishing or key_of(path).exists()):
        key = get_secret(path)
    key = key or otherwise or system_key()
    return PersonChoice.from_key(key, spec.name, _fetch_earlier_records(db, spec, path, None))


def repeat_choice(
    db: EngineSession, spec: Spec, release: Target | None, manifest: Manifest, key_path: Path | None
) -> PersonChoice | None:
    """Return how a release chose one record of each person, with the key from the key file or the ledger.

    Args:
        db: A session.
        spec: The specification of the source.
        release: The release; its choice depends only on releases that the ledger recorded before it. None to consider
            all.
        manifest: The manifest of the release.
        key_path: The key file; None if there is none.

    Returns:
        The choice; None if the specification publishes all records of each person. If the key is in neither place, the
        choice has another key, and its ``reference`` (a digest of the key) differs from the one that the manifest
        states.
    """
    if not spec.source.chooses_records:
        return None
    path = path_of(spec)
    keys = [read_key(key_path)] if key_path is not None else []
    keys += [get_secret(path)] if path is not None and key_of(path).exists() else []
    stated = manifest.persons.choice if manifest.persons is not None else None
    key = next((one for one in keys if PersonChoice.from_key(one, manifest.name).reference == stated), None)
    if key is None:
        return PersonChoice.from_key(system_key(), manifest.name)
    return PersonChoice.from_key(key, manifest.name, _fetch_earlier_records(db, spec, path, release))


def read_key(path: Path) -> Key:
    """Return the key in a file. No key is made, because reading a release needs the existing one.

    Raises:
        EngineError: There is no key in the file.
    """
    if not path.exists():
        raise EngineError(f"key file {path}: No such file or directory")
    return key_file(path)


def _fetch_earlier_records(db: EngineSession, spec: Spec, path: Path | None, release: Target | None) -> pa.Table | None:
    """Return a table (id, trace) of the records that earlier releases of the population hold.

    If one record of each person is published, it must be the same record in every release. So a record of this table
    is chosen again as long as it is in the source unchanged. Its trace, a digest of its published values, shows that.
    Withdrawn releases count, so that the same ledger later gives the same choice again.

    Args:
        db: A session.
        spec: The specification.
        path: The ledger; None if there is none.
        release: A release that is made again; only releases before it count. None to count all.

    Returns:
        The table; None without a ledger, ids or earlier releases.
    """
    if path is None or spec.source.id is None:
        return None
    named, person = fold_name(spec.source.id), fold_name(spec.source.person or "")
    with open_for_reading(db, path) as book:
        entries = [
            one
            for one in book.list_of_population(name_population(spec.source))
            if one.subject == named and one.promised_person == person
        ]
        if release is not None:
            digest = digest_release(release)
            last = max((one.number for one in entries if one.digest == digest), default=0)
            entries = [one for one in entries if one.number < last]
        if not entries:
            return None
        return db.arrow(fill("ledger/chosen", {"subjects": SUBJECTS, "among": select_releases(entries)}))
