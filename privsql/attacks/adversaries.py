"""Run the adversaries of a mechanism; those for any mechanism stand here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy
from sqlglot import exp

from privsql.attacks.scene import AttackView, Finding, Floats, Ints, ReleaseView, Truth
from privsql.attacks.suite import RARE, SURE, Adversary, Association, AttackContext, ReleaseSeries
from privsql.engine.database import SILENT, Reporter, report_steps
from privsql.engine.sqlfiles import BITS, Holes, column, fill, injective_text, same_columns, table, temp_table
from privsql.errors import UsageError
from privsql.model.checks import in_order
from privsql.model.explanations import list_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Absence --------------------------------------------------------------------------------------------------------------
# Someone who knows everybody's quasi-identifiers sees who is missing from a release.
#
# If everybody's quasi-identifiers are known and n of N people are published, the mean over all people of the belief in
# a value x is f_x, its frequency among all N, whatever the publisher does. So what is taken from the belief about those
# who are there is added to the belief about those who are missing: leaving records out because of their sensitive value
# tells that value. No bound on those who are there mends it; it is outside every promise, and a publisher has to state
# that absence is not observable.


ABSENCE = "absence"
ABSENCE_KNOWS = "the quasi-identifiers of all records, and so which ones are missing from the release"


def list_absence(view: ReleaseView, belief: float | None) -> list[Finding]:
    """Return a finding for each reason why records are missing from a release.

    Args:
        view: The release.
        belief: The belief in the value of a record that is missing because its value is too frequent; None if unknown.
    """
    findings = []
    for one in list_missing(view.manifest):
        sure, notes = 1.0 if one.certain else belief, (f"missing because {one.why}: {one.tells}",)
        findings.append(Finding(attacked=one.records, mean=sure, highest=sure, leaks=True, notes=notes))
    return findings


def attack_by_absence(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find which records are missing, for releases that do not tell how certain the value of a missing record is."""
    return list_absence(learnt.view, None)


ABSENCE_ADVERSARY: Adversary[AttackView] = Adversary(ABSENCE, ABSENCE_KNOWS, promised=False, attack=attack_by_absence)


# Identifiers ----------------------------------------------------------------------------------------------------------
# A quasi-identifier that is (nearly) unique names every record; one that determines the sensitive value
# publishes it.

UNIQUE = 0.95  # share of records with a value of their own from which on a column names records
FEWEST = 20  # records, below which everything is nearly unique
DETERMINED = 0.9  # share of records whose value a column gives away


