"""The base class of mechanisms, and the values that a mechanism hands to other rooms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ValidationError

from privsql.engine.database import IntervalFunctions, Relations, ViewDefinition
from privsql.errors import UsageError
from privsql.model.parameters import Facts, Parameters
from privsql.outcomes import Cell, Outcome, Part, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from sqlglot import exp

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.answer import Answers
    from privsql.attacks.scene import AttackView, Finding, ReleaseView
    from privsql.attacks.suite import Adversary, JointAttack
    from privsql.keyed_random import Key
    from privsql.model.checks import Check, CheckedRelease, VerifiedBound
    from privsql.model.explanations import ReleasePromises, Structure
    from privsql.model.manifest import Manifest
    from privsql.model.precision import Precision
    from privsql.model.records import Profile, Records
    from privsql.model.tables import Tables
    from privsql.model.universes import ListedValues, Universe

# Algorithms beside each other -----------------------------------------------------------------------------------------
# For one specification, the algorithms of a mechanism stand beside each other, with what each would cost and tell.

Figure = float | int | None


@dataclass(frozen=True)
class AlternativeMeasure:
    """A figure by which algorithms are compared.

    Attributes:
        key: Its key in JSON.
        title: Its title for people.
        form: How it is formatted.
        lowest: Whether the lowest figure is the best.
    """

    key: str
    title: str
    form: str = ".3f"
    lowest: bool = True


@dataclass(frozen=True)
class Alternative:
    """One algorithm: its figures by key, or why it refuses."""

    algorithm: str
    figures: dict[str, Figure]
    refused: str | None = None


@dataclass(frozen=True)
class Alternatives(Outcome):
    """All algorithms of a mechanism, what is measured of them, and one line of advice."""

    measures: Sequence[AlternativeMeasure]
    rows: Sequence[Alternative]
    advice: str

    def choose_best(self, measure: AlternativeMeasure) -> float | None:
        """Return the best figure that any algorithm has; None where they do not differ."""
        figures = {figure for row in self.rows if (figure := row.figures.get(measure.key)) is not None}
        if len(figures) < 2:
            return None
        return min(figures) if measure.lowest else max(figures)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield all algorithms, the best of each figure marked, why some refuse, and the advice."""
        feasible = [row for row in self.rows if row.refused is None]
        lines = []
        for measure in self.measures:
            best, figures = self.choose_best(measure), [row.figures.get(measure.key) for row in feasible]
            if any(figure is not None for figure in figures):
                texts = (
                    None if one is None else Cell(format(one, measure.form), "best" if one == best else "")
                    for one in figures
                )
                lines.append((measure.title, *texts))
        columns = ("", *(row.algorithm for row in feasible))
        yield Table(columns, lines, range(1, len(columns)), wide=True)
        yield from (f"{row.algorithm}: {row.refused}" for row in self.rows if row.refused is not None)
        yield self.advice

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        rows = [{"algorithm": row.algorithm, "refused": row.refused, **row.figures} for row in self.rows]
        return {"algorithms": rows, "advice": self.advice}


@dataclass(frozen=True)
class Curve(Alternatives):
    """Thresholds of a mechanism beside each other; rows are named by their threshold."""

    @property
    def points(self) -> list[tuple[str, dict[str, Figure]]]:
        """Return (threshold, figures by key) of those that can be met."""
        return [(row.algorithm, row.figures) for row in self.rows if row.refused is None]

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        rows = [{"threshold": row.algorithm, "refused": row.refused, **row.figures} for row in self.rows]
        return {"curve": rows}

    def plot(self) -> Any:
        """Return the picture of the points; ``EngineError`` without altair."""
        from privsql import plot

        return plot.draw_picture(plot.chart_curve, self.points)


# Values of a mechanism ------------------------------------------------------------------------------------------------

Json = dict[str, Any]
Columns = dict[str, list[tuple[str, str]]]  # tables of a release: name -> (column, type)
Views = dict[str, "exp.Query"]  # views of a release, by the end of their names: NAME_weighted, NAME_pairs
P = TypeVar("P", bound=Parameters)
F = TypeVar("F", bound=Facts)


WEIGHTED = "weighted"  # the view of every release whose sums of weights are counts
VIEW_COMMENTS = {
    WEIGHTED: "count with SUM(weight): weights are estimates, and may be negative",
    "pairs": "count with SUM(weight): every record beside every value of its bucket, by the value's share of that",
}


