"""Measure what adversaries learn from a release or from two noisy counts, and summarize a release."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Unpack, overload

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql import dp_random, plot
from privsql.answers.accuracy import BANDS
from privsql.answers.sql.compiler import parse_query
from privsql.answers.sql.cuts import refuse_cuts
from privsql.attacks.adversaries import run_attacks
from privsql.attacks.differential import Inference, infer_counts
from privsql.attacks.scene import Finding, Floats, ReleaseView
from privsql.attacks.suite import LEARNING, ReleaseSeries
from privsql.calls import PathLike, as_exact_number, as_optional_path, as_whole_number
from privsql.engine.database import READING, Options, Reporter, RunKeywords, options_from, report_steps
from privsql.engine.sqlfiles import DIALECT, Field, alias_as, column, render_sql, table
from privsql.errors import UsageError
from privsql.figures import format_percent
from privsql.keyed_random import seed_key
from privsql.mechanisms.base import CategoricalShape, ItemSetShape, TableShape
from privsql.model.estimates import BASELINE, BEST
from privsql.outcomes import Outcome, Part, Table
from privsql.pages.report import ExpectedAccuracy
from privsql.releases.opened import Release, explain_failures, open_release, open_releases
from privsql.releases.statements import ReleaseSummary, list_bounds
from privsql.source.keywords import SpecLike, as_spec, spec_from_manifest
from privsql.source.table import describe_coarsening
from privsql.source.targets import Target, as_target, as_targets
from privsql.verbs.sessions import open_records, open_release_with_source, require_same_persons

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal
    from fractions import Fraction

    from privsql.source.spec import Spec

# Attack ---------------------------------------------------------------------------------------------------------------
# ``attack``: measure what each adversary could learn from a release.


@dataclass(frozen=True)
class Attacked(Outcome):
    """What all adversaries have learnt from a release.

    Attributes:
        findings: One finding per adversary.
        source: Whether the adversaries' beliefs were compared with the truth in the source.
        seconds: How long the attack took.
        summary: The summary of the release (``summarize``); None unless the caller asked for it.
    """

    findings: list[Finding]
    source: bool
    seconds: float
    summary: ReleaseSummary | None = None

    @property
    def measured(self) -> list[Finding]:
        """Return the findings of the adversaries that could attack this release."""
        return [one for one in self.findings if one.applies and one.attacked]

    @property
    def promised(self) -> list[Finding]:
        """Return the findings of the adversaries that the mechanism promises to resist."""
        return [one for one in self.findings if one.promised]

    @property
    def ok(self) -> bool:
        """Return whether some adversary was measured and none of them breaks a promise."""
        return bool(self.measured) and not any(one.exceeded for one in self.findings)

    @property
    def verdict(self) -> str:
        """Return the outcome in words; it is "every promise holds" only if every promise was measured."""
        if not self.measured:
            return "NOTHING WAS MEASURED: no adversary of this mechanism had anything to attack"
        broken = [one for one in self.promised if one.exceeded]
        measured = [one for one in self.promised if one in self.measured]
        counts = f"{len(self.promised)} promised, {len(measured)} measured, {len(measured) - len(broken)} kept"
        if broken:
            return f"A PROMISE IS BROKEN ({counts})"
        if len(measured) < len(self.promised) or not measured:
            return f"no promise is broken, but not every one was measured ({counts})"
        return f"every promise holds ({counts})"

    @property
    def exit_code(self) -> int:
        """Return 0 if every measured promise holds, 1 if a promise is broken, and 3 if nothing was measured."""
        return 0 if self.ok else 1 if self.measured else 3

    def plot(self) -> Any:
        """Return an altair chart of how sure each adversary is of its best guess about a record.

        If this was measured, it also shows how that grows with the number of records an adversary knows beforehand.
        """
        return plot.draw_picture(plot.draw_attacks, self)

    @property
    def title(self) -> str:
        """Return the title that a notebook shows above the findings."""
        return self.verdict

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: the summary, if there is one, and a table of the adversaries with their promises."""
        if self.summary is not None:
            yield from self.summary.show()
        yield tabulate_findings(self.findings, known=self.source)
        yield LEGEND
        yield self.verdict

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as the object that ``--json`` prints."""
        rows = [one.as_json() for one in self.findings]
        head = {"ok": self.ok, "source": self.source, "measured": len(self.measured), "verdict": self.verdict}
        summary = {} if self.summary is None else {"summary": self.summary.as_json()}
        return {**head, "adversaries": rows, "seconds": round(self.seconds, 3), **summary}


LEGEND = """\
mean, highest: how sure the adversary is of its best guess, on average and at most; above bound: share of what is
attacked for which it is surer of some value than promised; gain: mean divided by the share of the most common value
kept, BROKEN: the mechanism promises to resist this adversary; not promised: it does not, and the figures show how far
the adversary gets; not applicable: a release of this kind has nothing that it could attack"""


def tabulate_findings(findings: Sequence[Finding], *, known: bool) -> Table:
    """Return a table for people, with a row for each adversary.

    Args:
        findings: The findings.
        known: Whether the source showed how often guesses are right; the table then has a column for it.
    """
    figures = ("attacked", "mean", "highest", "above bound", "gain", *(("right",) if known else ()))
    rows = [
        (
            one.adversary,
            "\n".join((one.knows, *(f"({note})" for note in one.notes))),
            one.counted if one.applies else None,
            *(format_percent(figure) for figure in (one.mean, one.highest, one.above)),
            None if one.gain is None else f"{one.gain:.1f}x",
            *([format_percent(one.right)] if known else []),
            one.outcome,
        )
        for one in findings
    ]
    columns = ("adversary", "what it knows", *figures, "promise")
    return Table(columns, rows, range(2, 2 + len(figures)), title="Adversaries", wide=True, ruled=True)


@overload
def attack(
    release: PathLike,
    source: SpecLike | None = ...,
    *,
    against: Sequence[PathLike] | PathLike = ...,
    seed: int | None = ...,
    within: str | None = ...,
    key_file: PathLike | None = ...,
    **how: Unpack[RunKeywords],
) -> Attacked: ...


@overload
def attack(
    release: None = ...,
    source: SpecLike = ...,
    *,
    differential: tuple[str, str],
    epsilon: float | Fraction | Decimal | str | None = ...,
    draws: int | None = ...,
    seed: int | None = ...,
    **how: Unpack[RunKeywords],
) -> CountInference: ...


def attack(
    release: PathLike | None = None,
    source: SpecLike | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    seed: int | None = None,
    within: str | None = None,
    key_file: PathLike | None = None,
    differential: tuple[str, str] | None = None,
    epsilon: float | Fraction | Decimal | str | None = None,
    draws: int | None = None,
    **how: Unpack[RunKeywords],
) -> Attacked | CountInference:
    """Attack a release with every adversary that its mechanism names, or attack two noisy counts of a source.

    Args:
        release: The release; None with ``differential``.
        source: The specification of the source; or the source itself, as a table or its file. With it, the beliefs of
            adversaries are compared with the truth.
        against: Other releases of the same people.
        seed: Repeats the random choice of records that some adversaries know beforehand; by default 1. With
            ``differential``, a seed makes the simulation repeatable, with Laplace noise in doubles. Without a seed the
            noise is OpenDP's and drawn afresh.
        within: How close a guess of a number or date must be to count as right.
        key_file: The file with the key of the release; by default the ledger's key is used. If only some records of
            each person were published, the key finds these in the source.
        differential: A pair of SQL conditions, the first on quasi-identifiers and the second on the sensitive column.
            Two counts of records in ``source`` are attacked: of those that meet the first condition, and of those that
            meet both. The counts have differentially private noise, and ``source`` must be a specification.
        epsilon: The budget of each of the two counts; by default 0.1.
        draws: How often the noise of the two counts is drawn; by default 20,000.
        **how: How the engine runs (``RunKeywords``).

    Raises:
        GuaranteeError: The file does not hold what its manifest states.
        UsageError: A condition is not supported, or no record meets it.
    """
    if differential is not None:
        if release is not None or source is None:
            raise UsageError("option differential asks a source and no release; give option source alone")
        return _attack_counts(source, *differential, 0.1 if epsilon is None else epsilon, draws or DRAWS, seed, how)
    if epsilon is not None or draws is not None:
        raise UsageError("epsilon and draws are of option differential; give its two conditions, too")
    if release is None:
        raise UsageError("attack takes a release, or option differential with two conditions")
    connection = how.get("connection")
    target, others = as_target(release, connection), as_targets(against, "against", connection)
    clock, chosen = time.monotonic(), as_whole_number(1 if seed is None else seed, "seed", None)
    drawn = seed_key(chosen).random_generator("attack")
    key_path = as_optional_path(key_file, "key_file")
    near = str(within) if within is not None else None
    with options_from(how, attack) as options:
        options.report.start_step("Opening the release")
        with open_release(target) as (db, attached), explain_failures(target):
            manifest, mechanism = attached.manifest, attached.mechanism
            adversaries, scene = mechanism.adversaries(), mechanism.attack_view()
            view = ReleaseView(db, manifest, drawn, within=near)
            findings = run_attacks(view, adversaries, scene, options.report) if source is None else []
        if source is not None:
            options.report.start_step(READING)
            spec = spec_from_manifest(source, manifest, connection)
            with (
                open_release_with_source(target, spec, manifest, options, key_file=key_path) as (beside, records),
                explain_failures(target),
            ):
                require_same_persons(manifest, records)
                records.sort_records()
                named = records.persons is not None and records.persons.taken is None
                view = ReleaseView(beside.db, manifest, drawn, beside.database, source=True, persons=named, within=near)
                findings = run_attacks(view, adversaries, scene, options.report)
        for other in others:
            options.report.start_step(f"Combining with {other}")
            findings += _combine_releases((target, other))
    return Attacked(findings, source is not None, time.monotonic() - clock)


def _combine_releases(targets: tuple[Target, Target]) -> list[Finding]:
    """Attack two releases together, with each adversary that knows how to combine releases of both mechanisms.

    Raises:
        UsageError: The mechanisms have no such attack in common.
    """
    with open_releases(targets) as (db, releases), explain_failures(*targets):
        manifests = [one.manifest for one in releases]
        first, second = (one.mechanism.joint_attacks() for one in releases)
        joint = [attack_both for attack_both in first if attack_both in second]
        if not joint:
            kinds = " and ".join(dict.fromkeys(manifest.mechanism for manifest in manifests))
            raise UsageError(f"against: no adversary combines releases made by {kinds}")
        several = ReleaseSeries(db, manifests, ("r0", "r1"), [one.path.name for one in targets])
        return [finding for attack_both in joint for finding in attack_both(several)]


# Typical questions ----------------------------------------------------------------------------------------------------
# Typical questions about a release, as syntax trees, and an example that shows how to query it.

COLUMNS, LOOKED = 3, 20  # most columns to group by, and most columns to examine for that
FEW = 60  # most values of a column to group by
MOST_ANSWER_ROWS = 3_000  # most rows of an answer
SETS, RANKED = 40, 800  # number of sets to ask for, among so many of the most frequent ones
QUARTERS = (0.25, 0.5, 0.75)
Rows = list[tuple[Any, ...]]


def list_questions(release: Release) -> Iterator[exp.Select]:
    """Yield typical queries, to measure how precisely the release answers them.

    They count the records with each sensitive value, grouped by one or two other columns. For item sets they count the
    records that hold a set. Columns that the release can't group by are left out.
    """
    shape = release.mechanism.shape
    if isinstance(shape, ItemSetShape):
        yield from _list_set_questions(release)
        return
    roles, binned = release.manifest.roles, frozenset(release.answers.in_bins)
    if isinstance(shape, CategoricalShape):
        names = [field.name for field in roles.sensitive if field.name not in binned][:LOOKED]
        chosen = _list_few_valued(release, names)
        values: list[exp.Expr] = []
    else:
        chosen = _list_few_valued(release, [field.name for field in roles.quasi_identifiers][:LOOKED])
        values = _group_values(release, shape)
    for names_ in dict.fromkeys((*((name,) for name in chosen[:COLUMNS]), tuple(chosen[:2]))):
        yield build_count_query(release, [*(column(name) for name in names_), *values])


def _group_values(release: Release, shape: TableShape | CategoricalShape[Any]) -> list[exp.Expr]:
    """Return the SQL expressions by which typical queries group the sensitive columns.

    These are the columns themselves. For numbers it is one CASE that has about a quarter of the records in each branch.
    """
    fields = release.manifest.roles.sensitive
    if not (isinstance(shape, TableShape) and shape.numeric):
        return [column(field.name) for field in fields]
    sensitive = fields[0]
    ends = find_quantiles(release, sensitive)
    case = exp.Case()
    for number, end in enumerate(dict.fromkeys(ends)):
        below = exp.LT(this=column(sensitive.name), expression=as_literal(end, sensitive))
        case = case.when(below, exp.Literal.number(number))
    return [case.else_(exp.Literal.number(len(ends)))] if case.args.get("ifs") else [column(sensitive.name)]


def find_quantiles(release: Release, field: Field, shares: Sequence[float] = QUARTERS) -> list[Any]:
    """Return quantiles of a numeric column, as the release estimates them.

    Args:
        release: The release.
        field: The column.
        shares: For each quantile, about which share of the records shall lie below it, in ascending order.
    """
    every = ask_release(release, build_count_query(release, [column(field.name)]))
    rows = sorted((row for row in every if None not in row[:2]), key=lambda row: row[0])
    ends: list[Any] = []
    total, running = sum(row[1] for row in rows), 0.0
    for value, records, *_ in rows:
        running += records
        if len(ends) < len(shares) and running > shares[len(ends)] * total:
            ends.append(value)
    return ends


def _list_few_valued(release: Release, names: Sequence[str]) -> list[str]:
    """Return those columns among ``names`` by which queries can group: with 2 to 60 values, those with fewest first."""
    counts = []
    for name in names:
        with suppress(UsageError):
            number = len(ask_release(release, build_count_query(release, [column(name)])))
            if 1 < number <= FEW:
                counts.append((number, name))
    return [name for _, name in sorted(counts, key=lambda one: one[0])]


def _list_set_questions(release: Release) -> Iterator[exp.Select]:
    """Yield typical queries to a release of item sets: each counts the records that hold a certain set.

    The most frequent sets are sorted by frequency. From this list some are taken, in growing steps down to the 800th,
    so that both frequent and rare sets occur.
    """
    field = release.manifest.roles.sensitive[0]
    frequent = release.answers.list_frequent(RANKED, release.answers.estimators[0])
    for rank in sorted({round(len(frequent) ** (k / SETS)) - 1 for k in range(SETS + 1)}) if frequent else []:
        items, _ = frequent[rank]
        yield build_count_query(release, [], items_condition(field, items)) if items else build_count_query(release, [])


def items_condition(field: Field, items: Sequence[str]) -> exp.Expr:
    """Return the SQL condition that a list column holds all of these items, which are given as texts."""
    listed = exp.Array(expressions=[as_literal(item, field, field.type.removesuffix("[]")) for item in items])
    return exp.Anonymous(this="list_has_all", expressions=[column(field.name), listed])


def build_count_query(release: Release, groups: Sequence[exp.Expr], condition: exp.Expr | None = None) -> exp.Select:
    """Return a query that counts the records of each group as column ``n``.

    Args:
        release: The release.
        groups: The SQL expressions to group by.
        condition: Which records count; None for all.
    """
    number = alias_as(exp.Count(this=exp.Star()), "n")
    query = exp.select(*(one.copy() for one in groups), number).from_(table(release.manifest.name))
    query = query if condition is None else query.where(condition)
    return query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query


def ask_release(release: Release, query: exp.Select, estimator: str = BEST) -> Rows:
    """Return the release's answer to a query, as rows of (groups.., estimate, standard error, low, high)."""
    return release.query(query.sql(DIALECT), estimator=estimator).rows


