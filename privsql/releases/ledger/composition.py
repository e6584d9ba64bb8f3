"""Decide by groups or by budget whether one more release of the same people may follow, and open the ledger for it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.open import open_scratch
from privsql.engine.remote import stream_positions
from privsql.engine.sqlfiles import Holes, column, fill, temp_table
from privsql.errors import EngineError, GuaranteeError, InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.keyed_random import key_file, system_key
from privsql.mechanisms.contract import BudgetComposition, GroupComposition, Unit
from privsql.releases.contents import digest_release
from privsql.releases.draft import digest_tables
from privsql.releases.ledger.book import (
    SUBJECTS,
    VARIABLE,
    Spending,
    as_plain_json,
    compose_spending,
    default_path,
    get_secret,
    is_default_writable,
    key_of,
    open_for_reading,
    open_for_writing,
    path_of,
    replay_wal,
    select_releases,
    subjects_query,
    write_events,
)
from privsql.releases.ledger.publication import (
    Publication,
    extract_request,
    find_unwritten_events,
    select_entries,
)
from privsql.releases.ledger.subjects import TRACES, Subjects
from privsql.source.records import join_names, known_as
from privsql.source.table import PersonChoice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from privsql.engine.database import EngineSession, Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest
    from privsql.model.parameters import Facts, Parameters
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Book, Event, LedgerEntry
    from privsql.releases.ledger.evidence import Verdict
    from privsql.releases.ledger.publication import PublicationRequest
    from privsql.source.spec import Spec
    from privsql.source.targets import Target

# Budget ---------------------------------------------------------------------------------------------------------------
# The privacy budget of a source: the epsilons of its differentially private releases add up.
#
# The ledger holds what was spent and the cap. A specification can set or lower the cap, never raise it.


# A budget protects a record's presence, or one value of a record. Both kinds of releases of the same people: a value's
# odds take twice the epsilon of a release that protects presence, since a substitution is one record less and one more;
# presence is no longer protected once the other one publishes who is there. Beside a release without a budget, which
# states exact frequencies or puts values into groups, likelihood ratios of a value have no bound.

UNBOUNDED = (
    "these people are in {label} already, and one of the two publishes exact frequencies or groups of values: "
    "beside it no epsilon bounds what is learnt of a value, and nothing allows that; "
    "if nobody has received that one, run 'privsql ledger withdraw {number}'"
)
BESIDE = {
    frozenset({"presence", "value"}): (
        "{label} is of the same people: the odds of a value take twice the epsilon that protects presence, and "
        "presence is no longer promised, for one of the two publishes who is in the table"
    ),
    frozenset({"presence", None}): (
        "{label} is of the same people: one of the two publishes exact counts of records, beside which epsilon does "
        "not bound what is learnt of somebody's presence"
    ),
}


def explain_crossing(unit: Unit | None, entries: Sequence[LedgerEntry], *, allow: bool) -> list[str]:
    """Return what a release says of earlier ones, of the same people, whose budgets protect something else.

    ``GuaranteeError`` for a value's budget beside none, and for anything else unless composition is allowed.
    """
    crossing = [one for one in entries if one.unit != unit]
    last = next((one for one in crossing if {one.unit, unit} == {"value", None}), None)
    if last is not None:
        raise GuaranteeError(UNBOUNDED.format(label=last.label, number=last.number))
    said = [BESIDE[frozenset({one.unit, unit})].format(label=one.label) for one in crossing]
    if said and not allow:
        raise GuaranteeError(f"{said[-1]}; allow_composition=True publishes anyway, and the release says so")
    return [f"composition allowed by the publisher: {one}" for one in said]


def require_names(spec: Spec) -> None:
    """Raise ``UsageError`` for a cap on what the publisher spends on people whom nothing names."""
    if spec.source.id is None and spec.source.person is None:
        raise UsageError(
            "a budget needs source.id or source.person: by its name alone a source can't be capped, for a copy under "
            "another name, with a record less, would have a budget of its own"
        )


@dataclass
class BudgetLedger(Publication):
    """A publication that spends a budget, which is gone before anything is drawn, whatever becomes of the release."""

    subjects: Subjects = field(init=False)
    verdicts: dict[int, Verdict] = field(default_factory=dict, init=False)
    earlier: list[LedgerEntry] = field(default_factory=list, init=False)  # releases that share the budget
    crossing: list[LedgerEntry] = field(default_factory=list, init=False)  # whose budget protects something else
    cap: Fraction | None = field(default=None, init=False)
    fresh: Key = field(default_factory=system_key, init=False)

    @property
    def epsilon(self) -> Fraction:
        """Return what this release spends."""
        return self.spending.epsilon

    @property
    def composition(self) -> BudgetComposition[Any]:
        """Return the mechanism's composition."""
        composition = self.request.spec.implementation.composition
        if not isinstance(composition, BudgetComposition):
            raise TypeError(self.request.spec.mechanism.kind)
        return composition

    @property
    def spending(self) -> Spending:
        """Return what this release spends, delta and rho included."""
        params, composition = self.request.spec.mechanism, self.composition
        return Spending(composition.epsilon(params), composition.delta(params), composition.rho(params))

    @property
    def shared(self) -> list[Spending]:
        """Return what earlier releases have spent of the unit's budget: of presence a value takes it twice."""
        twice = [one.spending for one in self.crossing if one.spending is not None and self.composition.unit == "value"]
        if any(one.delta for one in twice):
            raise GuaranteeError("a release with delta is of the same people; a value has no pure epsilon then")
        own = [one.spending for one in self.earlier if one.spending is not None and one not in self.crossing]
        return [*own, *(Spending(2 * one.epsilon) for one in twice)]

    @property
    def before(self) -> Fraction:
        """Return the epsilon that earlier releases have spent together."""
        return compose_spending(self.shared).epsilon

    @property
    def together(self) -> Spending:
        """Return what the earlier releases and this one spend together."""
        return compose_spending([*self.shared, self.spending])

    @property
    def key(self) -> Key:
        """For what is not noise; the noise of a release is never repeated."""
        return self.request.key or self.fresh

    def compare_earlier(self) -> None:
        """Find what was spent, and the cap."""
        self.subjects = Subjects(self.db, self.source, self.request, chains=False)
        with open_for_reading(self.db, self.request.ledger_path) as book:
            self._take_budget(book)

    def require_covered(self) -> None:
        """Spend the release's epsilon; what can be refused for other reasons is refused before.

        ``InfeasibleError`` if it would spend more than is left, which nothing can allow; ``GuaranteeError`` if these
        records were published under another name.
        """
        self.request.spec.implementation.plan(self.db, self.source, self.request.spec.mechanism)
        self.subjects = Subjects(self.db, self.source, self.request, chains=False)
        with open_for_writing(self.db, self.request.ledger_path) as book:
            others = self._take_budget(book)
            self.statements = explain_crossing(self.composition.unit, self.crossing, allow=self.request.allow)
            self._require_fitting(len(book.list_of_source(self.request.source_names)) + len(others))
            if others and not self.request.allow:
                last, why = others[-1], self.verdicts[others[-1].number].why
                raise GuaranteeError(
                    f"these records are in {last.label} already, under another name ({why}), and share its budget; "
                    f"it is source.name = {join_names(last.source)!r}"
                )
            self.subjects.names.prepare_marks()
            self._spend_epsilon(book, others)

    def _take_budget(self, book: Book) -> list[LedgerEntry]:
        """Take what was spent and the cap from a book, attached; releases of these records under another name."""
        self.replaced = self.request.find_replaced(book)
        same_name = book.list_of_source(self.request.source_names)
        private = [one for one in book.entries if one.epsilon is not None]
        self.verdicts = self.subjects.judge_entries([entry for entry in private if entry not in same_name])
        others = [entry for entry in private if entry.number in self.verdicts and self.verdicts[entry.number].is_same]
        self.earlier = [*same_name, *others]
        live = [one for one in book.live_entries if one != self.replaced and one.unit != self.composition.unit]
        judged = self.subjects.judge_entries(live)
        self.crossing = [one for one in live if judged[one.number].is_same]
        self.earlier = [one for one in self.earlier if one.unit == self.composition.unit or one.epsilon is None]
        others = [one for one in others if one in self.earlier]
        stated_cap = self.request.spec.ledger.epsilon if self.request.spec.ledger is not None else None
        sources = (self.request.source_names, *(entry.source for entry in others))
        caps = [stated_cap, *map(book.find_cap, sources)]
        self.cap = min((cap for cap in caps if cap is not None), default=None)
        if self.cap is not None:
            require_names(self.request.spec)
        return others

    def _require_fitting(self, releases: int) -> None:
        if self.cap is None or self.together.epsilon <= self.cap:
            return
        left = max(self.cap - self.before, Fraction(0))
        raise InfeasibleError(
            f"epsilon {fraction_text(self.epsilon)} can't be spent: {fraction_text(left)} is left of the budget "
            f"{fraction_text(self.cap)}: "
            f"{releases} releases have spent {fraction_text(self.before)}; 'privsql ledger cap' raises it",
            {"left": fraction_text(left), "spent": fraction_text(self.before), "budget": fraction_text(self.cap)},
        )

    def _spend_epsilon(self, book: Book, others: list[LedgerEntry]) -> None:
        """Write the release down, without a file yet, and the cap if this specification sets or lowers it."""
        allowed = [f"{entry.label} of {join_names(entry.source)}" for entry in others]
        total, spending = self.together, self.spending
        composes = f"epsilon {fraction_text(self.epsilon)}; all together {fraction_text(total.epsilon)}"
        composes += f" at delta {float(total.delta):g}" if total.delta else ""
        limit = "no cap is set" if self.cap is None else f"of at most {fraction_text(self.cap)}"
        notes = [f"composition allowed by the publisher: these records are in {one}" for one in allowed]
        self.statements = [f"{composes}, {limit}", *notes, *self.statements]
        fields: dict[str, Any] = {"composes": composes, "allowed": bool(others)}
        fields |= {"epsilon": fraction_text(spending.epsilon), "delta": fraction_text(spending.delta)}
        fields["rho"] = None if spending.rho is None else fraction_text(spending.rho)
        fields["replaces"] = self.replaced and self.replaced.number
        self.entry = self.request.make_entry(
            book.next_number, key=self.key.reference, **self.subjects.summary_fields, **fields
        )
        events: list[Event] = [self.entry.as_event()]
        if self.cap is not None and self.cap != book.find_cap(self.request.source_names):
            names = list(self.request.source_names)
            events.append(("cap", {"source": names, "epsilon": fraction_text(self.cap), "by": "specification"}))
        with self.db.in_transaction():
            nothing = exp.cast(exp.null(), "INTEGER")
            self.subjects.write_records(self.entry.number, TRACES, nothing)
            write_events(self.db, book, *events)

    def record_release(self, path: Path, facts: Facts) -> None:  # noqa: ARG002 (of any composition)
        """Write down the digest of its file."""
        if self.entry is None:
            raise TypeError("nothing was spent")
        self.entry = replace(self.entry, digest=self.request.digest_target(path))
        with open_for_writing(self.db, self.request.ledger_path) as book, self.db.in_transaction():
            write_events(self.db, book, ("made", {"number": self.entry.number, "digest": self.entry.digest}))

    def as_facts(self) -> dict[str, Any]:
        """Return the facts with what is spent, this release included once it is written down."""
        total = self.before if self.entry is None else self.together.epsilon
        cap = None if self.cap is None else fraction_text(self.cap)
        return {**super().as_facts(), "epsilon": fraction_text(self.epsilon), "spent": fraction_text(total), "cap": cap}


