"""The contract of a mechanism: every member that it must provide, and how several algorithms become one mechanism."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from pydantic import ValidationError

from privsql.engine.database import Relations, ViewDefinition
from privsql.errors import UsageError
from privsql.model.parameters import Facts, ListedValues, Parameters, Universe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from fractions import Fraction

    from sqlglot import exp

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.answer import Answers
    from privsql.attacks.scene import Finding
    from privsql.attacks.suite import Adversary, AttackContext, Suite
    from privsql.keyed_random import Key
    from privsql.model.manifest import (
        Check,
        CheckedRelease,
        Manifest,
        ReleasePromises,
        Structure,
        Tables,
        VerifiedBound,
    )
    from privsql.model.records import Profile, Records

# Algorithms beside each other -----------------------------------------------------------------------------------------
# The algorithms of a mechanism beside each other, for one specification: what each would cost, and tell.

Figure = float | int | None


@dataclass(frozen=True)
class AlternativeMeasure:
    """A figure by its ``key``, its ``title`` for a person, how it is written, and whether the ``lowest`` is best."""

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
class Alternatives:
    """All algorithms of a mechanism, what is measured of them, and one line of advice."""

    measures: Sequence[AlternativeMeasure]
    rows: Sequence[Alternative]
    advice: str

    def choose_best(self, measure: AlternativeMeasure) -> float | None:
        """The best figure that any algorithm has; None where they do not differ."""
        figures = {figure for row in self.rows if (figure := row.figures.get(measure.key)) is not None}
        if len(figures) < 2:
            return None
        return min(figures) if measure.lowest else max(figures)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
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


def refuse_comparison(why: str, verb: str = "algorithms") -> Callable[..., NoReturn]:
    """Of a mechanism whose algorithms, or thresholds, are not to be compared: ``UsageError``, which says why."""

    def refuse_call(*_: object) -> NoReturn:
        raise UsageError(f"{verb}: {why}")

    return refuse_call


NO_CURVE = refuse_comparison(
    "this mechanism has no threshold of beliefs; 'privsql compare' publishes and measures", "curve"
)


# The contract ---------------------------------------------------------------------------------------------------------
# What a mechanism is: one package beside this module, one folder of ``sql/``, one line of ``registry``.
#
# Its module ``parameters`` holds what a publisher asks of it, and imports little; its module ``mechanism`` makes one
# ``Mechanism``. Nothing outside the package knows more of it. No member has a default: what is forgotten fails when the
# package is loaded, never as a silent "nothing to do". ``TabularMechanism`` and ``private.PrivateMechanism`` have
# defaults for what most mechanisms of their kind leave out, or what follows from epsilon; never for checks and
# adversaries.

Json = dict[str, Any]
Columns = dict[str, list[tuple[str, str]]]  # tables of a release: name -> (column, type)
Views = dict[str, "exp.Query"]  # views of a release, by the end of their names: NAME_weighted, NAME_pairs
P = TypeVar("P", bound=Parameters)


WEIGHTED = "weighted"  # the view of every release whose sums of weights are counts
VIEW_COMMENTS = {
    WEIGHTED: "count with SUM(weight): weights are estimates, and may be negative",
    "pairs": "count with SUM(weight): every record beside every value of its bucket, by the value's share of that",
}


def weighted_only(view: Callable[[Manifest], exp.Query]) -> Callable[[Manifest], Views]:
    """Return the member ``views`` of a mechanism that has no other view."""
    return lambda manifest: {WEIGHTED: view(manifest)}


# The shape of the records ---


@dataclass(frozen=True)
class TableShape:
    """Quasi-identifiers and sensitive columns: ``domain`` counts the sensitive values, ``records`` holds all.

    ``numeric``: its one sensitive column is a number or a point in time. Where it is not, sensitive values are
    categories; ``most_numbers``: how many different numbers are taken for categories at most, None for any number.
    ``listed``: of parameters the public list of values; None where the records tell the values.
    """

    numeric: bool
    most_numbers: int | None
    listed: Callable[[Any], ListedValues] | None = None


@dataclass(frozen=True)
class ItemSetShape(Generic[P]):
    """Item sets: relations ``universe``, ``baskets`` and ``contents``. ``universe``: where the items are listed."""

    universe: Callable[[P], Universe]


@dataclass(frozen=True)
class CategoricalShape(Generic[P]):
    """Columns of a contingency table, as sensitive ones of a table. ``domains``: by column, where its values are."""

    domains: Callable[[P], Mapping[str, Universe]]


# What several releases of the same subjects are together ---


@dataclass(frozen=True)
class NoComposition:
    """Nothing is promised of two releases: a second one is refused."""


@dataclass(frozen=True)
class LedgerRelease:
    """A release in a ledger: its number, and the table of (id, bid) of its records."""

    number: int
    members: exp.Table


@dataclass(frozen=True)
class GroupComposition(Generic[P]):
    """Chains of releases of the same subjects are covered by one guarantee.

    ``terms``: what must agree between them, besides the columns; ``covered``: what releases by these algorithms, oldest
    first, guarantee together, in words, None where nothing covers them; ``comparable``: ``UsageError`` unless releases
    can be compared. ``published``: checks of what an adversary sees in every pair; release i is attached as database
    ``r<i>``. ``by_record``: checks of the records of all, whose (id, value) are known, by the last one's columns.
    """

    terms: Callable[[P], Any]
    covered: Callable[[Sequence[str]], str | None]
    comparable: Callable[[Sequence[str], Sequence[Manifest]], None]
    published: Callable[[Relations, Sequence[str], Sequence[Manifest]], list[Check]]
    by_record: Callable[[Relations, Sequence[LedgerRelease], exp.Query, Manifest], list[Check]]


Unit = Literal["presence", "value"]


@dataclass(frozen=True)
class BudgetComposition(Generic[P]):
    """Releases add up what they spend. Exact counts are no part of the guarantee, so none is stated anywhere.

    ``delta``: 0 for pure privacy; ``rho``: what a zero-concentrated release spends, None for any other. ``unit``: what
    it protects, a record's presence or, where it publishes who is there, one value of a record.
    """

    epsilon: Callable[[P], Fraction]
    delta: Callable[[P], Fraction]
    rho: Callable[[P], Fraction | None]
    unit: Unit = "presence"


Shape = TableShape | ItemSetShape[Any] | CategoricalShape[Any]
Composition = NoComposition | GroupComposition[Any] | BudgetComposition[Any]


@dataclass(frozen=True)
class Proposal:
    """Parameters for the table ``[mechanism]`` of a specification, and what to say of them in comments.

    ``left_out``: columns of the source that have no place in what can be published.
    """

    parameters: Json
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfiledSource:
    """A source as ``init`` sees it: what is known of its columns, and its records under the roles that it chose."""

    columns: Sequence[Profile]
    records: Callable[[], Records]


NEVER_EMPTY = ("sql", "layout", "advice")  # members of a mechanism


@dataclass(frozen=True, kw_only=True)
class Mechanism(Generic[P]):
    """A mechanism, member by member; ``asked`` is its own validated parameters."""

    parameters: type[P]
    """The table ``[mechanism]`` of a specification; JSON Schema and flags follow from it."""
    facts: type[Facts]
    """The ``facts`` of a release: in its manifest, in JSON and for people."""
    shape: Shape
    """Which records it is given."""
    composition: Composition
    """How several of its releases combine."""
    sql: tuple[str, ...]
    """Prefixes of the SQL files that make and check a release."""
    layout: Tables
    """The tables that a release may hold, besides its manifest."""
    variants: Mapping[str, Mechanism[Any]]
    """The mechanisms of its algorithms, where these share no table; empty where one has them all."""
    demand: Callable[[Manifest, P], None]
    """``UsageError`` for columns that no such release has."""
    plan: Callable[[Relations, Records, P], Facts]
    """The facts of a release that ``publish`` would make; raises ``InfeasibleError`` and ``UsageError``.

    Where releases add up budgets it runs first: what can be refused is refused before anything is spent.
    """
    algorithms: Callable[[Relations, Records, P], Alternatives]
    """Its algorithms beside each other; ``UsageError`` where that tells nothing (``alternatives.none``)."""
    curve: Callable[[Relations, Records, P], Curve]
    """Other thresholds beside the stated one, what each promises and is predicted to give; ``UsageError`` as above."""
    publish: Callable[[Relations, Records, P, Key], Facts]
    """Make the tables of a release in database ``release``; returns the facts for its manifest."""
    views: Callable[[Manifest], Views]
    """The views of a release beside its tables; ``weighted`` is always there, and its sums of weights are counts."""
    checks: Callable[[CheckedRelease[P, Any]], list[Check]]
    """The checks that need the release alone; they may make more views for the members that follow."""
    long_checks: Callable[[CheckedRelease[P, Any]], list[Check]]
    """Further checks of ``verify``, which take longer; the way of publishing implies them."""
    measured: Callable[[CheckedRelease[P, Any]], Facts]
    """Those facts that the tables tell, recomputed, which ``verify`` compares and shows; after ``checks``."""
    bounds: Callable[[CheckedRelease[P, Any]], list[VerifiedBound]]
    """The bounds that hold, value by value, once all checks do; after ``checks``."""
    source_checks: Callable[[CheckedRelease[P, Any], Records, P], list[Check]]
    """The checks against the source, sorted, and the parameters of its specification; after ``checks``."""
    answers: Callable[[Relations, Manifest], Answers]
    """The release, open, as one that reads an analyst's SQL and answers it."""
    evaluate: Callable[[EvaluationContext], Evaluated]
    """Its answers beside those of its source."""
    adversaries: Suite[Any]
    """Who is to be run against it. An empty suite says that nobody is, and that is no success."""
    promise: Callable[[P], str]
    """The bound that a release guarantees, in a few words."""
    words: Callable[[P], ReleasePromises]
    """Its promises and their limits, in sentences for readers who do not know it."""
    structure: Callable[[Relations, Manifest], list[Structure]]
    """The parts of an open release, such as its buckets or its noisy tree, for people; after its checks."""
    advice: tuple[str, ...]
    """Advice that lowers what an attacker learns beyond the promise."""
    propose: Callable[[Relations, ProfiledSource], Proposal]
    """Feasible parameters for a source."""

    def __post_init__(self) -> None:
        """Reject members that are None, and those of ``NEVER_EMPTY`` that are empty; a suite needs an adversary."""
        members = {member.name: getattr(self, member.name) for member in fields(self)}
        missing = [name for name, one in members.items() if one is None or (name in NEVER_EMPTY and not one)]
        if "adversaries" not in missing and not self.adversaries.adversaries:
            missing.append("adversaries")
        if missing:
            raise TypeError(f"mechanism {self.kind!r} lacks {', '.join(missing)}")

    def define_views(self, manifest: Manifest) -> list[ViewDefinition]:
        """Return the views of a release: NAME_weighted first, then what else its mechanism has."""
        return [
            ViewDefinition(f"{manifest.name}_{ending}", query, VIEW_COMMENTS[ending])
            for ending, query in self.views(manifest).items()
        ]

    @property
    def kind(self) -> str:
        """The name that a specification gives it."""
        return str(self.parameters.model_fields["kind"].default)

    @property
    def states_counts(self) -> bool:
        """Return whether exact numbers of records may be stated: never where their presence is protected."""
        return not (isinstance(self.composition, BudgetComposition) and self.composition.unit == "presence")

    def select_variant(self, algorithm: str) -> Mechanism[Any]:
        """Return the mechanism of an algorithm; itself where it has all of them."""
        return self.variants.get(algorithm, self)

    def find_tables(self, manifest: Manifest) -> Tables:
        """Return the tables that a release holds."""
        return self.variants[manifest.algorithm].layout if manifest.algorithm in self.variants else self.layout

    def tables(self, manifest: Manifest) -> Columns:
        """Return the columns of the tables that a release holds, with their types."""
        tables = self.find_tables(manifest).items()
        return {name: [(called, kind) for _, called, kind in one.place_columns(manifest.roles)] for name, one in tables}

    def read(self, manifest: Manifest) -> P:
        """Return the parameters of a release; ``UsageError`` if these or its facts are none that it can have."""
        try:
            self.read_facts(manifest)
            params = self.parameters.model_validate(manifest.parameters)
        except (ValidationError, RecursionError, ArithmeticError) as error:
            raise UsageError(f"its manifest states no valid {self.find_facts(manifest).title}") from error
        self.demand(manifest, params)
        return params

    def find_facts(self, manifest: Manifest) -> type[Facts]:
        """Return the type of the facts of a release."""
        return self.variants[manifest.algorithm].facts if manifest.algorithm in self.variants else self.facts

    def read_facts(self, manifest: Manifest) -> Facts:
        """Return the facts of a release; ``ValidationError`` if it is not what ``read`` takes."""
        return self.find_facts(manifest).model_validate(manifest.facts)

    def read_release(self, db: Relations, manifest: Manifest, database: str | None) -> CheckedRelease[P, Any]:
        """Return a release for its checks; ``UsageError`` as of ``read``."""
        from privsql.model.manifest import CheckedRelease

        params, facts = self.read(manifest), self.read_facts(manifest)
        return CheckedRelease(db, manifest, params, facts, database, self.find_tables(manifest))


