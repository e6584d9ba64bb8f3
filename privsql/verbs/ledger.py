"""List the publisher's ledger, withdraw releases that were never distributed, and set caps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.calls import PathLike, as_exact_number, as_optional_path, as_path
from privsql.engine.open import open_scratch
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.base import BudgetComposition
from privsql.outcomes import Outcome, Part, Table
from privsql.releases.contents import digest_release
from privsql.releases.draft import is_occupied
from privsql.releases.ledger.book import (
    Book,
    LedgerEntry,
    make_cap,
    open_for_reading,
    open_for_writing,
    write_events,
)
from privsql.releases.ledger.budget import describe_cap
from privsql.releases.ledger.composition import require_ledger, require_names, spell_command
from privsql.source.keywords import SpecLike, as_spec
from privsql.source.population import require_population
from privsql.source.targets import as_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal
    from pathlib import Path

    from privsql.releases.ledger.budget import Budget
    from privsql.source.spec import Spec


@dataclass(frozen=True)
class LedgerListing(Outcome):
    """The releases that a ledger holds of one population or of all, oldest first.

    ``budget`` states what the differentially private releases of the population spend together, and its caps. It is
    None if the listing covers all populations.
    """

    title = "Releases of the ledger"

    database: Path
    releases: tuple[LedgerEntry, ...]
    population: tuple[str, ...] = ()
    budget: Budget | None = None
    warnings: tuple[str, ...] = ()  # of ``cap``: why its name may be misspelled
    json_keys = ("releases", "database", "population", "spent", "cap", "delta")

    @property
    def spent(self) -> Fraction | None:
        """Return the epsilon that the releases spent, at the delta in ``delta``; None if all populations are listed."""
        return None if self.budget is None else self.budget.spent

    @property
    def cap(self) -> Fraction | None:
        """Return the most epsilon that may be spent; None if there is no cap, or all populations are listed."""
        return None if self.budget is None or self.budget.cap is None else self.budget.cap.epsilon

    @property
    def delta(self) -> Fraction | None:
        """Return the delta for which ``spent`` and ``cap`` are stated; None if all populations are listed."""
        return None if self.budget is None else self.budget.delta

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def __getitem__(self, number: int) -> LedgerEntry:
        return self.releases[number]

    def find_release(self, number: int) -> LedgerEntry:
        """Return the release that has this number in the ledger.

        Raises:
            UsageError: The listing has no such release.
        """
        found = next((entry for entry in self.releases if entry.number == number), None)
        if found is None:
            listed = spell_command(self.database)
            raise UsageError(f"release {number} is not in the ledger {self.database}; {listed} lists them")
        return found

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: a table of the releases, what they guarantee together, and the budget.

        The table fits into 80 columns.
        """
        rows = [
            (
                one.number,
                one.made[:10],
                one.name,
                one.mechanism,
                *(None if number is None else f"{number:,}" for number in (one.records, one.fresh)),
            )
            for one in self
        ]
        yield Table(("release", "made", "name", "mechanism", "records", "new"), rows, (4, 5))
        for entry in self:
            yield f"{entry.number}: {entry.composes}{'; withdrawn' if entry.withdrawn else ''}"
        if self.spent or self.cap is not None:
            yield self.budget_line

    @property
    def budget_line(self) -> str:
        """Return the line that states what was spent, and the cap."""
        facts = self.as_json()
        return f"epsilon: {facts['spent']} spent, {describe_cap(facts['cap'], facts['delta'])}"


def ledger(spec: SpecLike | None = None, *, ledger: PathLike | None = None) -> LedgerListing:
    """List the releases that a ledger holds of the population of a specification, or of all populations.

    Args:
        spec: The specification; None for all populations.
        ledger: The file of the ledger; by default that of the specification, or the user's own.

    Raises:
        UsageError: There is no ledger.
    """
    source_spec = as_spec(spec) if spec is not None else None
    path = require_ledger(source_spec, as_optional_path(ledger, "ledger"))
    population = () if source_spec is None else require_population(source_spec.source)
    with open_scratch() as db, open_for_reading(db, path) as book:
        return _list_releases(path, book, population)


def _list_releases(path: Path, book: Book, population: tuple[str, ...]) -> LedgerListing:
    if not population:
        return LedgerListing(path, book.entries)
    return LedgerListing(path, tuple(book.list_of_population(population)), population, book.find_budget(population))


def withdraw(release: PathLike | int, *, ledger: PathLike | None = None) -> LedgerEntry:
    """Record that nobody has received a release, so that its records can be published again.

    A privacy budget that the release spent stays spent.

    Args:
        release: The file of the release, or its number.
        ledger: The file of the ledger; by default the user's own.

    Raises:
        UsageError: The ledger does not hold the release, or has it as withdrawn already.
    """
    path = require_ledger(None, as_optional_path(ledger, "ledger"))
    named = str(release if isinstance(release, int | str) else as_path(release))
    with open_scratch() as db, open_for_writing(db, path) as book:
        entry = _find_entry(book, named, path)
        with db.in_transaction():
            write_events(db, book, ("withdrawn", {"number": entry.number, "why": "never distributed"}))
    return entry


