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
    """One of the figures by which algorithms are compared.

    Attributes:
        key: Its key in JSON.
        title: Its title for people.
        form: The format of its numbers.
        lowest: Whether a lower figure is better.
    """

    key: str
    title: str
    form: str = ".3f"
    lowest: bool = True


@dataclass(frozen=True)
class Alternative:
    """One algorithm in a comparison: its figures by key, or the reason why it can't be used."""

    algorithm: str
    figures: dict[str, Figure]
    refused: str | None = None


@dataclass(frozen=True)
class Alternatives(Outcome):
    """A comparison of all algorithms of a mechanism for one source, with one line of advice."""

    measures: Sequence[AlternativeMeasure]
    rows: Sequence[Alternative]
    advice: str

    def choose_best(self, measure: AlternativeMeasure) -> float | None:
        """Return the best figure of any algorithm by one measure; None if all have the same."""
        figures = {figure for row in self.rows if (figure := row.figures.get(measure.key)) is not None}
        if len(figures) < 2:
            return None
        return min(figures) if measure.lowest else max(figures)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield the table of algorithms with the best figures marked, the reasons for refusals, and the advice."""
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
    """A comparison of thresholds of one mechanism; each row is named by its threshold."""

    @property
    def points(self) -> list[tuple[str, dict[str, Figure]]]:
        """Return (threshold, figures by key) for the thresholds that can be met."""
        return [(row.algorithm, row.figures) for row in self.rows if row.refused is None]

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        rows = [{"threshold": row.algorithm, "refused": row.refused, **row.figures} for row in self.rows]
        return {"curve": rows}

    def plot(self) -> Any:
        """Return a chart of the points; raise ``EngineError`` if altair is not installed."""
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
    """A source that is a table of quasi-identifiers and sensitive columns.

    The engine has it as two relations: ``domain`` counts the sensitive values, ``records`` holds all records.

    Attributes:
        numeric: Whether the one sensitive column is a number or a point in time; else its values are categories.
        most_numbers: The most different numbers that are treated as categories; None if there is no limit.
    """

    numeric: bool
    most_numbers: int | None

    def listed(self, params: Any) -> ListedValues | None:
        """Return the public list of sensitive values; None where the values are taken from the records."""
        return None


class ItemSetShape(ABC, Generic[P]):
    """A source of item sets, which the engine has as relations ``universe``, ``baskets`` and ``contents``."""

    @abstractmethod
    def universe(self, params: P) -> Universe:
        """Return what lists the items that may occur."""


class CategoricalShape(ABC, Generic[P]):
    """A source whose columns all become dimensions of a contingency table; they count as sensitive columns."""

    @abstractmethod
    def domains(self, params: P) -> Mapping[str, Universe]:
        """Return what lists the values of each column, by its name."""


# What several releases of the same subjects are together ---


class NoComposition:
    """No guarantee covers two releases together, so a second release of the same records is refused."""


@dataclass(frozen=True)
class LedgerRelease:
    """A release in a ledger: its number, and the table that says in which bucket (bid) each record (id) was."""

    number: int
    members: exp.Table


class GroupComposition(ABC, Generic[P]):
    """The rules for mechanisms with one guarantee for a whole chain of releases of the same subjects."""

    @abstractmethod
    def terms(self, params: P) -> Any:
        """Return the parameters that must be the same in all releases of a chain; columns must be the same, too."""

    @abstractmethod
    def covered(self, algorithms: Sequence[str]) -> str | None:
        """Return in words what releases by these algorithms, oldest first, guarantee together.

        The result is None if no guarantee covers them.
        """

    @abstractmethod
    def comparable(self, names: Sequence[str], manifests: Sequence[Manifest]) -> None:
        """Raise ``UsageError`` unless the releases can be compared; ``names`` are those of their files."""

    @abstractmethod
    def published(self, db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
        """Return the checks of what an adversary sees in every pair of published releases.

        Release i is attached to ``db`` as database ``r<i>``.
        """

    @abstractmethod
    def by_record(
        self, db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
    ) -> list[Check]:
        """Return the checks of a chain that follow each record through all releases.

        Args:
            db: Where the tables of members are.
            releases: The releases with their members, by rising number.
            known: The query for (id, value) of all records.
            manifest: The manifest of the last release, for its columns.
        """


Unit = Literal["presence", "value"]


class BudgetComposition(ABC, Generic[P]):
    """The rules for mechanisms whose releases add up the budgets that they spend.

    Exact counts of records are not covered by the guarantee, so they are stated nowhere.

    Attributes:
        unit: What the budget protects: a record's presence, or one value of a record whose presence is known.
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
        """Return the rho that a release spends under zero-concentrated differential privacy; None for pure noise."""