# The shape of the records ---


@dataclass(frozen=True)
class TableShape:
    """Quasi-identifiers and sensitive columns: ``domain`` counts the sensitive values, ``records`` holds all.

    Attributes:
        numeric: Whether its one sensitive column is a number or a point in time; else values are categories.
        most_numbers: The most different numbers that are taken for categories; None for any number.
    """

    numeric: bool
    most_numbers: int | None

    def listed(self, params: Any) -> ListedValues | None:
        """Return the public list of sensitive values; None where the records tell them, as of every plain table."""
        return None


class ItemSetShape(ABC, Generic[P]):
    """Item sets: relations ``universe``, ``baskets`` and ``contents``."""

    @abstractmethod
    def universe(self, params: P) -> Universe:
        """Return where the items are listed."""


class CategoricalShape(ABC, Generic[P]):
    """Columns of a contingency table, as sensitive ones of a table."""

    @abstractmethod
    def domains(self, params: P) -> Mapping[str, Universe]:
        """Return by column where its values are listed."""


# What several releases of the same subjects are together ---


class NoComposition:
    """Nothing is promised of two releases: a second one is refused."""


@dataclass(frozen=True)
class LedgerRelease:
    """A release in a ledger: its number, and the table of (id, bid) of its records."""

    number: int
    members: exp.Table