def as_literal(value: object, field: Field, kind: str | None = None) -> exp.Expr:
    """Return a value as an SQL constant of the column's type, or of type ``kind`` if that is given."""
    sql_type = kind or field.type
    if sql_type == "VARCHAR":
        return exp.Literal.string(str(value))
    text = str(value)
    if text.removeprefix("-").isdecimal() and text.isascii():
        number = exp.Literal.number(text.removeprefix("-"))
        return exp.Neg(this=number) if text.startswith("-") else number
    return exp.cast(exp.Literal.string(text), exp.DataType.build(sql_type, dialect=DIALECT))


# Expected accuracy ----------------------------------------------------------------------------------------------------
# The expected accuracy of a release's answers by their size, from the release alone.

MEAN = math.sqrt(2 / math.pi)  # the mean of |x| for a standard normal x
TypicalAnswer = tuple[float, float | None, float, float | None]  # estimate, error, half interval, half of baseline's


def estimate_accuracy(release: Release, report: Reporter) -> tuple[ExpectedAccuracy, ...]:
    """Return the expected errors of typical queries by the size of their answers, from the release alone.

    An estimate with standard error s has the expected absolute error sqrt(2/pi) s, as its error is about normal. If
    only certain bounds are known, there is no expected error. Answers that are exact or have no interval are left out.
    """
    report.start_step("Asking typical questions")
    answers: list[TypicalAnswer] = []
    for query in report_steps(report, asking := list(list_questions(release)), len(asking)):
        with suppress(UsageError):  # the release can't answer every query
            answers += _answer_groups(release, query)
    return tuple(
        _summarize_band(answers, low, high)
        for low, high in pairwise(BANDS)
        if any(low <= one[0] < high for one in answers)
    )