def attack_by_identifiers(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find columns in which all or nearly all records have a value of their own; a release promises to have none."""
    scene = learnt.scene
    unique_shares = {
        f.name: _unique_share(level) for f, level in zip(scene.roles.quasi_identifiers, scene.levels, strict=True)
    }
    enough = len(scene.record_keys) >= FEWEST
    notes = tuple(
        f"{name}: {share:.1%} of the records have a value of their own"
        for name, share in unique_shares.items()
        if enough and share >= UNIQUE
    )
    highest = max(unique_shares.values(), default=0.0)
    return [Finding(attacked=len(unique_shares), unit="columns", highest=highest, leaks=bool(notes), notes=notes)]


def _unique_share(level: Ints) -> float:
    """Return the share of records whose value in a column no other record has."""
    return float((np.bincount(level) == 1).sum() / max(1, len(level)))


def attack_by_determination(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Guess each record's sensitive value from a single quasi-identifier, and find columns that nearly determine it.

    The guess is the most frequent value among the records with the same level of the column. Beliefs come from the
    counts that are reconstructed from the release; with the source, true counts say how many guesses are right. Columns
    in which nearly every record has a value of its own are left to ``attack_by_identifiers``.
    """
    scene, fields, truth = learnt.scene, learnt.scene.roles.quasi_identifiers, learnt.scene.truth
    columns = zip(fields, learnt.associations, strict=True)
    rows = [(field.name, one) for field, one in columns if _unique_share(one.level) < UNIQUE]
    guessed = {name: float(one.counts.max(axis=1).sum() / one.counts.sum()) for name, one in rows}
    true = {name: _commonest_share(truth, one.level) for name, one in rows} if truth is not None else guessed
    notes = tuple(
        f"{name} determines the sensitive value for {share:.1%} of the records"
        for name, share in true.items()
        if share >= DETERMINED
    )
    best = max(guessed.values(), default=0.0)
    return [
        Finding(
            attacked=len(rows),
            unit="columns",
            mean=best,
            highest=best,
            baseline=scene.baseline,
            right=max(true.values(), default=0.0) if truth is not None else None,
            leaks=bool(notes),
            notes=notes,
        )
    ]


def _commonest_share(truth: Truth, level: Ints) -> float:
    """Return the share of the source's records whose sensitive value is the most frequent one of their level."""
    _, first = np.unique(truth.keys, return_index=True)
    keys, codes = np.divmod(truth.cells, truth.value_count)
    of_key = np.zeros(int(truth.keys.max()) + 1, dtype=np.int64)
    of_key[truth.keys[first]] = level[first]
    shape = (int(level.max()) + 1, truth.value_count)
    counts = np.bincount(of_key[keys] * truth.value_count + codes, truth.records, shape[0] * shape[1]).reshape(shape)
    return float(counts.max(axis=1).sum() / max(1.0, counts.sum()))


IDENTIFIERS_ADVERSARY: Adversary[AttackView] = Adversary(
    "identifiers left in",
    "a list with the column; looks for columns in which nearly every record has a value of its own",
    promised=True,
    attack=attack_by_identifiers,
)
DETERMINATION_ADVERSARY: Adversary[AttackView] = Adversary(
    "columns that give the value away",
    "one quasi-identifier of the record; learns from the release which value goes with it",
    promised=False,
    attack=attack_by_determination,
)


# Intersection ---------------------------------------------------------------------------------------------------------
# What two releases of the same people tell together of who is alone with their
# quasi-identifiers in both.
#
# Given that a record has value x, its group in one release says nothing about its group in the other, so with c1, c2
# the counts of x in its two groups and o_x the records with x,
#
#     Pr(x | both groups) is proportional to c1(x) c2(x)/o_x.
#
# Each release keeps its own bound; no bound holds for the product, except where a guarantee covers both.

INTERSECTION = "intersection of releases"
INTERSECTION_KNOWS = (
    "another release of the same people, and the quasi-identifiers of a record that is alone with them in both"
)


def attack_by_intersection(releases: ReleaseSeries) -> list[Finding]:
    """Find beliefs about persons whose quasi-identifiers are unique in both of two releases.

    The values listed in the two groups of a person are combined; both releases list the values of groups in ``st``.

    Raises:
        UsageError: The releases have different columns.
    """
    first, second = releases.manifests
    if first.roles != second.roles:
        raise UsageError("against: the releases have other columns")
    db, databases = releases.db, releases.databases
    roles = first.roles
    quasi = exp.select(*roles.qi_in(), *roles.by_qi.select_columns("bid"))
    listed = exp.select(*roles.sa_in(), *roles.by_sa.select_columns("bid", "count"))
    tables = {"first": ("qit", quasi, 0), "second": ("qit", quasi, 1)}
    tables |= {"first_st": ("st", listed, 0), "second_st": ("st", listed, 1)}
    holes: Holes = {
        **{key: rows.from_(table(name, databases[i])).subquery() for key, (name, rows, i) in tables.items()},
        "qi": roles.qi_columns(),
        "sa": roles.sa_columns(),
        "same_qi": same_columns("a", "b", roles.qi_keys),
        "same_value": same_columns("s", "t", roles.sa_keys),
        "same_total": same_columns("s", "o", roles.sa_keys),
    }
    rows = db.arrow(fill("attack/intersected", holes))
    people, total, most = (rows[name].to_numpy().astype(np.float64) for name in ("people", "total", "most"))
    attacked, beliefs = int(people.sum()), most / total
    if not attacked:
        return [Finding(INTERSECTION, INTERSECTION_KNOWS)]
    alone = int(people[beliefs > 1 - 1e-12].sum())
    return [
        Finding(
            INTERSECTION,
            INTERSECTION_KNOWS,
            attacked=attacked,
            mean=float((beliefs * people).sum() / attacked),
            highest=float(beliefs.max()),
            notes=(f"{alone:,} of them have a single value left",),
        )
    ]


# Linkage --------------------------------------------------------------------------------------------------------------
# Who knows a person's quasi-identifiers finds the record, and reads off what is published of its value.
#
# This is the adversary that both mechanisms promise to resist. Bucketization: Pr(x | g) = count(g, x)/|g| (with sigma
# fakes, over |g| + sigma listed values), at most f'_x. Randomization: for a record published with y = x, gamma f/(gamma
# f + 1 - f), at most rho2 for a protected x whose frequency in the sub-table is at most rho1_j.


def attack_by_linkage(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the posterior of every record for an attacker who knows its quasi-identifiers: the belief that is promised.

    Whether a bound is exceeded is decided in exact numbers.
    """
    scene = learnt.scene
    tally, surest = scene.make_tally(), 0.0
    protected = np.zeros(len(scene.bounds), dtype=bool)
    protected[scene.protected_values] = True
    for block in scene.blocks():
        slots = np.broadcast_to(block.prior, block.shape)
        tally.add_block(block, slots)
        if not protected.all():
            surest = max(surest, float((block.of_values(slots) * protected[block.codes][:, None]).max(initial=0)))
    notes = () if protected.all() else (f"at most {surest:.1%} sure of a value that is protected",)
    return [Finding(baseline=scene.baseline, notes=notes, **tally.finding_fields() | {"above": scene.excess_share()})]


LINKAGE_ADVERSARY: Adversary[AttackView] = Adversary(
    "linkage",
    "the record's quasi-identifiers, that it is in the table, and how the release was made",
    promised=True,
    attack=attack_by_linkage,
)


# Negative -------------------------------------------------------------------------------------------------------------
# The release itself teaches that people with some attribute hardly ever have some value.
#
# Counts n(v, x) are reconstructed per value v of a quasi-identifier; v and x are negatively associated if
#
#     n(v, x) + SURE standard errors < RARE n_v f_x,
#
# that is, with some certainty far fewer than independence would give: the statistic by which a publisher chooses fake
# values that are not so excluded. The adversary strikes such values off the list of everyone with v, and shares the
# rest out as before (Wang et al., section 6, after Li and Li 2008).


def mark_excluded(one: Association, shares: Floats) -> NDArray[np.bool_]:
    """Return which sensitive values hardly ever occur with each level of a column (V, m)."""
    return np.asarray(one.counts + SURE * one.errors < RARE * one.totals[:, None] * shares)


def attack_by_negative(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the posterior of every record after values that its quasi-identifiers exclude are struck off.

    A record for which no value is left keeps all of them.
    """
    scene, columns = learnt.scene, learnt.associations
    rules = [mark_excluded(one, scene.shares) for one in columns]
    tally = scene.make_tally()
    for block in scene.blocks():
        out = np.zeros(block.shape, dtype=bool)
        for one, rule in zip(columns, rules, strict=True):
            if rule.any():
                out |= rule[one.level[block.rows][:, :, None], block.codes[:, None, :]]
        left = np.where(out & ~out.all(axis=2, keepdims=True), 0.0, block.prior)
        tally.add_block(block, left / left.sum(axis=2, keepdims=True))
    pairs = sum(int(rule.sum()) for rule in rules)
    met = f"{pairs:,} pairs of a known and a sensitive value hardly ever meet"
    notes = (met if pairs else "no known value rules out a sensitive one",)
    return [Finding(baseline=scene.baseline, notes=notes, **tally.finding_fields())]


NEGATIVE_ADVERSARY: Adversary[AttackView] = Adversary(
    "negative association",
    "the record's quasi-identifiers; learns from the release which values such records hardly ever have",
    promised=False,
    attack=attack_by_negative,
)


# Order ----------------------------------------------------------------------------------------------------------------
# The order of published rows, and the numbers of buckets, may tell what they should not.
#
# Tables are published in canonical order, which follows from their contents alone. Rows that lie otherwise were put
# there by something else, such as the order of the source. Bucket numbers within a size are exchangeable in layouts
# that draw them; a quasi-identifier that runs with them betrays the order in which records were taken.
#
# With the source, the i-th row of a bucket is paired with its i-th listed value, which is right no more often than any
# other pairing if the order tells nothing.

SIGNIFICANCE = 1e-6  # false alarms per clean release, over all columns together


def attack_by_order(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find rows that are out of canonical order, and columns whose values follow the numbers of the buckets."""
    scene, out = learnt.scene, {}
    for name, (rows, order) in scene.canonical_orders().items():
        offending = in_order(rows, order, strict=False).subquery("offending")
        out[name] = int(scene.db.rows(fill("core/size", {"table": offending}))[0][0])
    notes = [f"{number:,} rows of {name} lie out of canonical order" for name, number in out.items() if number]
    notes += _find_running(scene)
    stored = len(scene.record_keys)
    return [Finding(attacked=stored, leaks=bool(notes), notes=tuple(notes), **_pairing_rates(scene))]


def _find_running(scene: AttackView) -> list[str]:
    """Return the quasi-identifiers whose values follow the numbers of the buckets, by a permutation test.

    T_g is the sum of the column's ranks in bucket g. If the b buckets of a size are numbered at random, Var[sum_g g
    T_g] = sum_g (g - mean)^2 sum_g (T_g - mean)^2/(b - 1). The sums of all sizes add up to one normal deviate.
    """
    sentences = []
    for level, field in zip(scene.levels, scene.roles.quasi_identifiers, strict=True):
        deviate = _order_deviate(scene, level)
        if scipy.special.erfc(abs(deviate) / np.sqrt(2)) < SIGNIFICANCE / len(scene.levels):
            sentences.append(f"{field.name} runs with the bucket numbers ({abs(deviate):.0f} standard errors)")
    return sentences


def _order_deviate(scene: AttackView, level: Ints) -> float:
    total = variance = 0.0
    for rows in scene.numbered_groups:
        sums, number = level[rows].sum(axis=1).astype(np.float64), np.arange(len(rows), dtype=np.float64)
        sums, number = sums - sums.mean(), number - number.mean()
        total += float(number @ sums)
        variance += float((number**2).sum() * (sums**2).sum()) / max(1, len(rows) - 1)
    return total / np.sqrt(variance) if variance > 0 else 0.0


def _pairing_rates(scene: AttackView) -> dict[str, Any]:
    """Return how often the i-th row of a bucket has the i-th listed value, and how often chance alone would do it.

    The first figure is taken from the source.
    """
    truth = scene.truth
    if truth is None or not scene.is_paired:
        return {}
    right = chance = matched = 0.0
    for block in scene.blocks():
        true = truth.true_probability(block)
        right += float((np.einsum("bii->bi", true) * block.value_counts).sum())
        chance += float((true.sum(axis=2) * block.value_counts.mean(axis=1)[:, None]).sum() / block.shape[2])
        matched += float(true.sum())
    return {"right": right / max(1.0, matched), "baseline": chance / max(1.0, matched)}


ORDER_ADVERSARY: Adversary[AttackView] = Adversary(
    "row order",
    "how the rows lie in the published tables, and how buckets are numbered",
    promised=True,
    attack=attack_by_order,
)


# Choice ---------------------------------------------------------------------------------------------------------------
# Who knows how one record of each person was chosen weighs the values that the person may have.
#
# If the record with the smallest hash of K is taken and anybody can compute the hash h (of 0..1) of a person's record
# with value x, then the probability that x is the published value is proportional to (1 - h)^(K - 1) times what is
# published of x. With a secret key no hash can be computed: every record is as likely as the others, and nothing is
# learnt.

MOST = 20_000  # about as many records are attacked
DEVIATIONS = 6  # more guesses are right than by chance: one false alarm in a billion


def attack_by_choice(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Guess the published value of persons with several records, of which the smallest keyed hash chose one.

    Only persons who are alone with their quasi-identifiers are attacked.
    """
    scene = learnt.scene
    scene.db.register_arrow("pairs", _list_pairs(scene))
    roles = scene.roles
    named = [*zip(roles.qi_columns("a"), roles.quasi_identifiers, strict=True)]
    named += zip(roles.sa_columns("v"), roles.sensitive, strict=True)
    published = [injective_text(item, field.type) for item, field in named]
    person = injective_text(column("person", "c"), "VARCHAR")
    holes: Holes = {
        "pairs": temp_table("pairs"),
        "rows": scene.rows,
        "values": temp_table("a_values"),
        "chosen": temp_table("chosen_people"),
        "people": temp_table("people"),
        "same_qi": same_columns("a", "c", roles.qi_keys),
        "same_value": same_columns("c", "v", roles.sa_keys),
        "hash": scene.db.hashed([exp.Literal.string(""), person, *published, exp.Literal.string("1")]),
    }
    matches = scene.db.arrow(fill("attack/chosen", holes))
    scene.db.drop("pairs")
    pos, times = (matches[name].to_numpy().astype(np.int64) for name in ("pos", "times"))
    prior = matches["prior"].to_numpy().astype(np.float64)
    hashes = matches["hash"].to_numpy().astype(np.float64) / 2.0**BITS
    true = matches["is_true"].to_numpy(zero_copy_only=False)
    return [make_choice_finding(pos, prior, weigh_by_hash(pos, prior, hashes, times), true)]


def weigh_by_hash(pos: Ints, prior: Floats, hashes: Floats, times: Ints) -> Floats:
    """Return the posterior of every possible value of each person, given that the smallest hash was published.

    It is proportional to prior (1 - hash)^(times - 1): the other records all have larger hashes.

    Args:
        pos: The person of each value.
        prior: The probability of each value before anything is learnt.
        hashes: The hash of the person's record with each value, in [0, 1).
        times: The number of the person's records.
    """
    weights = prior * (1 - hashes) ** (times - 1)
    _, person = np.unique(pos, return_inverse=True)
    return np.asarray(weights / np.bincount(person, weights)[person])


def make_choice_finding(pos: Ints, prior: Floats, posterior: Floats, true: np.ndarray) -> Finding:
    """Return how often the likeliest value is right, beside how often it would be right if nothing were learnt."""
    order = np.lexsort((posterior, pos))
    best = order[np.append(np.diff(pos[order]) > 0, True)] if len(pos) else order
    attacked, right, chance = len(best), float(true[best].sum()), float(prior[best].sum())
    if not attacked:
        return Finding(promised=True, unit="persons", applies=False)
    spread = float((prior[best] * (1 - prior[best])).sum()) ** 0.5
    return Finding(
        promised=True,
        attacked=attacked,
        unit="persons",
        mean=chance / attacked,
        highest=float(prior[best].max()),
        right=right / attacked,
        leaks=right - chance > DEVIATIONS * max(spread, 1.0),
        notes=(f"{right / attacked:.1%} of the guesses are right, {chance / attacked:.1%} by chance",),
    )


def _list_pairs(scene: AttackView) -> pa.Table:
    """Return the possible values (pos, code, prior) of records that are alone with their quasi-identifiers."""
    alone = np.bincount(scene.record_keys)[scene.record_keys] == 1
    attacked = np.flatnonzero(alone)
    wanted = np.zeros(len(alone), dtype=bool)
    wanted[attacked[:: max(1, len(attacked) // MOST)]] = True
    parts = []
    for block in scene.blocks():
        prior = block.of_values(np.broadcast_to(block.prior, block.shape))
        b, r, t = prior.shape
        rows, codes = (np.broadcast_to(x, (b, r, t)).ravel() for x in (block.rows[:, :, None], block.codes[:, None, :]))
        chosen = wanted[rows]
        parts.append(np.stack([rows[chosen], codes[chosen], prior.ravel()[chosen]]))
    pairs = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0))
    _, first = np.unique(pairs[:2], axis=1, return_index=True)  # a value that is listed twice is one
    pairs = pairs[:, first]
    columns = {name: pairs[i].astype(np.int64) for i, name in enumerate(("pos", "code"))}
    return pa.table({**columns, "prior": pairs[2]})


CHOICE_ADVERSARY: Adversary[AttackView] = Adversary(
    "choice of records",
    "the person's name in the source and number of records, and how one of them is chosen, but for the key",
    promised=True,
    attack=attack_by_choice,
)


# The run --------------------------------------------------------------------------------------------------------------


def run_attacks(
    view: ReleaseView,
    adversaries: Sequence[Adversary[Any]],
    scene: type[AttackView] | None,
    report: Reporter = SILENT,
) -> list[Finding]:
    """Run the adversaries of a mechanism against one release and return their findings.

    If one record of each person was chosen for publication, the attacker who knows how is run as well.

    Args:
        view: The release.
        adversaries: The adversaries of its mechanism.
        scene: The class that turns the release's tables into arrays, for adversaries who learn from quasi-identifiers.
        report: Where to say how many adversaries are done.
    """
    learnt = AttackContext(view, scene)
    reduced = view.manifest.persons is not None and view.manifest.persons.taken is not None
    choice = (CHOICE_ADVERSARY,) if view.source and reduced and scene is not None else ()
    every = (*adversaries, *choice)
    report.start_step("Attacking the release")
    steps = report_steps(report, (one.find(learnt) for one in every), len(every))
    return [finding for found in steps for finding in found]
