"""The adversaries that several mechanisms share, and the function that runs all adversaries of a mechanism.

A belief is the probability that an adversary gives to a sensitive value of a record (a posterior).
"""

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
# Suppose n of N people are published, and everybody's quasi-identifiers are known. The belief in a value x, averaged
# over all N people, is its frequency f_x, whatever the publisher does. So what a release takes from the belief about
# published people is added to that about missing ones: leaving records out because of their sensitive value reveals
# that value. No bound for published people changes that. It is outside every promise, and a publisher has to state that
# absence can't be observed.


ABSENCE = "absence"
ABSENCE_KNOWS = "the quasi-identifiers of all records, and so which ones are missing from the release"


def list_absence(view: ReleaseView, belief: float | None) -> list[Finding]:
    """Return a finding for each reason why records of the source are missing from a release.

    Records may be missing because of their sensitive value, for example because it is NULL or too frequent. Whoever
    notices that somebody is missing then learns about the value.

    Args:
        view: The release.
        belief: The probability with which the attacker guesses the value of a missing record, unless the reason makes
            it certain. None if it is not known.
    """
    findings = []
    for one in list_missing(view.manifest):
        sure, notes = 1.0 if one.certain else belief, (f"missing because {one.why}: {one.tells}",)
        findings.append(Finding(attacked=one.records, mean=sure, highest=sure, leaks=True, notes=notes))
    return findings