def _find_entry(book: Book, release: str, path: Path) -> LedgerEntry:
    """Return the last release in the ledger with this number, file or place that is not withdrawn.

    Args:
        book: The open ledger.
        release: The number, file or place.
        path: The file of the ledger, for the message.

    Raises:
        UsageError: The ledger has no such release.
    """
    target = as_target(release)
    there = [entry for entry in book.live_entries if entry.target == str(target.resolve())]
    if is_occupied(target):
        digest = digest_release(target)
        alike = [entry for entry in book.live_entries if entry.digest == digest]
        alike = [entry for entry in alike if entry in there] or alike
    else:
        numbered = [entry for entry in book.live_entries if release.isdecimal() and entry.number == int(release)]
        alike = numbered if release.isdecimal() else there
    if not alike:
        place = release if release.isdecimal() else target
        raise UsageError(f"{place} is not a current release of the ledger {path}; {spell_command(path)} lists them")
    return alike[-1]


def cap(
    spec: SpecLike,
    epsilon: Fraction | Decimal | str | float,
    *,
    delta: Fraction | Decimal | str | float | None = None,
    ledger: PathLike | None = None,
) -> LedgerListing:
    """Cap what all differentially private releases of a population may spend together, and record the cap.

    Only this verb raises the epsilon or delta of a cap. A specification that asks for a lower epsilon lowers the cap
    again. The result has a warning if the ledger has no release of a population of that name.

    Args:
        spec: A specification, or the name of a population.
        epsilon: The new cap.
        delta: The delta of the cap. What the releases spend is added up as an epsilon at this delta, and that epsilon
            may not exceed the cap. By default it is that of the existing cap, else of the releases, else of the
            specification.
        ledger: The file of the ledger; by default that of the specification, or the user's own. If the latter holds no
            release of the named population, but knows another ledger that does, the cap is set in that other one.

    Raises:
        UsageError: Epsilon is not positive; delta is not a probability, or is 0 although a release has a delta above 0;
            or the specification does not say whose records the source has.
    """
    most = as_exact_number(epsilon, "cap")
    if most <= 0:
        raise UsageError(
            f"cap: {fraction_text(most)} is not above 0; give the largest epsilon that may be spent, such as 2"
        )
    named = isinstance(spec, str) and not spec.lower().endswith(".toml")
    source_spec = None if named else as_spec(spec)
    if source_spec is not None:
        require_names(source_spec)
    population = (str(spec),) if source_spec is None else require_population(source_spec.source)
    path = require_ledger(source_spec, as_optional_path(ledger, "ledger"), exists=named)
    with open_scratch() as db:
        if named and ledger is None:
            with open_for_reading(db, path) as book:
                other = None if book.list_of_population(population) else book.find_other_ledger(population)
            path = other if other is not None and other.exists() else path
        with open_for_writing(db, path) as book, db.in_transaction():
            is_new = named and not book.list_of_population(population)
            warnings = (_describe_nobody(book, path, str(spec)),) if is_new else ()
            at = _choose_cap_delta(source_spec, book.find_budget(population), delta)
            write_events(db, book, make_cap(population, most, at, "publisher"))
        with open_for_reading(db, path) as book:
            return replace(_list_releases(path, book, population), warnings=warnings)


def _describe_nobody(book: Book, path: Path, name: str) -> str:
    """Return a warning that the ledger has no release of the population ``name``, which may be misspelled."""
    other = book.find_other_ledger((name,))
    text = f"the ledger {path} holds no release of {name!r}, and the cap is for those to come"
    text += f"; earlier ones were recorded in {other}" if other is not None else ""
    known = dict.fromkeys(one for entry in book.entries for one in entry.population)
    near = ", ".join(map(repr, get_close_matches(name, known, cutoff=0)))
    return f"{text}; names of releases that are most like it: {near}" if near else text


def _choose_cap_delta(spec: Spec | None, budget: Budget, delta: Fraction | Decimal | str | float | None) -> Fraction:
    """Return the delta of a new cap. What releases spend is added up as an epsilon at this delta, which is capped.

    Args:
        spec: The specification; None if the caller named a population.
        budget: What the population has spent, and its current cap.
        delta: The delta that the caller gives; None for the default.

    Raises:
        UsageError: The delta is not from 0 to below 1, or is 0 although a release has a delta above 0.
    """
    if delta is not None:
        at, is_needed = as_exact_number(delta, "delta"), any(one.delta for one in budget.earlier)
        if not 0 <= at < 1 or (is_needed and not at):
            why = "releases of this population have a delta, and at 0 no epsilon" if is_needed else "it is no chance"
            raise UsageError(f"delta: {fraction_text(at)} can't be that of a cap: {why}; give one such as 0.000001")
        return at
    if spec is None or budget.cap is not None or budget.delta:
        return budget.delta
    composition = spec.implementation.composition
    return composition.delta(spec.mechanism) if isinstance(composition, BudgetComposition) else Fraction(0)