class GroupComposition(ABC, Generic[P]):
    """One guarantee covers chains of releases of the same subjects."""

    @abstractmethod
    def terms(self, params: P) -> Any:
        """Return what must agree between the releases of a chain, besides their columns."""

    @abstractmethod
    def covered(self, algorithms: Sequence[str]) -> str | None:
        """Return in words what releases by these algorithms, oldest first, guarantee together.

        The result is None where nothing covers them.
        """

    @abstractmethod
    def comparable(self, names: Sequence[str], manifests: Sequence[Manifest]) -> None:
        """Raise ``UsageError`` unless the releases can be compared; ``names`` are those of their files."""

    @abstractmethod
    def published(self, db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
        """Return the checks of what an adversary sees in every pair of releases.

        Release i is attached to ``db`` as database ``r<i>``.
        """

    @abstractmethod
    def by_record(
        self, db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
    ) -> list[Check]:
        """Return the checks of the records of all releases.

        Args:
            db: Where the tables of members lie.
            releases: The releases with their members, by rising number.
            known: The query for (id, value) of all records.
            manifest: That of the last release, for its columns.
        """


Unit = Literal["presence", "value"]


class BudgetComposition(ABC, Generic[P]):
    """Releases add up what they spend. Exact counts are no part of the guarantee, so none is stated anywhere.

    Attributes:
        unit: What the budget protects: a record's presence, or one value of a record that is known to be there.
    """

    unit: ClassVar[Unit]

    @abstractmethod
    def epsilon(self, params: P) -> Fraction:
        """Return the epsilon that a release spends."""

    @abstractmethod
    def delta(self, params: P) -> Fraction:
        """Return the delta that a release spends; 0 for pure differential privacy."""

    @abstractmethod
    def rho(self, params: P) -> Fraction | None:
        """Return the rho that a zero-concentrated release spends; None for any other."""


Shape = TableShape | ItemSetShape[Any] | CategoricalShape[Any]
Composition = NoComposition | GroupComposition[Any] | BudgetComposition[Any]


@dataclass(frozen=True)
class Proposal:
    """Parameters for the table ``[mechanism]`` of a specification, with remarks on them as comments.

    Attributes:
        promise: What the release promises, and what it does not protect: a sentence each.
        precision: The errors of counts of the worst protected value; None where no closed form tells them.
        remarks: Further comments.
        left_out: Columns of the source that have no place in what can be published.
        decide: Parameters that the publisher has to confirm, since they were read from the records.
    """

    parameters: Json
    promise: tuple[str, ...] = ()
    precision: Precision | None = None
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    decide: Json = field(default_factory=dict)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the promise and the precision, a line for each sentence."""
        if self.precision is None:
            return self.promise
        text = self.precision.warning if self.precision.is_useless else f"Precision: {self.precision.text}."
        return (*self.promise, text)


@dataclass(frozen=True)
class ProfiledSource:
    """A source as ``init`` sees it.

    Attributes:
        columns: What is known of its columns.
        records: Prepares its records under the roles that ``init`` chose.
        harmless: Values of the sensitive column that harm nobody.
        protect: The values that the publisher wants to protect, if any are named.
        weights: Whether a survey weight is published.
        any_rule: Whether anything that can be met is wanted, where nothing useful can.
        persons: Whether one record of each person is published, of those who have several.
        first: Whether that is the first one, which no sensitive value decides.
    """

    columns: Sequence[Profile]
    records: Callable[[], Records]
    harmless: Sequence[str] = ()
    protect: Sequence[str] = ()
    weights: bool = False
    any_rule: bool = False
    persons: bool = False
    first: bool = False

    @property
    def of_a(self) -> str:
        """Return what a record is called in a promise: a person only where each person has one."""
        return "a person" if self.persons else "a record"


# The base class -------------------------------------------------------------------------------------------------------

NO_CURVE = "curve: this mechanism has no threshold of beliefs; 'privsql evaluate' publishes and measures"


class Mechanism(ABC, Generic[P, F]):
    """The algorithms of one family: how their releases are planned, made, proved, read and attacked.

    A mechanism is a subclass in a folder beside this module and a line of ``registry``. Nothing outside the folder
    knows more of it than this class. An instance holds nothing: all that a release depends on is an argument.

    Every method is abstract unless its body is true of every mechanism, so what is forgotten fails when the mechanism
    is loaded. ``P`` are the parameters that a publisher sets, ``F`` the facts that a release states.
    """

    kind: ClassVar[str]
    """The name that a specification gives it. Mechanisms of one kind have the same parameters and other algorithms."""
    algorithms: ClassVar[tuple[str, ...]]
    """The algorithms of the kind whose releases it makes."""
    parameters: type[P]
    """The table ``[mechanism]`` of a specification; JSON Schema and flags follow from it."""
    facts: type[F]
    """The ``facts`` of a release: in its manifest, in JSON and for people."""
    shape: ClassVar[Shape]
    """Which records it is given; the same for all algorithms of a kind, up to lists of values."""
    composition: ClassVar[Composition]
    """How several of its releases combine."""
    layout: ClassVar[Tables]
    """The tables of a release, besides its manifest."""
    advice: ClassVar[tuple[str, ...]]
    """Advice that lowers what an attacker learns beyond the promise."""

    # From a specification to a release ---

    @abstractmethod
    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Return feasible parameters for a source; ``init`` asks the mechanism of a kind's default algorithm."""

    @abstractmethod
    def plan(self, db: Relations, source: Records, params: P) -> Facts:
        """Return the facts of the release that ``publish`` would make.

        Where releases add up budgets, the plan is made before the budget is spent: what can be refused is refused here.

        Raises:
            InfeasibleError: The records can't be published under these parameters.
            UsageError: The parameters do not fit the source.
        """

    @abstractmethod
    def compare_algorithms(self, db: Relations, source: Records, params: P) -> Alternatives:
        """Return the figures of all algorithms of the kind for one specification; nothing is written.

        Raises:
            UsageError: Plans of these algorithms tell nothing that could be compared.
        """

    @abstractmethod
    def predict_curve(self, db: Relations, source: Records, params: P) -> Curve:
        """Return what thresholds beside the stated one promise, and what they are predicted to give.

        Raises:
            UsageError: The mechanism has no threshold of beliefs.
        """

    def foresee_precision(self, params: P, bounds: Sequence[VerifiedBound], columns: int) -> Precision | None:
        """Return the errors of counts in closed form; None where none is known. Nothing is measured.

        A private mechanism reads public figures only, and never ``bounds``.

        Args:
            params: The parameters.
            bounds: The bounds of values, with the highest belief in each and its records.
            columns: The number of quasi-identifiers.
        """
        return None

    @abstractmethod
    def publish(self, db: Relations, source: Records, params: P, key: Key) -> F:
        """Make the tables of a release in database ``release`` of ``db``; return the facts for its manifest."""

    # What a release holds ---

    @abstractmethod
    def require_columns(self, manifest: Manifest, params: P) -> None:
        """Raise ``UsageError`` for columns that no release of this mechanism has."""

    @abstractmethod
    def views(self, manifest: Manifest) -> Views:
        """Return the views of a release beside its tables; sums of the weights of ``WEIGHTED`` are counts."""

    def functions(self, manifest: Manifest) -> IntervalFunctions | None:
        """Return the functions that count rows of ``WEIGHTED`` with intervals; None where it states no variance."""
        return None

    # The proof of a release ---

    @abstractmethod
    def checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return the checks that need the release alone; they may make views for the methods that follow."""

    @abstractmethod
    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return the checks that take longer: ``verify`` makes them, ``publish`` does not.

        They follow from how ``publish`` makes a release, and are no less part of the proof: a stranger's release may
        have been made otherwise.
        """

    @abstractmethod
    def source_checks(self, release: CheckedRelease[P, F], source: Records, params: P) -> list[Check]:
        """Return the checks against the source.

        Args:
            release: The release; ``checks`` have been made.
            source: The records, sorted.
            params: Those of the specification that names the source.
        """

    @abstractmethod
    def measured(self, release: CheckedRelease[P, F]) -> Facts:
        """Return the facts that follow from the tables and that no check compares; ``verify`` compares and shows them.

        It is called after ``checks``.
        """

    @abstractmethod
    def bounds(self, release: CheckedRelease[P, F]) -> list[VerifiedBound]:
        """Return the bounds that hold, value by value, once all checks do; it is called after ``checks``."""

    # Answers ---

    @abstractmethod
    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """Return the open release as one that reads an analyst's SQL and answers it."""

    @abstractmethod
    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return the errors of a release's answers, as its source tells them."""

    # Attacks ---

    @abstractmethod
    def attack_view(self) -> type[AttackView] | None:
        """Return the release as arrays, for adversaries who learn from quasi-identifiers; None if it has none."""

    @abstractmethod
    def adversaries(self) -> Sequence[Adversary[Any]]:
        """Return the adversaries that are run against a release, in the order of the table; there is at least one."""

    @abstractmethod
    def joint_attacks(self) -> Sequence[JointAttack]:
        """Return the attacks that need a second release; on two releases, those run that both mechanisms name."""

    @abstractmethod
    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return how often an attacker who learns from the release is right; None where no model tells that."""

    # Words ---

    @abstractmethod
    def promise(self, params: P) -> str:
        """Return the bound that a release guarantees, in a few words."""

    @abstractmethod
    def words(self, params: P) -> ReleasePromises:
        """Return what a release promises and what it does not, in sentences for readers who do not know it."""

    @abstractmethod
    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the parts of an open release, such as its buckets or its noisy tree, for people.

        It is called after the checks.
        """

    # What follows for every mechanism ---

    @property
    def states_counts(self) -> bool:
        """Return whether exact counts of records may be published; they may not where a release protects presence."""
        return not (isinstance(self.composition, BudgetComposition) and self.composition.unit == "presence")

    def define_views(self, manifest: Manifest) -> list[ViewDefinition]:
        """Return the views of a release: NAME_weighted first, then what else its mechanism has."""
        return [
            ViewDefinition(f"{manifest.name}_{ending}", query, VIEW_COMMENTS[ending])
            for ending, query in self.views(manifest).items()
        ]

    def tables(self, manifest: Manifest) -> Columns:
        """Return the columns of the tables that a release holds, with their types."""
        tables = self.layout.items()
        return {name: [(called, kind) for _, called, kind in one.place_columns(manifest.roles)] for name, one in tables}

    def read(self, manifest: Manifest) -> P:
        """Return the parameters of a release; ``UsageError`` if these or its facts are none that it can have."""
        try:
            self.read_facts(manifest)
            params = self.parameters.model_validate(manifest.parameters)
        except (ValidationError, RecursionError, ArithmeticError) as error:
            raise UsageError(f"its manifest states no valid {self.facts.title}") from error
        self.require_columns(manifest, params)
        return params

    def read_facts(self, manifest: Manifest) -> F:
        """Return the facts of a release; ``ValidationError`` if it is not what ``read`` takes."""
        return self.facts.model_validate(manifest.facts)

    def read_release(self, db: Relations, manifest: Manifest, database: str | None) -> CheckedRelease[P, F]:
        """Return a release for its checks; ``UsageError`` as of ``read``."""
        from privsql.model.checks import CheckedRelease

        params, facts = self.read(manifest), self.read_facts(manifest)
        return CheckedRelease(db, manifest, params, facts, database, self.layout)