def _answer_groups(release: Release, query: Any) -> list[TypicalAnswer]:
    """Answer a query, and return how precise the answer of each group is.

    Returns:
        For each group (estimate, standard error, half the width of its interval, half the distance between the bounds
        that the estimator ``baseline``, the formula of the literature, gives). If there is no standard error, the third
        figure is the distance from the estimate to the farther bound. Empty if there are too many groups.
    """
    ours = ask_release(release, query)
    if len(ours) > MOST_ANSWER_ROWS:
        return []
    beside = release.answers.estimators[0] != BASELINE
    theirs = {row[:-4]: _half_width(row) for row in ask_release(release, query, BASELINE)} if beside else {}
    return [
        (max(0.0, row[-4]), row[-3], _reach(*row[-4:]) if row[-3] is None else half, theirs.get(row[:-4]))
        for row in ours
        if row[-4] is not None and row[-3] != 0 and (half := _half_width(row)) is not None
    ]


def _reach(estimate: float, _: None, low: float, high: float) -> float:
    """Return the distance from an estimate to the farther of its two certain bounds.

    That is the largest possible error of an answer without a standard error. The arguments are the last four columns of
    an answer; the second is the missing standard error.
    """
    return max(estimate - low, high - estimate)


def _half_width(row: Sequence[Any]) -> float | None:
    low, high = row[-2:]
    return None if low is None or high is None else (float(high) - float(low)) / 2