# Groups of releases ---------------------------------------------------------------------------------------------------
# Releases of the same people by mechanisms whose guarantee is for one release, or for a chain of releases.
#
# A guarantee covers a chain of releases that agree in their mechanism's terms and in the columns. The same release
# again reveals nothing new. Anything else is refused, unless the publisher allows composition, and the release says so.

CHANGED = "records of earlier releases may not change"
GROWN = (
    "a release of the new records alone is safe, with a source.query that leaves out those of earlier releases; "
    "plan with changed=.. writes the ids of changed records to a file of your own; "
)


@dataclass(frozen=True)
class LedgerFindings:
    """The ledger's verdict on a publication.

    ``same``: numbers of the earlier releases of these people; ``chain``: a guarantee covers them and this one;
    ``again``: the release that this one repeats; ``reason``: why nothing covers them, None if something does.
    """

    fresh: int
    same: tuple[int, ...] = ()
    chain: bool = False
    again: int | None = None
    composes: str = "the first release"
    reason: str | None = None
    budgets: tuple[int, ...] = ()  # releases of these people that spend a budget


@dataclass
class GroupLedger(Publication):
    """A publication whose guarantee is for one release, or for a chain of them."""

    book: Book = field(init=False)
    findings: LedgerFindings = field(init=False)
    subjects: Subjects = field(init=False)
    verdicts: dict[int, Verdict] = field(default_factory=dict, init=False)
    content: str = field(default="", init=False)
    is_publishing: bool = field(default=False, init=False)

    def compare_earlier(self) -> None:
        """Compare with what was released; tells the source of earlier groups that a guarantee takes in."""
        chains = isinstance(self.request.spec.implementation.composition, GroupComposition)
        self.subjects = Subjects(self.db, self.source, self.request, chains=chains)
        with open_for_reading(self.db, self.request.ledger_path) as book:
            self.book = book.with_events(find_unwritten_events(book))
            self.replaced = self.request.find_replaced(self.book)
            self.findings = self._assess_book(self.book)
        if self.findings.chain:
            chain = select_entries(self.book.entries, self.findings.same)
            self.source.history.releases = len(chain)
            self.source.history.fetch = lambda last: self._fetch_earlier_groups(chain[-last:])
        repeated = (one for one in reversed(self.book.live_entries) if one.setting is not None and self._is_repeat(one))
        self.source.history.setting = next((one.setting for one in repeated), None)
        if self.findings.reason is not None:
            self.statements = [f"composition allowed by the publisher: {self.findings.reason}"]
        if self.findings.again is None:
            private = select_entries(self.book.entries, self.findings.budgets)
            self.statements += explain_crossing(None, private, allow=self.request.allow or not self.is_publishing)

    def require_covered(self) -> None:
        """Compare with earlier releases; ``GuaranteeError`` if nothing covers both and composition is not allowed."""
        self.is_publishing = True
        self.compare_earlier()
        self.subjects.names.prepare_marks()
        if self.findings.reason is not None and not self.request.allow:
            last = max(self.findings.same)
            safe = GROWN if self.findings.reason.startswith(CHANGED) else ""
            raise GuaranteeError(
                f"{self.findings.reason}; {safe}allow_composition=True publishes anyway, and the release "
                f"says so; if nobody has received that one, run 'privsql ledger withdraw {last}'"
            )

    @property
    def key(self) -> Key:
        """Return the publisher's key, or one derived from records and request, which repeats the release."""
        return self.request.key or self._derive_key()

    @property
    def repeats(self) -> bool:
        """Return whether an earlier release is repeated, or covered together with this one."""
        return self.findings.chain or self.findings.again is not None

    def _derive_key(self) -> Key:
        rows = self.subjects.rows
        request_text = json.dumps(extract_request(self.request.plain_spec), sort_keys=True)
        return get_secret(self.request.ledger_path).derive_key(rows.records, rows.fingerprint, request_text)

    # What the ledger says ---

    def _assess_book(self, book: Book) -> LedgerFindings:
        """Return what an attached book says of this publication."""
        private = [entry for entry in book.live_entries if entry.epsilon is not None and entry != self.replaced]
        verdicts = self.subjects.judge_entries(private)
        budgets = tuple(entry.number for entry in private if verdicts[entry.number].is_same)
        return replace(self._assess_groups(book), budgets=budgets)

    def _assess_groups(self, book: Book) -> LedgerFindings:
        """Return what it says by the releases that compose by groups."""
        replaced = None if self.request.repeat else self.replaced
        live = [entry for entry in book.live_entries if entry.epsilon is None and entry != replaced]
        self.verdicts = self.subjects.judge_entries(live)
        alike = [entry for entry in live if self.verdicts[entry.number].is_same]
        same = [entry for entry in alike if entry.is_of(self.request.source_names)]
        others = [entry for entry in alike if entry not in same]
        fresh = self.subjects.count_fresh([entry for entry in same if entry.subject])
        if not same and not others:
            return LedgerFindings(fresh)
        numbers = tuple(entry.number for entry in (*same, *others))
        chain = self._cover_chain(same) if not others else None
        changed = self.subjects.list_changed(same[-1]) if chain else []
        if chain and not changed:
            return LedgerFindings(fresh, numbers, chain=True, composes=chain)
        again = next((entry for entry in same if self._is_repeat(entry)), None)
        if again is not None and not self.request.allow:
            return LedgerFindings(fresh, numbers, again=again.number, composes="a repeat of an earlier release")
        self.changes = changed
        reason = self._explain_refusal(same, others)
        return LedgerFindings(fresh, numbers, composes=f"composition allowed by the publisher: {reason}", reason=reason)

    def _cover_chain(self, same: Sequence[LedgerEntry]) -> str | None:
        """Return what the releases and this one guarantee together; None unless they agree and name their groups."""
        params, composition = self.request.spec.mechanism, self.request.spec.implementation.composition
        if not isinstance(composition, GroupComposition) or not self.subjects.named:
            return None
        if self._is_of_records_after(same) or any(entry.allowed or not entry.subject for entry in same):
            return None
        if any(entry.mechanism != params.kind for entry in same):
            return None
        specs = (self.request.plain_spec, *(entry.spec for entry in same))
        first, *others = (_extract_terms(composition, type(params), spec) for spec in specs)
        if any(terms != first for terms in others):
            return None
        return composition.covered([*(entry.algorithm for entry in same), params.algorithm])

    def _is_of_records_after(self, same: Sequence[LedgerEntry]) -> bool:
        """Return whether this one may hold several records of a person where an earlier one has promised of persons."""
        return self.request.promised_person is None and any(entry.promised_person is not None for entry in same)

    def _is_repeat(self, entry: LedgerEntry) -> bool:
        """Return whether a release has the same records, key and request."""
        if entry.rows != self.subjects.rows or extract_request(entry.spec) != extract_request(self.request.plain_spec):
            return False
        return entry.key == self.key.reference

    def _explain_refusal(self, same: Sequence[LedgerEntry], others: Sequence[LedgerEntry]) -> str:
        if self.changes:
            counts = Counter(fate for _, fate in self.changes)
            fates = ", ".join(f"{number:,} {fate}" for fate, number in sorted(counts.items()))
            one = self.request.spec.source.chooses_records
            why = "; persons = 'one' takes a record again only as long as it is there unchanged" if one else ""
            return f"{CHANGED}: {fates}{why}"
        last = (same or others)[-1]
        verdict = self.verdicts[last.number]
        if not same:
            return (
                f"these records are in {last.label} already, under another name ({verdict.why}); it is "
                f"source.name = {join_names(last.source)!r}, and no guarantee covers both"
            )
        chains = isinstance(self.request.spec.implementation.composition, GroupComposition)
        if chains and self.subjects.named and self._is_of_records_after(same):
            return f"{last.label} has one record of each person, and without source.person this one may have more"
        if verdict.assumed:
            hint = "" if self.request.spec.source.frame is None else "; a table of others has a source.name of its own"
            return f"{last.label} is of this source, and {verdict.why}; no guarantee covers both{hint}"
        return f"these people are in {last.label} already ({verdict.why}), and no guarantee covers both"

    def _fetch_earlier_groups(self, entries: Sequence[LedgerEntry]) -> NDArray[np.int64]:
        """Group of every record in earlier releases (m, n), -1 where it was not in one."""
        holes: Holes = {"records": TRACES, "position": self.db.row_number("r")}
        with open_for_reading(self.db, self.request.ledger_path):
            tables = [
                self.db.arrow(fill("ledger/earlier", holes | {"members": subjects_query(entry).subquery()}))
                for entry in entries
            ]
        return np.stack([groups["bid"].to_numpy().astype(np.int64, copy=False) for groups in tables])

    # Writing ---

    def read_tables(self, db: Relations, tables: Columns) -> None:
        """Take the digest of the tables: the same release again has the same."""
        self.content = digest_tables(db, tables, "release", ordered=db.keeps_order)

    def record_release(self, path: Path, facts: Facts) -> None:
        """Write the release down, in one step; ``GuaranteeError`` if another one came meanwhile, or it is no repeat."""
        held, groups = facts.count_waiting(), self.source.history.groups
        fields: dict[str, Any] = {"digest": self.request.digest_target(path), "key": self.key.reference}
        fields |= {"content": self.content, "setting": self.source.history.setting}
        fields |= self.subjects.summary_fields | {
            "records": self.source.records - held,
            "fresh": self.findings.fresh - held,
            "held_back": held,
        }
        fields |= {"composes": self.findings.composes, "allowed": self.findings.reason is not None}
        assigned: exp.Table | exp.Subquery = TRACES
        bid: exp.Expr = exp.cast(exp.null(), "INTEGER")
        if self.subjects.follows and groups is not None:
            self.db.register_arrow("positions", stream_positions(groups))
            assigned, bid = self.db.with_bid(TRACES, temp_table("positions")).subquery(), column("bid", "a")
        replaced = self.replaced and self.replaced.number
        fields |= {"replaces": replaced, "draft": str(path.parent.resolve()), "out": False}
        with open_for_writing(self.db, self.request.ledger_path) as book:
            late = find_unwritten_events(book)
            self._require_unchanged(book.with_events(late))
            self.entry = self.request.make_entry(book.next_number, **fields)
            with self.db.in_transaction():
                self.subjects.write_records(self.entry.number, assigned, bid)
                write_events(self.db, book, *late, self.entry.as_event())
        self.db.drop("positions")

    def _require_unchanged(self, book: Book) -> None:
        """Raise ``GuaranteeError`` if what was found no longer holds, or a repeat has come out otherwise."""
        if book.events != self.book.events and self._assess_book(book) != self.findings:
            raise GuaranteeError("another process has published these people meanwhile; publish again")
        again = select_entries(book.entries, (self.findings.again or 0,))
        if again and again[0].content != self.content:
            raise GuaranteeError(
                f"{again[0].label} is of the same records, and differs from the earlier one (another version); "
                "no guarantee covers both"
            )