def attack_by_absence(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Report what somebody learns who notices that a record is missing from the release.

    How sure the attacker is of the record's value is stated only if it is certain, such as NULL.
    """
    return list_absence(learnt.view, None)


ABSENCE_ADVERSARY: Adversary[AttackView] = Adversary(ABSENCE, ABSENCE_KNOWS, promised=False, attack=attack_by_absence)


# Identifiers ----------------------------------------------------------------------------------------------------------
# A quasi-identifier whose values are (nearly) unique identifies every record. One that determines the sensitive value
# publishes it.

UNIQUE = 0.95  # share of records with a value of their own above which a column identifies records
FEWEST = 20  # with fewer records, every column is nearly unique
DETERMINED = 0.9  # share of right guesses above which a column determines the value


def attack_by_identifiers(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find columns that identify records, because all or nearly all records have a value of their own.

    A release promises to have no such column.
    """
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
    """Return the share of n records whose value in a column no other record has.

    Args:
        level: The rank of each record's value among the column's values (n,).
    """
    return float((np.bincount(level) == 1).sum() / max(1, len(level)))


def attack_by_determination(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Guess each record's sensitive value from one quasi-identifier, and find columns that nearly determine it.

    The guess is the most frequent sensitive value among the records with the same value of the column. How sure the
    attacker is follows from counts that are estimated from the release. If the source is known, its counts tell how
    many guesses are right. Columns that identify records are left to ``attack_by_identifiers``.
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
    """Return how often a guess from one quasi-identifier is right: a share of the source's records.

    The guess is the most frequent sensitive value among the records with the same value of the quasi-identifier.

    Args:
        truth: The records of the source.
        level: The rank of each of n records' values of one quasi-identifier (n,).
    """
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
# What two releases of the same people reveal together about people who are unique in both: nobody else has the same
# quasi-identifiers.
#
# If a record's value is x, its group in one release says nothing about its group in the other. Let c1 and c2 be the
# counts of x in its two groups, and o_x the number of records with x. Then
#
#     Pr(x | both groups) is proportional to c1(x) c2(x)/o_x.
#
# Each release keeps its own bound. No bound holds for the product, unless a guarantee covers both releases.

INTERSECTION = "intersection of releases"
INTERSECTION_KNOWS = (
    "another release of the same people, and the quasi-identifiers of a record that is alone with them in both"
)


def attack_by_intersection(releases: ReleaseSeries) -> list[Finding]:
    """Find how sure an adversary becomes by combining two releases about persons who are unique in both.

    A person is unique if nobody else has the same quasi-identifiers. In each release the person is in a bucket or
    group, whose values are listed in table ``st``. The adversary combines the two lists.

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
# Someone who knows a person's quasi-identifiers finds the record, and reads what is published of its value.
#
# This is the adversary that bucketization and randomization promise to resist. Bucketization: Pr(x | g) = count(g,
# x)/|g| is at most f'_x; with sigma fakes, |g| + sigma values are listed. Randomization: the belief in the published
# value is gamma f/(gamma f + 1 - f). It is at most rho2 for a protected value whose frequency in the sub-table is at
# most rho1_j.


def attack_by_linkage(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the belief in each value of every record, for an attacker who knows the record's quasi-identifiers.

    This is the belief that the release bounds. Whether a bound is exceeded is decided in exact numbers.
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
# A release itself teaches that people with some known value hardly ever have some sensitive value.
#
# The counts n(v, x) of sensitive values x are reconstructed for each value v of a quasi-identifier. v and x are
# negatively associated if
#
#     n(v, x) + SURE standard errors < RARE n_v f_x,
#
# that is, if they occur together far less often than if they were independent. A publisher chooses fake values that are
# not excluded in this way, by the same statistic. The adversary strikes excluded values off the list of everyone with
# v, and divides the rest as before (Wang et al., section 6, after Li and Li 2008).


def mark_excluded(one: Association, shares: Floats) -> NDArray[np.bool_]:
    """Return which sensitive values the attacker rules out for each of V values of a quasi-identifier (V, m).

    They occur with it far less often than if both were independent: the estimated count plus two standard errors is
    below a tenth of the count to expect then.

    Args:
        one: The estimated counts of m sensitive values for each of V values of the quasi-identifier.
        shares: The overall shares of the sensitive values (m,).
    """
    return np.asarray(one.counts + SURE * one.errors < RARE * one.totals[:, None] * shares)


def attack_by_negative(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the beliefs of an adversary who strikes off a record's unlikely sensitive values.

    A belief is the probability that the adversary gives to a value. Unlikely values hardly ever occur with one of the
    record's quasi-identifiers, by counts estimated from the release. A record for which no value would be left keeps
    all of them.
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
# The order of published rows, and the numbers of buckets, may reveal something.
#
# Published tables are sorted by their contents alone. Rows in another place were put there by something else, such as
# the order of the source. Layouts that draw bucket numbers make those of one size exchangeable. A quasi-identifier that
# rises or falls with them reveals the order in which records were taken.
#
# If the source is known, the i-th row of a bucket is paired with its i-th listed value. That is right no more often
# than any other pairing if the order reveals nothing.

SIGNIFICANCE = 1e-6  # probability of a false alarm for a release without fault, over all columns together


def attack_by_order(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find rows that are not sorted as published tables must be, and columns whose values follow the bucket numbers.

    Either could reveal the order of the source's records.
    """
    scene, out = learnt.scene, {}
    for name, (rows, order) in scene.canonical_orders().items():
        offending = in_order(rows, order, strict=False).subquery("offending")
        out[name] = int(scene.db.rows(fill("core/size", {"table": offending}))[0][0])
    notes = [f"{number:,} rows of {name} lie out of canonical order" for name, number in out.items() if number]
    notes += _find_running(scene)
    stored = len(scene.record_keys)
    return [Finding(attacked=stored, leaks=bool(notes), notes=tuple(notes), **_pairing_rates(scene))]


def _find_running(scene: AttackView) -> list[str]:
    """Return a sentence on each quasi-identifier whose values rise or fall with the numbers of the buckets.

    Such a column reveals the order in which buckets were filled. It is found by a permutation test. Let T_g be the sum
    of the column's ranks in bucket g, for the b buckets of one size. If these are numbered at random, the variance of
    sum_g g T_g is sum_g (g - mean)^2 sum_g (T_g - mean)^2/(b - 1). The sums and variances of all sizes are added up,
    and give the number of standard errors by which the column deviates from chance.
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
    """Return how often the i-th row of a bucket has the bucket's i-th listed value, and how often chance would do it.

    A difference shows that the order of rows reveals values. The shares of rows are under the keys ``right`` and
    ``baseline``; without the source, the result is empty.
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
# Someone who knows how one record of each person was chosen weighs the values that the person may have.

MOST = 20_000  # about so many records are attacked at most
DEVIATIONS = 6  # so many standard deviations above chance show a fault: one false alarm in a billion


def attack_by_choice(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Guess the published value of persons with several records, by knowing how one of them was chosen.

    The publisher chose the record with the smallest keyed hash. The attacker does not know the key, and tries the empty
    one. Only persons are attacked with whom nobody else shares the quasi-identifiers.
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
    """Return the posterior of every possible value of each person, given how the person's record was chosen.

    The record with the smallest keyed hash was published. So the hashes of the person's other records are larger, and
    the posterior is proportional to prior (1 - hash)^(times - 1).

    Args:
        pos: The person to whom each of n possible values belongs (n,).
        prior: The probability of each value before anything is learnt (n,).
        hashes: The hash of the person's record with each value, in [0, 1) (n,).
        times: The number of the person's records (n,).
    """
    weights = prior * (1 - hashes) ** (times - 1)
    _, person = np.unique(pos, return_inverse=True)
    return np.asarray(weights / np.bincount(person, weights)[person])


def make_choice_finding(pos: Ints, prior: Floats, posterior: Floats, true: np.ndarray) -> Finding:
    """Return how often guesses of persons' values are right, compared with chance; a clear excess is a leak.

    The guess is a person's likeliest value after the attack. Chance is its probability before the attack.

    Args:
        pos: The person to whom each of n possible values belongs (n,).
        prior: The probability of each value before anything is learnt (n,).
        posterior: Its probability after the attack (n,).
        true: Whether each value is the person's true one (n,).
    """
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
    """Return the possible values of the records with which no other record shares its quasi-identifiers.

    ``attack_by_choice`` guesses which of these values a record has. A row has the position of the record (pos), the
    code of the value, and its probability before the attack (prior). At most about ``MOST`` records are taken.
    """
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
    _, first = np.unique(pairs[:2], axis=1, return_index=True)  # count a value that is listed twice once
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
    """Run the adversaries of a mechanism against one release, and return what they found.

    If the publisher chose one record of each person and the source is known, one more adversary is run. It knows the
    procedure of that choice, except for the key (``attack_by_choice``).

    Args:
        view: The release.
        adversaries: The adversaries of its mechanism.
        scene: The class that reads the release as arrays, for adversaries who learn from quasi-identifiers; None if
            none do.
        report: Where the number of finished adversaries is reported.
    """
    learnt = AttackContext(view, scene)
    reduced = view.manifest.persons is not None and view.manifest.persons.taken is not None
    choice = (CHOICE_ADVERSARY,) if view.source and reduced and scene is not None else ()
    every = (*adversaries, *choice)
    report.start_step("Attacking the release")
    steps = report_steps(report, (one.find(learnt) for one in every), len(every))
    return [finding for found in steps for finding in found]