def _summarize_band(answers: Sequence[TypicalAnswer], low: float, high: float) -> ExpectedAccuracy:
    inside = [one for one in answers if low <= one[0] < high]
    errors = [one[1] for one in inside if one[1] is not None]
    bounds = [one[3] for one in inside if one[3] is not None]
    return ExpectedAccuracy(
        low,
        None if math.isinf(high) else high,
        len(inside),
        MEAN * median(errors) if errors else None,
        median(one[2] for one in inside),
        median(bounds) if bounds else None,
        median(one[0] for one in inside),
    )


# Summary --------------------------------------------------------------------------------------------------------------
# The summary of a release (``ReleaseSummary``), and the measurements that it needs.


def summarize(
    release: PathLike, *, findings: Sequence[Finding] | None = None, **how: Unpack[RunKeywords]
) -> ReleaseSummary:
    """Summarize a release for people: its promise, the strongest attacker, the error of a count, and more.

    Args:
        release: The release.
        findings: The findings of ``attack``. If these were compared with a source, the summary says how often the
            attacker is right. None to attack the release here, without a source.
        **how: How the engine runs (``RunKeywords``).

    Raises:
        GuaranteeError: The file does not hold what its manifest states.
    """
    target = as_target(release, how.get("connection"))
    with options_from(how, summarize) as options:
        report = options.report
        with Release(target) as opened, explain_failures(target):
            expected = estimate_accuracy(opened, report)
        with open_release(target) as (db, attached), explain_failures(target):
            if findings is None:
                report.start_step("Measuring what can be learnt from the release")
                noise = seed_key(1).random_generator("risk")
                view = ReleaseView(db, attached.manifest, noise, attached.database)
                learning = attached.mechanism.measure_learning(view)
            else:
                learning = find_learning(findings)
            return ReleaseSummary.make(attached, list_bounds(attached), learning, list_errors(expected), measured=True)