Shape = TableShape | ItemSetShape[Any] | CategoricalShape[Any]
Composition = NoComposition | GroupComposition[Any] | BudgetComposition[Any]


@dataclass(frozen=True)
class Proposal:
    """Parameters that ``init`` proposes for the table ``[mechanism]`` of a specification, with remarks as comments.

    Attributes:
        promise: What the release promises and what it does not protect, one sentence each.
        precision: The errors of counts of the worst protected value; None where no closed form is known.
        remarks: Further comments.
        left_out: Columns of the source that can't be published by this mechanism.
        decide: Parameters that were read from the records, so that the publisher has to confirm them.
    """

    parameters: Json
    promise: tuple[str, ...] = ()
    precision: Precision | None = None
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    decide: Json = field(default_factory=dict)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the promise and the precision, one line for each sentence."""
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
        any_rule: Whether parameters are wanted that can be met, even if the release is of little use.
        persons: Whether one record is published of each person who has several.
        first: Whether that is the first one by some order, so that no sensitive value decides which it is.
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
        """Return what a promise calls a record: it is a person only where each person has one record."""
        return "a person" if self.persons else "a record"


# The base class -------------------------------------------------------------------------------------------------------

NO_CURVE = "curve: this mechanism has no threshold of beliefs; 'privsql evaluate' publishes and measures"


class Mechanism(ABC, Generic[P, F]):
    """The algorithms of one family: how their releases are planned, made, proved, read and attacked.

    To add a mechanism, write a subclass in a folder beside this module and add a line to ``registry``. Code outside the
    folder uses only the methods of this class. Instances have no state: everything that a release depends on is an
    argument.

    A method is abstract unless its body is right for every mechanism. So a subclass that forgets one fails when it is
    loaded.

    ``P`` is the type of the parameters that a publisher sets, ``F`` that of the facts that a release states.
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
        """Return the facts that a release by ``publish`` would have.

        Where releases add up budgets, the plan is made before the budget is spent. So every reason to refuse a release
        must be found here.

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
        """Predict releases with other thresholds than the stated one: what they promise and how good their answers are.

        Raises:
            UsageError: The mechanism has no threshold of beliefs.
        """

    def foresee_precision(self, params: P, bounds: Sequence[VerifiedBound], columns: int) -> Precision | None:
        """Return the errors of counts in closed form, before anything is measured; None where no form is known.

        A private mechanism reads public figures only, and never ``bounds``.

        Args:
            params: The parameters.
            bounds: The bounds of values, with the highest belief in each and its records.
            columns: The number of quasi-identifiers.
        """
        return None

    @abstractmethod
    def publish(self, db: Relations, source: Records, params: P, key: Key) -> F:
        """Make the tables of a release in database ``release`` of ``db``, and return the facts for its manifest."""

    # What a release holds ---

    @abstractmethod
    def require_columns(self, manifest: Manifest, params: P) -> None:
        """Raise ``UsageError`` if the manifest states columns that a release of this mechanism can't have."""

    @abstractmethod
    def views(self, manifest: Manifest) -> Views:
        """Return the queries of the views that a release has beside its tables, by name.

        The sum of the weights of view ``WEIGHTED`` over some rows estimates a count.
        """

    def functions(self, manifest: Manifest) -> IntervalFunctions | None:
        """Return the SQL functions that count rows of ``WEIGHTED`` with intervals; None if variances are not known."""
        return None

    # The proof of a release ---

    @abstractmethod
    def checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return the checks that need nothing but the release; they may make views for the methods that follow."""

    @abstractmethod
    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return the slow checks, which ``verify`` runs and ``publish`` does not.

        A release by ``publish`` passes them by construction. They are still part of the proof, because somebody else's
        release may have been made in another way.
        """

    @abstractmethod
    def source_checks(self, release: CheckedRelease[P, F], source: Records, params: P) -> list[Check]:
        """Return the checks of a release against its source.

        Args:
            release: The release, after ``checks`` were run.
            source: The records, sorted.
            params: The parameters of the specification that names the source.
        """

    @abstractmethod
    def measured(self, release: CheckedRelease[P, F]) -> Facts:
        """Return the facts that follow from the tables and that no check compares; ``verify`` compares and shows them.

        It is called after ``checks`` were run.
        """

    @abstractmethod
    def bounds(self, release: CheckedRelease[P, F]) -> list[VerifiedBound]:
        """Return the bounds that hold for each value if all checks hold; it is called after ``checks`` were run."""

    # Answers ---

    @abstractmethod
    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """Return an object that reads an analyst's SQL and answers it from the open release."""

    @abstractmethod
    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return how far the answers of a release are from those of its source."""

    # Attacks ---

    @abstractmethod
    def attack_view(self) -> type[AttackView] | None:
        """Return the class that reads a release as arrays, for adversaries who learn from quasi-identifiers.

        The result is None if no adversary does.
        """

    @abstractmethod
    def adversaries(self) -> Sequence[Adversary[Any]]:
        """Return the adversaries that are run against a release, in the order of the table; there is at least one."""

    @abstractmethod
    def joint_attacks(self) -> Sequence[JointAttack]:
        """Return the attacks on two releases together; those are run that the mechanisms of both releases list."""

    @abstractmethod
    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return how often an attacker who learns from the release is right; None if no model predicts that."""

    # Words ---

    @abstractmethod
    def promise(self, params: P) -> str:
        """Return the bound that a release guarantees, in a few words."""

    @abstractmethod
    def words(self, params: P) -> ReleasePromises:
        """Return what a release promises and what it does not, in sentences for readers who do not know the field."""

    @abstractmethod
    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the parts of an open release, such as its buckets or its noisy tree, as tables for people.

        It is called after ``checks`` were run.
        """

    # What follows for every mechanism ---

    @property
    def states_counts(self) -> bool:
        """Return whether exact counts of records may be published; they may not where a release protects presence."""
        return not (isinstance(self.composition, BudgetComposition) and self.composition.unit == "presence")

    def define_views(self, manifest: Manifest) -> list[ViewDefinition]:
        """Return the definitions of the release's views: NAME_weighted first, then any others."""
        return [
            ViewDefinition(f"{manifest.name}_{ending}", query, VIEW_COMMENTS[ending])
            for ending, query in self.views(manifest).items()
        ]

    def tables(self, manifest: Manifest) -> Columns:
        """Return the columns of the tables that a release holds, with their types."""
        tables = self.layout.items()
        return {name: [(called, kind) for _, called, kind in one.place_columns(manifest.roles)] for name, one in tables}

    def read(self, manifest: Manifest) -> P:
        """Return the parameters of a release; raise ``UsageError`` if parameters, facts or columns are not valid."""
        try:
            self.read_facts(manifest)
            params = self.parameters.model_validate(manifest.parameters)
        except (ValidationError, RecursionError, ArithmeticError) as error:
            raise UsageError(f"its manifest states no valid {self.facts.title}") from error
        self.require_columns(manifest, params)
        return params

    def read_facts(self, manifest: Manifest) -> F:
        """Return the facts of a release; raise ``ValidationError`` if they are not valid."""
        return self.facts.model_validate(manifest.facts)

    def read_release(self, db: Relations, manifest: Manifest, database: str | None) -> CheckedRelease[P, F]:
        """Return the release as its checks need it; raise ``UsageError`` as ``read`` does."""
        from privsql.model.checks import CheckedRelease

        params, facts = self.read(manifest), self.read_facts(manifest)
        return CheckedRelease(db, manifest, params, facts, database, self.layout)
