"""The base class of mechanisms, and the values that a mechanism hands to other packages."""

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

# Comparing algorithms -------------------------------------------------------------------------------------------------
# The algorithms of a mechanism are compared for one specification.

Figure = float | int | None


@dataclass(frozen=True)
class AlternativeMeasure:
    """One of the figures by which algorithms are compared.

    Attributes:
        key: The key of the figure in JSON.
        title: The title of the figure for people.
        form: The format of its numbers, as for ``format``.
        lowest: Whether a lower figure is better.
    """

    key: str
    title: str
    form: str = ".3f"
    lowest: bool = True


@dataclass(frozen=True)
class Alternative:
    """One algorithm in a comparison.

    Attributes:
        algorithm: The name of the algorithm.
        figures: Its figures by key; empty if it can't be used.
        refused: The reason why it can't be used; None if it can.
    """

    algorithm: str
    figures: dict[str, Figure]
    refused: str | None = None


@dataclass(frozen=True)
class Alternatives(Outcome):
    """A comparison of all algorithms of a mechanism for one source.

    Attributes:
        measures: The figures by which they are compared.
        rows: The algorithms with their figures.
        advice: One line of advice on which to choose.
    """

    measures: Sequence[AlternativeMeasure]
    rows: Sequence[Alternative]
    advice: str

    def choose_best(self, measure: AlternativeMeasure) -> float | None:
        """Return the best figure of any algorithm by one measure, which is marked in the table.

        The result is None if no algorithm is better than another.
        """
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
        """Return the comparison as the object that ``--json`` prints."""
        rows = [{"algorithm": row.algorithm, "refused": row.refused, **row.figures} for row in self.rows]
        return {"algorithms": rows, "advice": self.advice}


@dataclass(frozen=True)
class Curve(Alternatives):
    """A comparison of thresholds of one mechanism; each row is named by its threshold, not by an algorithm."""

    @property
    def points(self) -> list[tuple[str, dict[str, Figure]]]:
        """Return the thresholds that can be met, each with its figures by key."""
        return [(row.algorithm, row.figures) for row in self.rows if row.refused is None]

    def as_json(self) -> dict[str, Any]:
        """Return the comparison of thresholds as the object that ``--json`` prints."""
        rows = [{"threshold": row.algorithm, "refused": row.refused, **row.figures} for row in self.rows]
        return {"curve": rows}

    def plot(self) -> Any:
        """Return a chart of promised and predicted figures by threshold.

        Raises:
            EngineError: altair is not installed.
        """
        from privsql import plot

        return plot.draw_picture(plot.chart_curve, self.points)


# Values of a mechanism ------------------------------------------------------------------------------------------------

Json = dict[str, Any]
Columns = dict[str, list[tuple[str, str]]]  # tables of a release: name -> (column, type)
Views = dict[str, "exp.Query"]  # views of a release by the end of their names, such as weighted of NAME_weighted
P = TypeVar("P", bound=Parameters)
F = TypeVar("F", bound=Facts)


WEIGHTED = "weighted"  # the view of every release in which sums of weights estimate counts
VIEW_COMMENTS = {
    WEIGHTED: "count with SUM(weight): weights are estimates, and may be negative",
    "pairs": "count with SUM(weight): every record beside every value of its bucket, by the value's share of that",
}


# Which sources a mechanism takes ---


@dataclass(frozen=True)
class TableShape:
    """Says that a mechanism takes a source with quasi-identifiers and sensitive columns.

    The source is then read into two tables of a session: ``domain`` counts the sensitive values, ``records`` holds all
    records.

    Attributes:
        numeric: Whether the one sensitive column must hold numbers or times; otherwise its values are categories.
        most_numbers: How many different numbers the mechanism takes as categories; a sensitive column with more is
            refused. None if there is no limit.
    """

    numeric: bool
    most_numbers: int | None

    def listed(self, params: Any) -> ListedValues | None:
        """Return the public list of sensitive values; None if the values are those that occur in the records."""
        return None