def find_learning(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding of the attacker who trains a model on the release; None if ``findings`` has none."""
    return next((one for one in findings if one.adversary == LEARNING and one.applies), None)


def list_errors(expected: Sequence[ExpectedAccuracy]) -> list[tuple[float, float, bool]]:
    """Return how far typical counts of a release may be off, for its summary.

    Args:
        expected: How precise the answers of typical queries are, for each range of counts.

    Returns:
        For each range (estimate, error, is_bound): the median answer in the range, and its error. ``is_bound`` says
        that this is the largest possible error; otherwise it is the expected one.
    """
    return [
        (one.estimate, one.half_width, True) if one.error is None else (one.estimate, one.error, False)
        for one in expected
    ]


# Differential inference -----------------------------------------------------------------------------------------------
# ``attack --differential``: measure what two noisy counts still reveal about the people in the source.

DRAWS = 20_000
INFERRED = """\
Y/X of two counts with Laplace noise of scale {scale:g} (epsilon {epsilon:g} each, OpenDP, {draws:,} draws)
theory: mean (y/x)(1 + 2b^2/x^2), variance (2b^2/x^2)(1 + (y/x)^2), valid for x far above b
disclosed: nine in ten noisy answers come within 0.05 of y/x; differential privacy hides whether a record is in the
table, not what holds of records like it"""


@dataclass(frozen=True)
class CountInference(Outcome):
    """The outcome of an attack on two noisy counts x and y, whose ratio y / x tells about the sensitive column.

    Attributes:
        rows: How well noisy counts reveal y / x, in theory (theorem 2 of Wang et al., in ``attacks.differential``) and
            in a simulation. One row is about the caller's query, the others about queries of other sizes.
        epsilon: The budget of each count.
        condition: The condition on quasi-identifiers, which x records meet.
        sensitive: The condition on the sensitive column, which y of these records meet.
        draws: How often the noise of the counts was drawn.
    """

    json_keys = ("epsilon", "condition", "sensitive_condition=sensitive", "draws", "sizes=rows")

    title = "What two noisy counts reveal"

    rows: list[Inference]
    epsilon: float
    condition: str
    sensitive: str
    draws: int

    @property
    def queried_row(self) -> Inference:
        """Return the row of ``rows`` about the caller's own query; the other rows are about queries of other sizes."""
        return next(row for row in self.rows if row.asked)

    def plot(self) -> Any:
        """Return an altair chart of the ratios of noisy counts, in theory and simulated, by the size of the query."""
        return plot.draw_picture(plot.draw_inference, self)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: a table that compares the theory with the simulation, by the size of the query."""
        theory = ("mean, theory", "simulated", "sd, theory", "simulated")
        columns = ("x", "y", "y/x", *theory, "within 0.05", "disclosed")
        rows = [
            (
                f"{row.x:,.0f}{' *' if row.asked else ''}",
                f"{row.y:,.0f}",
                f"{row.ratio:.3f}",
                *(f"{one:.4f}" for one in (row.mean, row.simulated_mean, row.deviation, row.simulated_deviation)),
                f"{row.near:.1%}",
                "yes" if row.discloses else "no",
            )
            for row in self.rows
        ]
        yield Table(columns, rows, range(len(columns)), wide=True)
        conditions = f"x: {self.condition};  y: of these {self.sensitive}"
        yield f"{conditions};  * your question, other rows have the same y/x"
        yield INFERRED.format(scale=1 / self.epsilon, epsilon=self.epsilon, draws=self.draws)


def _attack_counts(
    source: SpecLike,
    condition: str,
    sensitive: str,
    epsilon: float | Fraction | Decimal | str,
    draws: int,
    seed: int | None,
    how: RunKeywords,
) -> CountInference:
    """Simulate an attacker who divides one noisy count of the source by another to learn about sensitive values.

    The ratio estimates which share of the records with known quasi-identifiers has the sensitive value.

    Args:
        source: The specification of the source.
        condition: The condition on quasi-identifiers, for both counts.
        sensitive: The condition on the sensitive column, for the second count only.
        epsilon: The budget of each count.
        draws: How often the noise is drawn.
        seed: Makes the draws repeatable; None for fresh noise.
        how: How the engine runs.
    """
    each = as_exact_number(epsilon, "epsilon")
    if each <= 0:
        raise UsageError(f"epsilon {epsilon} must be above 0")
    chosen = None if seed is None else as_whole_number(seed, "seed", None)
    with options_from(how, "attack") as options:
        spec, number_of = as_spec(source), as_whole_number(draws, "draws")
        x, y = _count_matches(spec, condition, sensitive, options)
    scale = 1 / float(each)
    noise = _draw_noise(scale, number_of, chosen)
    return CountInference(infer_counts(x, y, scale, *noise), float(each), condition, sensitive, number_of)


def _draw_noise(scale: float, draws: int, seed: int | None) -> tuple[Floats, Floats]:
    """Draw Laplace noise for two counts.

    Args:
        scale: The scale of the noise.
        draws: How often noise is drawn for each count.
        seed: Makes the noise repeatable; None draws it afresh.

    Returns:
        The noise of each count (draws,).
    """
    if seed is None:
        return dp_random.laplace(scale, draws), dp_random.laplace(scale, draws)
    key = seed_key(seed)
    first, second = (key.random_generator("infer", count).laplace(0.0, scale, draws) for count in ("x", "y"))
    return first, second


def _count_matches(spec: Spec, condition: str, sensitive: str, options: Options) -> tuple[int, int]:
    """Return how many records of a source meet a condition, and how many of them also meet the sensitive condition."""
    if not isinstance(spec.implementation.shape, TableShape):
        raise UsageError("the conditions of differential inference are on quasi-identifiers; there are none")
    with open_records(spec, options) as (db, source):
        source.sort_records()
        source.expose_as(spec.name)
        queries = [_count_query(spec.name, part) for part in ([condition], [condition, sensitive])]
        quasi_identifiers = source.roles.quasi_identifiers
        coarse = describe_coarsening(quasi_identifiers, spec.columns)
        groups = {name: _list_groups(spec, name) for name in coarse["groups"]}
        for statement in (parse_query(sql, source.roles, spec.name) for sql in queries):
            refuse_cuts(statement, coarse["bins"], groups, quasi_identifiers)
        x, y = (int(db.run_select(sql)[0][0]) for sql in queries)
    if not x:
        raise UsageError(f"no record meets {condition!r}; choose a condition that holds for some records")
    return x, y


def _list_groups(spec: Spec, name: str) -> list[str]:
    """Return the groups into which a specification puts a column's values, including groups without a record.

    A condition may only name whole groups, which are checked by this list.
    """
    _, levels, other = spec.columns.get_coarsening(name)
    return sorted({*levels.values()} | ({other} if other is not None else set()))


def _count_query(name: str, conditions: list[str]) -> str:
    """Return the SQL text that counts the records of table ``name`` which meet all conditions.

    Raises:
        UsageError: A condition is not SQL.
    """
    parts = []
    for text in conditions:
        try:
            parts.append(exp.paren(sqlglot.parse_one(text, dialect=DIALECT, into=exp.Condition)))
        except SqlglotError as error:
            raise UsageError(f"condition {text!r} can't be parsed; write SQL, such as age > 60 AND sex = 1") from error
    counted = exp.select(exp.Count(this=exp.Star())).from_(table(name))
    return render_sql(counted.where(*parts))