def _extract_terms(composition: GroupComposition[Any], parameters: type[Parameters], spec: dict[str, Any]) -> Any:
    """Return what must agree between releases for a guarantee over several of them."""
    params = parameters.model_validate(spec["mechanism"])
    columns = [spec["columns"][key] for key in ("quasi_identifiers", "sensitive")]
    coarser = [spec["columns"][key] for key in ("bins", "levels", "others") if key in spec["columns"]]
    return as_plain_json([composition.terms(params), columns, *coarser])


# Keeping --------------------------------------------------------------------------------------------------------------
# Find the ledger of a specification for the verbs that publish, list or verify.

NO_LEDGER = (
    "published without a ledger: whether these subjects were published before, and what they may add up to, is unknown"
)


@dataclass
class NoLedger(Publication):
    """A publication that no ledger knows of."""

    fresh: Key = field(default_factory=system_key, init=False)

    @property
    def key(self) -> Key:
        """Return the publisher's key, or a fresh one."""
        return self.request.key or self.fresh

    def compare_earlier(self) -> None:
        """State that there is no ledger."""
        self.statements = [NO_LEDGER]

    def require_covered(self) -> None:
        """State that there is no ledger."""
        self.compare_earlier()

    def record_release(self, path: Path, facts: Facts) -> None:
        """Write nothing down."""

    def as_facts(self) -> dict[str, Any]:
        """Return that there is no ledger."""
        return {"off": True}