@dataclass(frozen=True, kw_only=True)
class TabularMechanism(Mechanism[P]):
    """A mechanism that publishes every record; its members have defaults where most of them have nothing to do."""

    composition: Composition = NoComposition()
    variants: Mapping[str, Mechanism[Any]] = field(default_factory=dict)
    curve: Callable[[Relations, Records, P], Curve] = NO_CURVE
    demand: Callable[[Manifest, P], None] = lambda *_: None
    long_checks: Callable[[CheckedRelease[P, Any]], list[Check]] = lambda _: []
    measured: Callable[[CheckedRelease[P, Any]], Facts] = lambda _: Facts()


# Several algorithms as one mechanism ----------------------------------------------------------------------------------
# One mechanism of several algorithms that share no more than what is asked of them, as one ``Mechanism``.
#
# Each variant is a whole ``Mechanism`` over the same parameters. What is called with these, or with a manifest, goes to
# the variant whose algorithm they name; what holds of all is said of all.

# Members that are called, and which of their arguments names the algorithm.
BY_PARAMETERS = {"plan": 2, "algorithms": 2, "publish": 2, "promise": 0, "words": 0}
BY_MANIFEST = {"demand": 0, "views": 0, "answers": 1, "structure": 1}
BY_RELEASE = {"checks": 0, "long_checks": 0, "measured": 0, "bounds": 0, "source_checks": 0}


