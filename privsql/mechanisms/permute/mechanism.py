"""Permutation as a ``Mechanism``: plans, answers, explanations and proposals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers import answer, estimate
from privsql.answers.accuracy import by_questions
from privsql.answers.channel import Channel
from privsql.answers.estimate import Bounds, QuestionOn, chosen, empty_estimates, places, pooled, sets
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement, group_terms, select_terms
from privsql.attacks import adversaries
from privsql.attacks.suite import Suite
from privsql.engine.sqlfiles import Holes, column, every, fill, named, table, temp
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms import contract
from privsql.mechanisms.contract import Groups, Mechanism, Proposal, Table
from privsql.mechanisms.permute import answers, attacks
from privsql.mechanisms.permute import checks as together
from privsql.mechanisms.permute.answers import Contents, read_contents, through
from privsql.mechanisms.permute.attacks import Permuted, contents, write_ranked, write_records
from privsql.mechanisms.permute.checks import SQL, bounds, checks, long_checks, read, source_checks
from privsql.mechanisms.permute.grouping import DAY, STEPS, Measured, axis, measured, static
from privsql.mechanisms.permute.incremental import History, arranged, labels, release
from privsql.mechanisms.permute.parameters import Permute, extent
from privsql.model.manifest import LEARNT, Estimate, Structure, Words, by_range
from privsql.model.manifest import structure as part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Floats
    from privsql.answers.estimate import Observed
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Columns, Profiled
    from privsql.mechanisms.permute.grouping import Axis, Ints
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Baseline -------------------------------------------------------------------------------------------------------------
# COUNT by the papers' formula, with bounds that hold with certainty.
#
# est = sum_g n_g c_g / |g|: n_g records of the group meet the condition on quasi-identifiers, c_g that on the sensitive
# column. At least n_g + c_g - |g| and at most min(n_g, c_g) meet both. Where the range that is asked for holds a
# group's values all or none, nothing is uncertain about the group.

BASELINE_FORMULA = "estimate = sum over groups g of n_g * c_g / |g|; low and high are certain"


def bound_parts(held: Contents, met: Floats, functionals: Floats) -> Bounds:
    """Estimates and certain bounds per set and functional (G, F); ``met`` (G, B): records of each set by group."""
    table, sizes = held.table, held.sizes.astype(np.float64)
    least, most = (np.zeros((len(met), functionals.shape[-1])) for _ in range(2))
    alike = np.asarray(table @ functionals) if functionals.ndim == 2 else None
    for g, own in enumerate(met):
        count = alike if alike is not None else np.asarray(table @ functionals[g])
        at = np.flatnonzero(own)
        n, c, size = own[at, None], count[at], sizes[at, None]
        least[g] = np.maximum(n + c - size, 0).sum(axis=0)
        most[g] = np.minimum(n, c).sum(axis=0)
    return Bounds(share_out(held, met, functionals), np.zeros_like(least), least, most)


def share_out(held: Contents, seen: Floats, functionals: Floats) -> Floats:
    """What is ``seen`` (G, B) in every group, shared out over its records, summed over the values that count (G, F)."""
    each = seen / held.sizes
    if functionals.ndim == 2:
        return np.asarray(each @ (held.table @ functionals))
    return np.array([one @ (held.table @ own) for one, own in zip(each, functionals, strict=True)])


def estimate_baseline(asked: QuestionOn, held: Contents, seen: Observed) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
    outputs, functionals = chosen(asked, seen, held.values)
    if not seen.keys or not outputs:
        return empty_estimates(asked.query)
    counts = bound_parts(held, seen.observed, functionals)
    cells = places(asked.query, seen, outputs, counts.most)
    mean, least, most = (cells.summed(part).tolist() for part in (counts.mean, counts.least, counts.most))
    found = [
        Estimate(group, middle, 0.0 if low == high else None, low, high)
        for group, middle, low, high in zip(cells.groups, mean, least, most, strict=True)
    ]
    return found or empty_estimates(asked.query)


# Answers --------------------------------------------------------------------------------------------------------------
# Answers from a (k,e)-anonymous release: exactly, or group by group, with certain bounds or intervals.

FORMULA = (
    "estimate = sum over groups g of n_g * c_g / |g|; its variance is that of drawing n_g of |g| records, and of how "
    "unlike the values of one group are, judged by neighbouring groups"
)
AMOUNTS = {"sum": answers.total, "avg": answers.mean, "min": answers.minimum, "max": answers.maximum}
SPREAD = (
    "estimate = the mean over all choices of n_g records in every group g, n_g those that meet the condition on "
    "quasi-identifiers (MIN and MAX: the median); low and high are the extreme choices, so they are certain"
)


class Answers(answer.Answers):
    """An open release that answers count queries; what its groups hold is read once."""

    certain = frozenset({"baseline"})
    records = "qit"
    measures = frozenset(AMOUNTS)

    @cached_property
    def contents(self) -> Contents:
        """What every group holds."""
        return read_contents(self._db, self._roles, None)

    @cached_property
    def channel(self) -> Channel | None:
        """A question is seen as how many records of every group meet it; None where that is too large to be told."""
        return through(self.contents) if self.contents.is_small else None

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.is_exact:
            return exact_statement(query, table("qit")), EXACT
        if query.measure.side == "sa":
            _refuse_mixtures(query)
            return self._observed(query), SPREAD
        if estimator == "baseline" and query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
        return self._observed(query), BASELINE_FORMULA if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("qit"))
        if query.measure.side == "sa":
            return self._amounts(query)
        asked = self._asked(query)
        seen = self._seen(asked)
        if estimator == "baseline":
            return estimate_baseline(asked, self.contents, seen)
        return self._estimated(asked, seen, confidence)

    def _asked(self, query: CountQuery) -> QuestionOn:
        """A question is seen as how many records of every group meet it."""
        nothing = np.zeros(0)
        groups = Channel(np.zeros((0, self.contents.groups)), nothing, nothing)
        return QuestionOn(self._db, query, table("qit"), groups, code=self._roles.by_sa.called("code"))

    def _estimated(self, asked: QuestionOn, seen: Observed, confidence: float) -> list[Estimate]:
        """COUNT, SUM and AVG of quasi-identifiers, with intervals."""
        held, query = self.contents, asked.query
        outputs, functionals = chosen(asked, seen, held.values)
        if not seen.keys or not outputs:
            return estimate.empty_estimates(query)
        if functionals.ndim > 2 and query.measure.amount is None:
            seen, functionals = pooled(query, seen, functionals)
            if not seen.keys:
                return estimate.empty_estimates(query)
        parts = bound_parts(held, seen.observed, functionals)
        variance, judged = answers.sharing_variances(held, seen.observed, functionals)
        parts = replace(parts, variance=variance, judged=judged)
        of, added = estimate.measure_amounts(asked, seen), None
        if of is not None:
            means = share_out(held, of.deviations, functionals)
            variance = answers.amount_variances(held, seen.observed, functionals, of)
            added = estimate.Amounts(of, means, variance)
        level = estimate.Level(confidence, answers.DEGREES)
        return estimate.collect_estimates(asked, seen, outputs, parts, level, added)

    def _seen(self, asked: QuestionOn) -> Observed:
        rows = self._db.arrow(self._observed(asked.query))
        return sets(asked, rows, np.ones(len(rows)))

    def _observed(self, query: CountQuery) -> exp.Query:
        """The statement: records of every group that meet the condition on quasi-identifiers."""
        amount = query.measure.amount
        holes: Holes = {
            "qit": query.records(table("qit")),
            "bid": self._roles.by_qi.column("bid"),
            "terms": select_terms(query, "qi"),
            "keys": [expression for _, expression in group_terms(query, "qi")],
            "filter": every(query.filters["qi"]),
            "totals": [named(exp.Sum(this=amount), "amounts")] if amount else [],
            "amount": [column("amounts")] if amount else [],
            "groups": [column(name) for name, _ in group_terms(query, "qi")],
        }
        return fill("permute/observed", holes)

    def _amounts(self, query: CountQuery) -> list[Estimate]:
        """SUM, AVG, MIN or MAX of the sensitive column."""
        held = self.contents
        asked = self._asked(query)
        seen = self._seen(asked)
        outputs, functionals = chosen(asked, seen, held.values)
        if not seen.keys or not outputs:
            return estimate.empty_estimates(query)
        rows = functionals[held.code, 0] > 0
        wanted = answers.Held(held.group[rows], held.code[rows], held.records[rows], self._values, held.sizes)
        met = _met(seen)
        figures = AMOUNTS[query.measure.kind](wanted, met)
        some, fewest = np.flatnonzero(answers.possible_records(wanted, met) > 0).tolist(), answers.forced(wanted, met)
        found = [Estimate(seen.keys[s], *(_figure(part[s]) for part in (*figures, fewest))) for s in some]
        return found or estimate.empty_estimates(query)

    @cached_property
    def _values(self) -> Floats:
        """The sensitive values as doubles, rising (m,)."""
        value = exp.cast(column(self._roles.sensitive[0].name), "DOUBLE")
        by = self._roles.by_sa.column("code")
        listed = exp.select(value.as_("value")).from_(table("privsql_values")).order_by(by)
        return np.asarray(self._db.arrow(listed)["value"].to_numpy(), dtype=np.float64)


def _refuse_mixtures(query: CountQuery) -> None:
    kind, name = query.measure.kind.upper(), query.measure.column
    if query.predicate is not None:
        raise UsageError(f"{kind}({name}) with a condition that mixes {name} and quasi-identifiers is not supported")
    if any(group.side == "sa" for group in query.groups):
        raise UsageError(f"{kind}({name}) grouped by {name} is not supported; group by quasi-identifiers")


def _met(seen: Observed) -> answers.Met:
    at = np.nonzero(seen.observed)
    return answers.Met(len(seen.keys), at[0], at[1], seen.observed[at].astype(np.int64))


def _figure(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


# Explanations ---------------------------------------------------------------------------------------------------------
# A (k,e)-anonymous release for people: what it promises in sentences, and its groups.

MADE = (
    "Records are put into groups by their sensitive value, and within a group the values are shuffled: it is published "
    "who is in a group and which values the group has, not who has which."
)
SEVERAL = (
    "Against people who combine several releases about the same persons, but for releases of a growing table that were "
    "made with the earlier ones in view: privsql verify --against compares these."
)
NOT = (
    "A bound on the belief in a single value: a value that most of a group have is believed of each of them.",
    "Against people who know the values of others in the group.",
    LEARNT,
    SEVERAL,
    "That somebody is in the table at all, and in which group, is not hidden: the group tells roughly what they have.",
)


def explain_guarantee(asked: Permute) -> Words:
    """(k,e)-anonymity, in sentences."""
    bound = (
        f"Every group has at least {asked.k} different values, and the largest and the smallest of them are at least "
        f"{asked.e} apart."
    )
    return Words((MADE, bound), NOT)


def describe_structure(db: Relations, manifest: Manifest) -> list[Structure]:
    """Groups by their number of different values, and by their records."""
    held = read_contents(db, manifest.roles, None)
    values = np.bincount(held.group, minlength=held.groups).tolist()
    found = []
    for title, numbers in (("different values", values), ("records", held.sizes.tolist())):
        rows: list[tuple[object, ...]] = [(name, number) for name, number in by_range(numbers)]
        said = f"The {held.groups:,} groups have {min(numbers):,} to {max(numbers):,} {title}."
        found.append(part(f"Groups by {title}", said, (title, "groups"), rows, 1))
    return found


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a (k,e)-anonymous release: their columns, and the shuffled single table as a view.


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    roles, own = manifest.roles, manifest.roles.by_sa
    sensitive = [(f.name, f.type) for f in roles.sensitive]
    return {
        "qit": [
            *((f.name, f.type) for f in roles.quasi_identifiers),
            *roles.by_qi.typed(("bid", "INTEGER"), ("code", "INTEGER")),
        ],
        "st": [*own.typed(("bid", "INTEGER")), *sensitive, *own.typed(("count", "INTEGER"))],
        "privsql_values": [*own.typed(("code", "INTEGER")), *sensitive, *own.typed(("records", "BIGINT"))],
    }


def view(manifest: Manifest) -> exp.Query:
    """Every record's quasi-identifiers beside the sensitive value that the shuffle deals to it."""
    roles = manifest.roles
    holes: Holes = {
        "qit": table("qit"),
        "values": table("privsql_values"),
        "qi": [named(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "qit_code": roles.by_qi.column("code", "qit"),
        "listed_code": roles.by_sa.column("code", "listed"),
        **roles.by_all.names("weight"),
    }
    return fill("permute/shuffled", holes)


# The mechanism --------------------------------------------------------------------------------------------------------
# (k,e)-anonymity as a mechanism (``contract``): group over distinct values, shuffle, publish through SQL.
#
# US patent 8,112,422 B2 (granted 2012) speaks of (k,e)-anonymization for aggregate queries; users may look into it.

NESTED, LAST = "nested", "reapply-last"
K, PARTS = 5, (10, 5, 4, 3, 2, 1)  # proposed: k, and the first e of these parts of the middle half's range that will do


def plan(db: Relations, source: Records, asked: Permute) -> dict[str, Any]:
    """The facts of the next release: of the static optimum, if it is the first one."""
    found = measured(db, source, asked.k, asked.e)
    starts = _static(found, source, asked)
    if source.history.releases:
        source.sort()
        codes, groups = _assigned(found, source, asked, starts)
        return _facts(found, groups[groups >= 0], codes[groups >= 0], None) | _held(groups)
    codes = np.arange(len(source.counts), dtype=np.int64)
    return _facts(found, labels(starts, len(codes)), codes, source.counts)


def _static(found: Measured, source: Records, asked: Permute) -> list[int]:
    starts = static(found.axis)
    if starts:
        return starts
    units, name = found.axis.units, source.roles.sensitive[0].name
    widest = found.shown(units[-1] - units[0]) if units else "0"
    raise InfeasibleError(
        f"column {name!r} has {len(units)} distinct values over a range of {widest}; one group with k = {asked.k} and "
        f"e = {asked.e} needs as many: lower mechanism.k to {min(asked.k, len(units))} or mechanism.e to {widest}",
        {"distinct": len(units), "range": widest},
    )


def publish(db: Relations, source: Records, asked: Permute, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st`` and ``privsql_values`` in database ``release``; returns the facts."""
    found = measured(db, source, asked.k, asked.e)
    starts = _static(found, source, asked)
    codes, groups = _assigned(found, source, asked, starts)
    roles = source.roles
    shown = np.flatnonzero(groups >= 0)  # the others are held back
    values, ranks, records = _published(codes[shown], source.counts)
    if source.order == "portable":
        write_ranked(db, source, groups, ranks, key)
    else:
        noise = key.stream("permute", int(groups.max()) + 1, tuple(source.counts), tuple(source.labels))
        write_records(db, source, groups, ranks, noise)
    source.history.groups = groups
    db.put("composition", contents(groups[shown], codes[shown]))
    holes: Holes = {"composition": temp("composition"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.names("bid", "count")
    db.make("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.put("published", pa.table({"code": values, "rank": np.arange(len(values)), "records": records}))
    listed: Holes = {"published": temp("published"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    listed |= roles.by_sa.names("code", "records")
    db.make("privsql_values", fill("permute/values", listed), into="release")
    db.drop("composition", "published")
    return _facts(found, groups[shown], codes[shown], None) | _held(groups)


def _assigned(found: Measured, source: Records, asked: Permute, starts: list[int]) -> tuple[Ints, Ints]:
    """Value and group of every record (n,); ``starts`` of the static optimum, which the first release takes."""
    codes = np.repeat(np.arange(len(source.counts), dtype=np.int64), source.counts)
    if not source.history.releases:
        return codes, np.asarray(labels(starts, len(found.axis.units))[codes])
    needed = source.history.releases if asked.algorithm in ("exact", "reapply-all") else 1
    return codes, grouped(found, codes, source.history.earlier(needed, source.records), asked)


def _held(groups: Ints) -> dict[str, Any]:
    """How many records wait, and so are left out."""
    held = int((groups < 0).sum())
    return {"held_back": held, "left_out": held}


def _published(codes: Ints, counts: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """The values that are published, the rank of every record's value among them, and their records."""
    if len(codes) == sum(counts):
        return np.arange(len(counts)), codes, np.array(counts, dtype=np.int64)
    values, ranks, records = np.unique(codes, return_inverse=True, return_counts=True)
    return values, ranks, records


def grouped(found: Measured, codes: Ints, earlier: Ints, asked: Permute) -> Ints:
    """Group of every record (n,), records by rising value, given their groups in earlier releases (m, n)."""
    if asked.algorithm == "nested":  # works on values and groups; the order of records is nothing to it
        return release(History(found.axis, codes, earlier), asked.algorithm)
    order = arranged(codes, earlier)
    groups = np.empty(len(codes), dtype=np.int64)
    groups[order] = release(History(found.axis, codes[order], earlier[:, order]), asked.algorithm)
    return groups


def _facts(found: Measured, groups: Ints, codes: Ints, weights: Any) -> dict[str, Any]:
    """Groups and widths; ``weights``: how many records each entry stands for."""
    number = int(groups.max()) + 1
    low, high = np.full(number, len(found.axis.units)), np.full(number, -1)
    np.minimum.at(low, groups, codes)
    np.maximum.at(high, groups, codes)
    sizes = np.bincount(groups, weights=weights, minlength=number)
    widths = [found.axis.width(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    spread = sum(width * int(size) for width, size in zip(widths, sizes.tolist(), strict=True))
    return {
        "loss": float(sum(widths) * found.unit),
        "error": found.shown(sum(widths)),
        "groups": number,
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "mean_width": float(spread * found.unit / int(sizes.sum())),
    }


def propose(db: Relations, source: Profiled) -> Proposal:
    """K values over e, e from the spread of the values: the least part of the middle half's range that will do.

    That is, with which the best exact guess (the commonest value of the group) is right for at most half of the
    records; where a value is so common that no range of ``PARTS`` does, the widest, with a remark.
    """
    records = source.records()
    k = min(K, len(records.counts))
    is_time = records.roles.sensitive[0].type in STEPS
    found = measured(db, records, k, extent("0 days") if is_time else extent(0))
    units, ends = found.axis.units, np.cumsum(records.counts)
    low, high = (units[int(np.searchsorted(ends, int(ends[-1]) * share // 4, side="right"))] for share in (1, 3))
    middle = (high - low) or (units[-1] - units[0])
    widths = [middle // part for part in PARTS] or [0]
    guesses = [_guessed(axis(units, k, width), records.counts) for width in widths]
    chosen = next((number for number, guess in enumerate(guesses) if guess <= Fraction(1, 2)), len(widths) - 1)
    e = _shown(float(widths[chosen] * found.unit), is_time=is_time)
    remarks: tuple[str, ...] = (f"e is a part of the range of the middle half of the values, {found.shown(middle)}.",)
    if guesses[chosen] > Fraction(1, 2):
        remarks += (f"Mind: who guesses the commonest value of a group is right for {float(guesses[chosen]):.0%}.",)
    return Proposal({"kind": "permute", "algorithm": "nested", "k": k, "e": e}, remarks)


def _shown(width: float, *, is_time: bool) -> str:
    if is_time:
        return f"{max(1, width // DAY):.0f} days"
    return f"{width:.0f}" if width >= 100 else f"{width:.3g}"


def _guessed(line: Axis, counts: Sequence[int]) -> Fraction:
    """Share of the records that the commonest value of their group is right for, in the static optimum."""
    starts = static(line)
    if not starts:
        return Fraction(1)
    most = np.maximum.reduceat(np.array(counts, dtype=np.int64), starts)
    return Fraction(int(most.sum()), sum(counts))


def terms(asked: Permute) -> tuple[int, str]:
    """What releases must agree in for a guarantee over all of them, besides the columns."""
    return asked.k, str(asked.e)


def covered(algorithms: Sequence[str]) -> str | None:
    """What releases of the same subjects guarantee together; the first one has nothing to breach.

    ``exact`` and ``reapply-all`` look at every earlier release. ``nested`` unites groups of the last one, so that what
    it leaves and shares with a group of any earlier release is a union of what the last one did. ``reapply-last`` sees
    the last release alone, which is all that there is for a second one.
    """
    later = list(algorithms[1:])
    if set(later) == {LAST}:
        return "groups are checked against those of the last release only; older ones may breach"
    if LAST in later[1:]:
        return None
    if set(later) <= {NESTED}:
        return "every Boolean combination of groups of all releases is (k,e)-anonymous or empty"
    return "no two groups of two releases breach (k,e)-anonymity (Definition 5); three may"


def promise(asked: Permute) -> str:
    """How many values over which range."""
    return f"{asked.k} values over {asked.e}"


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Groups and widths."""
    held = [("held back", f"{facts['held_back']:,} new records")] if facts.get("held_back") else []
    return [
        ("groups", f"{facts['groups']:,}  (of {facts['smallest']:,} to {facts['largest']:,} records)"),
        ("error", f"{facts['error']}  (sum of max - min; {facts['mean_width']:.6g} around a record)"),
        *held,
    ]


MECHANISM = Mechanism(
    parameters=Permute,
    shape=Table(numeric=True, most_numbers=None),
    composition=Groups(terms, covered, together),
    sql=SQL,
    relations=("qit", "st", "privsql_values"),
    read=read,
    plan=plan,
    algorithms=contract.refuse_comparison(
        "its algorithms differ in what they do with rows that are added later, not in what they tell of a table"
    ),
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=long_checks,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=Permuted,
        adversaries=attacks.ADVERSARIES,
        combining=(adversaries.attack_by_intersection, together.attack_together),
        quick=None,
    ),
    promise=promise,
    words=explain_guarantee,
    structure=describe_structure,
    advice=(
        "a larger k or e: more and more different values in every group",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