def make_publication(db: EngineSession, source: Records, request: PublicationRequest) -> Publication:
    """Return a publication and what its ledger asks of it."""
    if request.path is None:
        return NoLedger(db, source, request)
    private = isinstance(request.spec.implementation.composition, BudgetComposition)
    return (BudgetLedger if private else GroupLedger)(db, source, request)


def find_ledger(db: EngineSession, spec: Spec) -> Path | None:
    """Return the ledger in which the releases of a source stand, else that of its specification; None without one."""
    path = path_of(spec)
    if path is None:
        return None
    replay_wal(path)
    named = spec.ledger is not None and spec.ledger.database is not None
    if named and not is_default_writable():  # who has no state folder names a place
        return path
    user, names = default_path(), known_as(spec.source)
    with open_for_reading(db, user) as book:
        pass
    other = book.find_other_ledger(names)
    if other is not None and other.exists():
        return other
    here = [entry for entry in book.list_of_source(names) if not entry.withdrawn or entry.epsilon is not None]
    return user if here else path


def prepare_ledger(db: EngineSession, spec: Spec) -> Path | None:
    """Return the ledger in which a release is written down, and note in the user's own where that is.

    Releases of one source stand in one ledger: raises ``UsageError`` if earlier ones stand in another one.
    """
    path, ledger = path_of(spec), find_ledger(db, spec)
    if path is None or ledger is None:
        return None
    names = known_as(spec.source)
    if ledger != path:
        raise UsageError(
            f"releases of {join_names(names)} are recorded in {ledger}; set ledger.database, "
            f"ledger_database=.. or {VARIABLE} to it"
        )
    named = spec.ledger is not None and spec.ledger.database is not None
    user = default_path() if not named or is_default_writable() else path
    if path != user:
        with open_for_reading(db, user) as book:
            known = book.find_other_ledger(names)
        if path != known:
            with open_for_writing(db, user) as book, db.in_transaction():
                write_events(db, book, ("elsewhere", {"source": list(names), "database": str(path)}))
    return path