class ItemSetShape(ABC, Generic[P]):
    """Says that a mechanism takes a source of item sets: each record is a set of items from a list, the universe.

    The source is then read into three tables of a session: ``universe`` lists the items, ``baskets`` counts equal sets,
    and ``contents`` lists the items of each set.
    """

    @abstractmethod
    def universe(self, params: P) -> Universe:
        """Return where the items that may occur come from, such as a public list."""


class CategoricalShape(ABC, Generic[P]):
    """Says that a mechanism takes a source of which all columns become dimensions of a contingency table.

    All of them count as sensitive columns.
    """

    @abstractmethod
    def domains(self, params: P) -> Mapping[str, Universe]:
        """Return for each column where its possible values come from, such as a public list."""


# What several releases of the same records guarantee together ---


class NoComposition:
    """The rule for mechanisms without a guarantee for two releases: a second release of the same records is refused."""


@dataclass(frozen=True)
class LedgerRelease:
    """A release in the publisher's ledger.

    Attributes:
        number: The number of the release.
        members: The table that says in which bucket (bid) each record (id) was.
    """

    number: int
    members: exp.Table


class GroupComposition(ABC, Generic[P]):
    """The rules for mechanisms that give one guarantee for a whole chain of releases about the same people."""

    @abstractmethod
    def terms(self, params: P) -> Any:
        """Return the parameters that must be the same in all releases of a chain, as the columns must be."""

    @abstractmethod
    def covered(self, algorithms: Sequence[str]) -> str | None:
        """Return in words what several releases guarantee together; None if no guarantee covers them.

        Args:
            algorithms: The algorithms of the releases, oldest first.
        """

    @abstractmethod
    def comparable(self, names: Sequence[str], manifests: Sequence[Manifest]) -> None:
        """Raise ``UsageError`` unless the releases can be checked together, as releases of one chain.

        Args:
            names: The names of the releases' files, for the message.
            manifests: Their manifests.
        """

    @abstractmethod
    def published(self, db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
        """Return the checks of what an adversary sees in every pair of published releases.

        Args:
            db: Where release i is attached as database ``r<i>``.
            names: The names of the releases' files.
            manifests: Their manifests.
        """

    @abstractmethod
    def by_record(
        self, db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
    ) -> list[Check]:
        """Return the checks that follow each record through a chain of releases about the same people.

        Args:
            db: Where the releases' tables of members are, which say in which bucket each record was.
            releases: The releases with their members, by rising number.
            known: The query for (id, value) of all records.
            manifest: The manifest of the last release, for its columns.
        """


Unit = Literal["presence", "value"]


class BudgetComposition(ABC, Generic[P]):
    """The rules for mechanisms whose releases add up the budgets that they spend.

    The guarantee does not cover exact counts of records, so none are published.

    Attributes:
        unit: What the budget protects: a record's presence, or one value of a record whose presence is known.
    """

    unit: ClassVar[Unit]

    @abstractmethod
    def epsilon(self, params: P) -> Fraction:
        """Return the epsilon that a release spends."""

    @abstractmethod
    def delta(self, params: P) -> Fraction:
        """Return the delta that a release spends; 0 under Laplace noise."""

    @abstractmethod
    def rho(self, params: P) -> Fraction | None:
        """Return the rho that a release spends under zero-concentrated differential privacy; None for other noise."""


Shape = TableShape | ItemSetShape[Any] | CategoricalShape[Any]
Composition = NoComposition | GroupComposition[Any] | BudgetComposition[Any]


@dataclass(frozen=True)
class Proposal:
    """Parameters that ``init`` proposes for a source, with remarks that become comments of the specification.

    Attributes:
        parameters: The proposed table ``[mechanism]``.
        promise: What the release promises and what it does not protect, one sentence each.
        precision: The expected errors of counts for the value with the largest ones; None if no formula is known.
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
        """Return the sentences on the promise and on the precision, one line for each."""
        if self.precision is None:
            return self.promise
        text = self.precision.warning if self.precision.is_useless else f"Precision: {self.precision.text}."
        return (*self.promise, text)


@dataclass(frozen=True)
class ProfiledSource:
    """A source as ``init`` sees it, when it proposes parameters.

    Attributes:
        columns: The profile of each column.
        records: Returns its records, prepared under the roles that ``init`` chose.
        harmless: Values of the sensitive column that harm nobody.
        protect: The values that the publisher wants to protect, if any are named.
        weights: Whether a survey weight is published.
        any_rule: Whether to propose parameters that the records can meet even if the release is of little use, instead
            of refusing. ``init`` asks for this if no mechanism has a useful proposal.
        persons: Whether one record is published of each person who has several.
        first: Whether that is the first record by some order, so that no sensitive value decides which it is.
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
        """Return what a promise speaks of: "a person" if each person has one record, otherwise "a record"."""
        return "a person" if self.persons else "a record"


# The base class -------------------------------------------------------------------------------------------------------

NO_CURVE = "curve: this mechanism has no threshold of beliefs; 'privsql evaluate' publishes and measures"


class Mechanism(ABC, Generic[P, F]):
    """The algorithms of one family: how their releases are planned, made, proved, read and attacked.

    To add a mechanism, write a subclass in a folder beside this module and add a line to ``registry``. Code outside the
    folder uses only the methods of this class. Instances have no state: everything that a release depends on is an
    argument.

    A method is abstract unless its body is right for every mechanism. So a subclass that lacks one can't be
    instantiated.

    ``P`` is the type of the parameters that a publisher sets, ``F`` that of the facts that a release states.
    """

    kind: ClassVar[str]
    """The kind in a specification. Mechanisms of one kind have the same parameters, but different algorithms."""
    algorithms: ClassVar[tuple[str, ...]]
    """The algorithms of that kind that this class carries out."""
    parameters: type[P]
    """The model of the table ``[mechanism]`` of a specification; JSON Schema and flags follow from it."""
    facts: type[F]
    """The model of the facts that the manifest of a release states."""
    shape: ClassVar[Shape]
    """Which sources it takes; the same for all algorithms of a kind, up to lists of values."""
    composition: ClassVar[Composition]
    """What several of its releases guarantee together."""
    layout: ClassVar[Tables]
    """The tables of a release."""
    advice: ClassVar[tuple[str, ...]]
    """Advice that lowers what an attacker learns beyond the promise."""

    # From a specification to a release ---

    @abstractmethod
    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose parameters that a source can meet, for ``init``."""

    @abstractmethod
    def plan(self, db: Relations, source: Records, params: P) -> Facts:
        """Return the facts of the release that ``publish`` would make.

        If releases add up budgets, the plan is made before the budget is spent. So every reason to refuse a release
        must be found here.

        Raises:
            InfeasibleError: The records can't be published under these parameters.
            UsageError: The parameters do not fit the source.
        """

    @abstractmethod
    def compare_algorithms(self, db: Relations, source: Records, params: P) -> Alternatives:
        """Compare all algorithms of the kind for one specification by their plans; nothing is written.

        Raises:
            UsageError: Plans of these algorithms have no figures that could be compared.
        """

    @abstractmethod
    def predict_curve(self, db: Relations, source: Records, params: P) -> Curve:
        """Predict what releases with other thresholds would promise, and how good their answers would be.

        Raises:
            UsageError: The mechanism has no threshold for an attacker's beliefs.
        """

    def foresee_precision(self, params: P, bounds: Sequence[VerifiedBound], columns: int) -> Precision | None:
        """Return the expected errors of counts by a formula, before anything is measured; None if no formula is known.

        A mechanism with differential privacy computes them from public figures only, and never reads ``bounds``.

        Args:
            params: The parameters.
            bounds: The bounds of values, each with the highest belief and the number of records.
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
        """Return the queries of the views that a release has in addition to its tables, by name.

        View ``WEIGHTED`` has rows with weights; the sum of the weights of some rows estimates a count.
        """

    def functions(self, manifest: Manifest) -> IntervalFunctions | None:
        """Return the SQL functions that count rows of view ``WEIGHTED`` with intervals; None if it has no variances."""
        return None

    # The proof of a release ---

    @abstractmethod
    def checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return the checks that read nothing but the release.

        They may make views in the database that later methods use.
        """

    @abstractmethod
    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return the slow checks, which ``verify`` runs and ``publish`` does not.

        A release by ``publish`` always passes them. They are still part of the proof, because somebody else's release
        may have been made in another way.
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
        """Return the facts that follow from the tables and that no check compares.

        ``verify`` compares them with the stated ones and shows them. The method is called after ``checks`` were run.
        """

    @abstractmethod
    def bounds(self, release: CheckedRelease[P, F]) -> list[VerifiedBound]:
        """Return for each value the promised bound, which holds if all checks pass, and what the release reaches.

        The method is called after ``checks`` were run.
        """

    # Answers ---

    @abstractmethod
    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """Return an object that reads an analyst's SQL and answers it from the open release."""

    @abstractmethod
    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Measure how far the answers of a release are from those of its source."""

    # Attacks ---

    @abstractmethod
    def attack_view(self) -> type[AttackView] | None:
        """Return the class that reads a release as arrays, for adversaries who learn from quasi-identifiers.

        The result is None if no adversary needs it.
        """

    @abstractmethod
    def adversaries(self) -> Sequence[Adversary[Any]]:
        """Return the adversaries that ``attack`` runs against a release, at least one, in the order of its table."""

    @abstractmethod
    def joint_attacks(self) -> Sequence[JointAttack]:
        """Return the attacks on two releases together.

        An attack is run if the mechanisms of both releases list it.
        """

    @abstractmethod
    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return how often an attacker who learns from the release guesses right; None if no model predicts that."""

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
        """Return whether exact counts of records may be published; False if a release protects a record's presence."""
        return not (isinstance(self.composition, BudgetComposition) and self.composition.unit == "presence")

    def define_views(self, manifest: Manifest) -> list[ViewDefinition]:
        """Return the definitions of a release's views; the first is NAME_weighted, where NAME is the release's name."""
        return [
            ViewDefinition(f"{manifest.name}_{ending}", query, VIEW_COMMENTS[ending])
            for ending, query in self.views(manifest).items()
        ]

    def tables(self, manifest: Manifest) -> Columns:
        """Return the columns of each table of a release, as pairs (name, type)."""
        tables = self.layout.items()
        return {name: [(called, kind) for _, called, kind in one.place_columns(manifest.roles)] for name, one in tables}

    def read(self, manifest: Manifest) -> P:
        """Return the parameters that a release's manifest states.

        Raises:
            UsageError: Its parameters, facts or columns are not valid.
        """
        try:
            self.read_facts(manifest)
            params = self.parameters.model_validate(manifest.parameters)
        except (ValidationError, RecursionError, ArithmeticError) as error:
            raise UsageError(f"its manifest states no valid {self.facts.title}") from error
        self.require_columns(manifest, params)
        return params

    def read_facts(self, manifest: Manifest) -> F:
        """Return the facts that a release's manifest states.

        Raises:
            ValidationError: They are not valid.
        """
        return self.facts.model_validate(manifest.facts)

    def read_release(self, db: Relations, manifest: Manifest, database: str | None) -> CheckedRelease[P, F]:
        """Return the release with its parameters and facts, in the form that the checks take.

        Raises:
            UsageError: Its parameters, facts or columns are not valid.
        """
        from privsql.model.checks import CheckedRelease

        params, facts = self.read(manifest), self.read_facts(manifest)
        return CheckedRelease(db, manifest, params, facts, database, self.layout)