def join_variants(variants: Mapping[str, Mechanism[Any]]) -> Mechanism[Any]:
    """The mechanism of all ``variants``, by algorithm; the first one is the default, which is what is proposed."""
    first = next(iter(variants.values()))
    if any(one.parameters is not first.parameters for one in variants.values()):
        raise TypeError(f"the algorithms of {first.kind!r} do not have the same parameters")

    def find_variant(algorithm: object) -> Mechanism[Any]:
        if algorithm not in variants:
            raise UsageError(f"algorithm {algorithm!r} is not one of {', '.join(variants)}")
        return variants[str(algorithm)]

    def by_argument(name: str, place: int) -> Callable[..., Any]:
        return lambda *given: getattr(find_variant(given[place].algorithm), name)(*given)

    called: dict[str, Any] = {
        name: by_argument(name, at) for name, at in (BY_PARAMETERS | BY_MANIFEST | BY_RELEASE).items()
    }
    return replace(
        first,
        sql=_unique_parts(one.sql for one in variants.values()),
        layout={name: table for one in variants.values() for name, table in one.layout.items()},
        variants=variants,
        advice=_unique_parts(one.advice for one in variants.values()),
        adversaries=_join_suites(variants),
        evaluate=lambda given: find_variant(given.answers.algorithm).evaluate(given),
        **called,
    )


def _unique_parts(parts: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def _join_suites(variants: Mapping[str, Mechanism[Any]]) -> Suite[Any]:
    """Adversaries by name: each looks at a release as the variant that made it has it."""
    named: dict[str, dict[str, Adversary[Any]]] = {}
    for algorithm, one in variants.items():
        for adversary in one.adversaries.adversaries:
            named.setdefault(adversary.name, {})[algorithm] = adversary

    def attack_by_variant(by: Mapping[str, Adversary[Any]]) -> Callable[[AttackContext[Any]], list[Finding]]:
        def attack_release(learnt: AttackContext[Any]) -> list[Finding]:
            chosen = by.get(learnt.view.manifest.algorithm)
            return [] if chosen is None else chosen.attack(learnt)

        return attack_release

    joint_adversaries = tuple(replace(next(iter(by.values())), attack=attack_by_variant(by)) for by in named.values())
    return replace(next(iter(variants.values())).adversaries, adversaries=joint_adversaries)