def require_ledger(spec: Spec | None, database: Path | None = None, *, exists: bool = True) -> Path:
    """Return the ledger at ``database``, or of a specification, or of the user; ``UsageError`` if there is none."""
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
            f"one, give database=.. or set {VARIABLE}"
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
    """Return how a publication chooses; None unless it publishes one record of each person.

    The ledger's secret is made only in ``publishing``; a plan before the first release chooses by the key
    ``otherwise``, or a fresh one.
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
    """Return how a release has chosen, if a key at hand is the one: that of a key file, or else of the ledger.

    Else a choice by another key, whose reference is not what the manifest states. None where none was made.
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
    """Return the key in a file; ``EngineError`` if there is none, since reading a release makes no key."""
    if not path.exists():
        raise EngineError(f"key file {path}: No such file or directory")
    return key_file(path)


def _fetch_earlier_records(db: EngineSession, spec: Spec, path: Path | None, release: Target | None) -> pa.Table | None:
    """Return (id, trace) of the records that releases of the source hold, those before ``release`` if that is given.

    Withdrawn releases count, so that what was chosen can be found again from the same ledger later.
    """
    if path is None or spec.source.id is None:
        return None
    with open_for_reading(db, path) as book:
        entries = _list_earlier_releases(book, spec, release)
        if not entries:
            return None
        return db.arrow(fill("ledger/chosen", {"subjects": SUBJECTS, "among": select_releases(entries)}))


def _list_earlier_releases(book: Book, spec: Spec, release: Target | None) -> Sequence[LedgerEntry]:
    """Return the releases of a source with the same ids and persons, up to one that is among them."""
    named, person = fold_name(spec.source.id or ""), fold_name(spec.source.person or "")
    releases = [
        one
        for one in book.list_of_source(known_as(spec.source))
        if one.subject == named and one.promised_person == person
    ]
    if release is None:
        return releases
    release_digest = digest_release(release)
    numbers = [one.number for one in releases if one.digest == release_digest]
    return [one for one in releases if numbers and one.number < numbers[-1]]
