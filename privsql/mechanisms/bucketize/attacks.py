"""Attack bucketized releases: by what buckets list, by known values or persons, and by learning from the release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.bucket_model import find_obstacle, fit_bucket_model
from privsql.answers.bucket_posteriors import prepare_release
from privsql.answers.channel import LARGE, Channel
from privsql.answers.sql.question import is_number
from privsql.attacks import adversaries, suite
from privsql.attacks.scene import CHUNK, ROUNDING, AttackView, Block, Finding, Floats, Ints, ReleaseView
from privsql.attacks.suite import Adversary, AttackContext
from privsql.engine.files import label_value
from privsql.engine.sqlfiles import Holes, any_of, column, fill, same_columns, table, temp_table
from privsql.errors import GuaranteeError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize.bounds import GroupBound, stated_bounds
from privsql.mechanisms.bucketize.estimator import FakeValueChannel, ListedPairs
from privsql.mechanisms.bucketize.layout import split_by_block
from privsql.mechanisms.bucketize.model import floor_thresholds, incidence_matrix
from privsql.mechanisms.bucketize.parameters import BucketizeFacts
from privsql.model.arrays import ReleaseArrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from privsql.answers.bucket_posteriors import Batch
    from privsql.attacks.scene import Truth


# The adversaries' view ------------------------------------------------------------------------------------------------

TINY = 1e-30  # no division by 0
GOLDEN, TURN = 2654435769, 2**32  # number * GOLDEN mod TURN spreads any run of numbers evenly


@dataclass(frozen=True)
class StoredLists:
    """The rows of ST, as stored.

    Attributes:
        buckets: The numbers of the buckets, rising (B,).
        rank: The rank of each row's bucket among these (E,).
        code: The value of each row (E,).
        count: How often the bucket lists it (E,).
    """

    buckets: Ints
    rank: Ints
    code: Ints
    count: Ints


class BucketAttackView(AttackView):
    """The tables QIT and ST of a release, as adversaries see them."""

    records, part, independent = "qit", "bid", False
    stated = ("records", "numerator", "denominator")

    @property
    def fake_count(self) -> int:
        """Return how many listed values of the buckets are fake (the papers' sigma)."""
        return int(self.given.manifest.parameters.get("fake_values", 0))

    def excess_share(self) -> float:
        """Return the share of the records in buckets that break a bound."""
        return float(np.isin(self.record_parts, self.broken_buckets).mean())

    @cached_property
    def _facts(self) -> BucketizeFacts:
        return BucketizeFacts.model_validate(self.given.manifest.facts)

    @property
    def numbered_groups(self) -> list[Ints]:
        """Return the records by bucket (buckets, size), for attacks on the numbering of buckets.

        It yields nothing where the layout runs along the numbers. With fakes, and in some layouts, buckets of one size
        are numbered at random. In others each block of buckets draws its own order of values. Where values stand in
        lumps, a block as a whole has a random number.
        """
        if self._facts.layout == "lumps":
            whole = self._attacked_share >= 1
            return [part for rows, _ in self.size_classes for part in split_by_block(rows)] if whole else []
        running = self._facts.layout == "round-robin" and not self.fake_count
        return [] if running else [rows for rows, _ in self.size_classes]

    @property
    def is_paired(self) -> bool:
        """Return whether each listed value belongs to a record, which is so without fakes."""
        return not self.fake_count

    def _attacked_filter(self, bucket: str = "part") -> exp.Expr:
        share, part, number = self._attacked_share, column(bucket), exp.Literal.number
        if share >= 1:
            return exp.true()
        layout = self._facts.layout
        if layout == "round-robin":  # neighbours are alike: every k-th bucket
            return exp.EQ(this=exp.Mod(this=part, expression=number(round(1 / share))), expression=number(0))
        if layout != "largest-first":  # whose bucket numbers are exchangeable within a size
            turned = exp.paren(exp.Mul(this=exp.cast(part, "BIGINT"), expression=number(GOLDEN)))
            return exp.LT(this=exp.Mod(this=turned, expression=number(TURN)), expression=number(ceil(share * TURN)))
        setting = [number for _, number in self._facts.sizes]
        firsts = np.cumsum(setting) - setting
        ranges = [(int(a), int(a + np.ceil(b * share)) - 1) for a, b in zip(firsts, setting, strict=True)]
        return any_of([exp.Between(this=part, low=number(low), high=number(high)) for low, high in ranges])

    @cached_property
    def _attacked_share(self) -> float:
        """Return the share of the buckets that is attacked."""
        view = self.given
        return 1.0 if view.sample is None else view.sample / max(1, view.manifest.published_records)

    @cached_property
    def lists(self) -> StoredLists:
        """Return the rows of ST."""
        listed = exp.select(*self.roles.by_sa.select_columns("bid", "count"), *self.roles.sa_in())
        self.db.create_view("a_st", listed.from_(table("st", self.given.database)))
        holes: Holes = {
            "st": temp_table("a_st"),
            "values": temp_table("a_values"),
            "stored": [],
            "sa": self.roles.sa_columns(),
            "same_value": same_columns("s", "v", self.roles.sa_keys),
            "filter": self._attacked_filter("bid"),
        }
        rows = self.db.arrow(fill("attack/composition", holes))
        bid, code, count = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
        return StoredLists(*np.unique(bid, return_inverse=True), code, count)

    @cached_property
    def _stated_values(self) -> Any:
        return self.read_values(["records", "numerator", "denominator"])

    @cached_property
    def value_labels(self) -> list[str]:
        """Return the texts of the values."""
        columns = [exp.cast(item, "VARCHAR") for item in self.roles.sa_columns()]
        rows = self.db.rows(exp.select(*columns).from_(temp_table("a_values")).order_by("code"))
        return [label_value(row) for row in rows]

    @property
    def listed_times(self) -> Floats:
        """Return how often each value is listed in the whole release (m,)."""
        return np.asarray(self._stated_values["records"].to_numpy().astype(np.float64))

    @cached_property
    def thresholds(self) -> list[Fraction]:
        """Return the thresholds f' of all values."""
        pairs = (self._stated_values[name].to_pylist() for name in ("numerator", "denominator"))
        return [Fraction(int(top), int(bottom)) for top, bottom in zip(*pairs, strict=True)]

    @cached_property
    def bounds(self) -> Floats:
        """Return the thresholds as numbers (m,)."""
        return np.array([float(one) for one in self.thresholds])

    @cached_property
    def shares(self) -> Floats:
        """Return the frequencies of the values (m,); estimates where listed values may be fake."""
        records = self.channel.records if self.fake_count else self.listed_times
        return np.asarray(records / records.sum())

    @cached_property
    def group_bounds(self) -> list[GroupBound]:
        """Return the bounds on sets of values."""
        stated = stated_bounds(self._facts)
        if max((max(one.members) for one in stated), default=0) >= len(self.bounds):
            raise GuaranteeError("a bound is on values that are not listed; verify the release")
        return stated

    @cached_property
    def listed_counts(self) -> scipy.sparse.csr_array:
        """Return how often each bucket lists each value (buckets, m)."""
        entries, shape = (self.lists.rank, self.lists.code), (len(self.lists.buckets), len(self.bounds))
        return scipy.sparse.csr_array((self.lists.count, entries), shape=shape)

    @cached_property
    def broken_buckets(self) -> Ints:
        """Return the buckets in which a value exceeds its threshold, or a group of values its bound."""
        stated = self.group_bounds
        together = self.listed_counts @ incidence_matrix(stated, len(self.bounds)).T
        held = scipy.sparse.hstack((self.listed_counts, together), format="coo")
        sizes, size = np.unique(self.listed_counts.sum(axis=1), return_inverse=True)
        most = floor_thresholds([*self.thresholds, *(one.threshold for one in stated)], sizes)
        bucket, bound = held.coords
        return np.unique(self.lists.buckets[bucket[held.data > most[bound, size[bucket]]]])

    @cached_property
    def _record_buckets(self) -> tuple[Ints, Ints]:
        """Return for every record the rank of its bucket in ST, and the size |g| of each bucket."""
        buckets, rows, sizes = np.unique(self.record_parts, return_inverse=True, return_counts=True)
        listed = self.listed_counts.sum(axis=1)
        if not np.array_equal(buckets, self.lists.buckets) or (listed != sizes + self.fake_count).any():
            raise GuaranteeError("QIT and ST do not agree on the buckets; verify the release")
        return rows, sizes

    @cached_property
    def size_classes(self) -> list[tuple[Ints, Ints]]:
        """Return for each size the rows of the records (b, size) and the listed codes (b, size + sigma).

        Both are in stored order.
        """
        sizes, order = self._record_buckets[1], np.argsort(self.lists.rank, kind="stable")
        members, slots = self.record_order, np.repeat(self.lists.code[order], self.lists.count[order])
        starts, rows_and_codes = np.cumsum(sizes) - sizes, []
        for size in np.unique(sizes).tolist():
            of_size = np.flatnonzero(sizes == size)
            first, first_slot = starts[of_size][:, None], (starts[of_size] + self.fake_count * of_size)[:, None]
            codes = slots[first_slot + np.arange(size + self.fake_count)]
            rows_and_codes.append((members[first + np.arange(size)], codes))
        return rows_and_codes

    def blocks(self) -> Iterator[Block]:
        """Yield the records and lists of buckets of one size, as many buckets at a time as memory allows.

        The prior of a listed value is proportional to ``real_ratio``.
        """
        for rows, codes in self.size_classes:
            step = max(1, CHUNK // (codes.shape[1] ** 2))
            for start in range(0, len(rows), step):
                part = codes[start : start + step]
                ratio = self.real_ratio[part]
                prior = np.asarray(ratio / np.maximum(ratio.sum(axis=1, keepdims=True), TINY))[:, None]
                yield Block(rows[start : start + step], part, prior, exclusive=True, spare=self.fake_count)

    @cached_property
    def _fake_value_channel(self) -> FakeValueChannel:
        counts, (_, sizes) = self.listed_counts, self._record_buckets
        moment = (counts.T @ (counts * (sizes / (sizes + self.fake_count) ** 2)[:, None])).tocsr()
        listed = np.asarray(counts.sum(axis=0), dtype=np.float64)
        pairs = ListedPairs(
            moment if len(listed) > LARGE else moment.toarray(), listed, np.unique(sizes).tolist(), self.fake_count
        )
        return pairs.make_channel(self._facts.real, self.listed_times)

    @property
    def channel(self) -> Channel:
        """Return the channel of what the buckets list."""
        return self._fake_value_channel.channel

    @property
    def real_ratio(self) -> Floats:
        """Return how much more often than others a listed value is real (m,)."""
        return self._fake_value_channel.ratio if self.fake_count else np.ones(len(self.bounds))

    def observe_levels(self, level: Ints) -> Floats:
        """Return the sums of what buckets list over the records with each level (levels, m)."""
        rows, sizes = self._record_buckets
        scale = np.array([self._fake_value_channel.scale[size] for size in sizes.tolist()])
        shape = (int(level.max()) + 1, len(sizes))
        members = scipy.sparse.csr_array((np.ones(len(level)), (level, rows)), shape=shape)
        return np.asarray((members @ (self.listed_counts * scale[:, None])).todense())

    @cached_property
    def release_arrays(self) -> ReleaseArrays:
        """Return QIT and ST as arrays for a model; record i is row ``record_order``[i]."""
        lists, fields = self.lists, zip(self.roles.quasi_identifiers, self.levels, strict=True)
        entries = np.lexsort((lists.code, lists.rank))
        columns = {
            field.name: level[self.record_order].astype(np.float64 if is_number(field.type) else np.int64)
            for field, level in fields
        }
        stored = lists.rank[entries], lists.code[entries], lists.count[entries]
        bucket = self._record_buckets[0][self.record_order]
        return ReleaseArrays(columns, bucket, *stored, values=list(self.value_labels))

    @cached_property
    def record_order(self) -> Ints:
        """Return the rows of the records, bucket by bucket (n,)."""
        return np.argsort(self.record_parts, kind="stable")


# Learning -------------------------------------------------------------------------------------------------------------
# Learning by the model of the release (``answers.bucket_model``), the strongest attacker known here. Its beliefs are
# means over what the release leaves open of the model. So they are about as often right as they say, and that follows
# from QIT and ST alone.
#
# No release keeps a learner from what the people in it show of others. So with the source, the same model is fitted to
# the true values of other records in place of the release: the learner can hardly reach more.

LEARNING_SAMPLE = 30_000  # records to which the attacker's model is fitted, in whole buckets
SEED = "0" * 64  # the digest of no release: models of attackers are the same again


def attack_by_model(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure the beliefs of an attacker who fits a model to the release.

    If no model can be fitted, as with fake values, naive Bayes takes its place.
    """
    view = learnt.view
    if min(view.manifest.published_records, view.sample or LEARNING_SAMPLE + 1) > LEARNING_SAMPLE:
        finding = measure_learning(replace(view, prefix="s"))
    else:
        finding = find_learning(learnt.scene)
    return suite.attack_by_learning(learnt) if finding is None else [finding]


def find_learning(scene: BucketAttackView) -> Finding | None:
    """Return the finding of an attacker who fits a model to the release; None if no model can be fitted.

    It is the same each time for the same release. The largest belief is not stated.
    """
    if scene.fake_count or find_obstacle(len(scene.record_parts), len(scene.bounds)):
        return None
    learnt = tally_beliefs(scene, fit_bucket_model(scene.release_arrays, SEED).average_posteriors())
    notes = ["a model of all columns, fitted to the release"]
    if scene.truth is not None:
        taught = tally_beliefs(scene, teach_truth(scene, scene.truth))
        notes.append(f"who learns from the true table in place of the release is right for {taught['right']:.0%}")
    return Finding(baseline=scene.baseline, calibrated=True, notes=tuple(notes), **{**learnt, "highest": None})


def tally_beliefs(scene: BucketAttackView, batches: Iterable[Batch]) -> dict[str, Any]:
    """Sum up beliefs in the listed values, and return the fields of a finding."""
    tally = scene.make_tally()
    for batch in batches:
        rows, listed = scene.record_order[batch.of.records], batch.of.values.shape[1]
        uniform = np.broadcast_to(1 / listed, (len(rows), 1, listed))
        tally.add_block(Block(rows, batch.of.values, uniform, exclusive=batch.of.exact), batch.beliefs)
    return tally.finding_fields()


def teach_truth(scene: BucketAttackView, truth: Truth) -> Iterator[Batch]:
    """Yield beliefs in the listed values that are learnt from the true values of other records.

    Combinations of quasi-identifiers are divided into two parts at random. The beliefs in each part are learnt from the
    other part.
    """
    arrays, keys = scene.release_arrays, truth.keys[scene.record_order]
    _, first = np.unique(keys, return_index=True)
    key = np.repeat(truth.cells // truth.value_count, truth.records)
    value = np.repeat(truth.cells % truth.value_count, truth.records)
    side = seed_key(1).random_generator("ceiling").integers(2, size=len(first))
    likelihood, probabilities = None, None
    for part in (0, 1):
        taught = np.flatnonzero(side[key] != part)
        columns = {name: column[first[key[taught]]] for name, column in arrays.columns.items()}
        alone = np.arange(len(taught))  # a bucket for each record says which value it has
        labelled = ReleaseArrays(columns, alone, alone, value[taught], np.ones_like(alone), arrays.values)
        model = fit_bucket_model(labelled, SEED)
        prepared = prepare_release(arrays, model.features)
        found = prepared.design.probabilities(model.theta.astype(np.float64), arrays.log_shares)
        if likelihood is None or probabilities is None:
            likelihood, probabilities = prepared.likelihood, found
        own = likelihood.member[side[keys] == part]
        probabilities[own] = found[own]
    if likelihood is not None and probabilities is not None:
        yield from likelihood.find_posteriors(probabilities, settled=True)


def measure_learning(view: ReleaseView) -> Finding | None:
    """Return the finding of an attacker who learns from QIT and ST of a sample of buckets.

    The result is None if no model can be fitted.
    """
    scene = BucketAttackView(replace(view, sample=LEARNING_SAMPLE))
    finding = find_learning(scene)
    scene.close()
    return finding


# Corruption -----------------------------------------------------------------------------------------------------------
# Corruption: who already knows the values of q records in a bucket strikes them off its list.
#
# With distinct values and sigma fakes (Wang et al., section 6), |g| - q + sigma values remain of which sigma are fake:
# the certainty that a given remaining record has a given remaining value is 1/(|g| - q + sigma), that a remaining value
# is real (|g| - q)/(|g| - q + sigma). A value listed c times may keep all c: c/(|g| - q + sigma) is then the worst
# case.


def real(size: int, known: int, fakes: int) -> float:
    """Return the probability that a value left on the list is real: (|g| - q)/(|g| - q + sigma).

    Args:
        size: The number of records of the bucket, |g|.
        known: The number of records whose values the attacker has struck off, q.
        fakes: The number of fake values, sigma.

    >>> real(4, 3, 1)
    0.5
    """
    return (size - known) / (size - known + fakes)


def attack_by_corruption(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure how certain an attacker is who knows one other record, and the curve over all numbers known."""
    scene = learnt.scene
    most = max(rows.shape[1] for rows, _ in scene.size_classes)
    tops, above = _measure_corruption(scene, min(1, most - 1))
    last = float(_measure_corruption(scene, None)[0].mean())
    notes, values = [f"{last:.1%} sure on average if all others are known"], _list_certainties(scene)
    if values:
        names = [name for name in ("theory", "stated", "source") if name in values[0]]
        each = {name: [float(one[name]) for one in values] for name in names}
        spans = ", ".join(f"{name} {min(of):.3f} to {max(of):.3f}" for name, of in each.items())
        notes += [
            f"if all others are known, the last value is real with {real(2, 1, scene.fake_count):.0%} probability",
            f"probability that a listed value is real, lowest to highest value: {spans}",
        ]
    curve = []
    for known in range(most):
        theory, records = 0.0, 0  # by the formula's worst case
        for rows, codes in scene.size_classes:
            left = max(0, rows.shape[1] - known)
            worst = _count_repeats(codes).max(axis=1) / max(1, left + scene.fake_count)
            theory += float(np.minimum(worst, 1).sum()) * left
            records += len(rows) * left
        measured = float(_measure_corruption(scene, known)[0].mean())
        curve.append({"known": known, "theory": theory / max(1, records), "measured": measured})
    return [
        Finding(
            attacked=len(tops),
            mean=float(tops.mean()),
            highest=float(tops.max()),
            above=above / len(tops),
            baseline=scene.baseline,
            notes=tuple(notes),
            curve=tuple(curve),
            values=values,
        )
    ]


def _measure_corruption(scene: BucketAttackView, known: int | None) -> tuple[Floats, int]:
    """Return the certainty of the best guess for every remaining record, and the number of records that exceed a bound.

    The known records are drawn at random. Every assignment of records to slots is equally likely, so what they take off
    the list is a uniformly random choice of its real values, and the truth is not needed. With fakes, a listed value is
    real in proportion to ``real_ratio``.

    Args:
        scene: The release.
        known: The number q of known records in each bucket; None for all but one.
    """
    tops, above = [], 0
    for rows, codes in scene.size_classes:
        size = rows.shape[1]
        q = size - 1 if known is None else known
        if q >= size:
            continue
        order = scene.given.noise.permuted(np.broadcast_to(np.arange(codes.shape[1]), codes.shape), axis=1)
        left = np.take_along_axis(codes, order, axis=1)[:, q:]
        ratio = scene.real_ratio[left]
        believed = _count_repeats(left) * ratio / ratio.sum(axis=1, keepdims=True)
        tops.append(np.repeat(believed.max(axis=1), size - q))
        above += int((believed > scene.bounds[left] * (1 + 1e-9)).any(axis=1).sum()) * (size - q)
    return np.concatenate(tops), above


def _list_certainties(scene: BucketAttackView) -> tuple[dict[str, Any], ...]:
    """Return for each listed value how probable it is that one of its listings is real, if no record is known.

    The tuple is empty without fakes. ``theory`` is |g|/(|g| + sigma). ``stated`` follows from the release, or is
    estimated if the release states no law. ``source`` is the share by the source's records.
    """
    if not scene.fake_count:
        return ()
    m = len(scene.bounds)
    listed, theory = np.zeros(m), np.zeros(m)
    for rows, codes in scene.size_classes:
        times = np.bincount(codes.ravel(), minlength=m)
        listed += times
        theory += times * real(rows.shape[1], 0, scene.fake_count)
    truth, stated = scene.truth, scene.channel.records
    return tuple(
        {
            "value": scene.value_labels[x],
            "listed": int(listed[x]),
            "theory": theory[x] / listed[x],
            "stated": stated[x] / listed[x],
            **({} if truth is None else {"source": min(1.0, truth.totals[x] / scene.listed_times[x])}),
        }
        for x in np.flatnonzero(listed).tolist()
    )


def _count_repeats(codes: Ints) -> Ints:
    """Return how often each slot's value stands in its row (b, t).

    Rows are sorted and runs are counted, so that large buckets stay cheap.
    """
    ordered = np.sort(codes, axis=1)
    new = np.ones(ordered.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = np.cumsum(new.ravel()) - 1
    times = np.bincount(run)[run].reshape(codes.shape)
    by_slot = np.empty_like(times)
    np.put_along_axis(by_slot, np.argsort(codes, axis=1, kind="stable"), times, axis=1)
    return np.asarray(by_slot)


CORRUPTION_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    "corruption",
    "the sensitive value of one other record in the same bucket, from elsewhere",
    promised=False,
    attack=attack_by_corruption,
)


# Records of one person ------------------------------------------------------------------------------------------------
# Who knows which records belong to one person multiplies what their buckets say, if they all have the same value.
#
# Given that a record has value x of frequency f(x), it lies in bucket g with a probability in proportion to
# c_g(x)/f(x), where g lists x c_g(x) times. A second record of x in the same bucket has c_g(x) - 1 places left. So,
# with q_g of the r records of a person in bucket g,
#
#     Pr(x | buckets) is proportional to f(x)^(1 - r) prod_g c_g(x) (c_g(x) - 1) .. (c_g(x) - q_g + 1).
#
# Where listed values may be fake, each factor c_g(x) counts in proportion to how often x is real (``real_ratio``). If
# no value is possible, the records do not have the same value. Then each of them is believed what its bucket lists.

UNNAMED = "not measured: it needs the source, by a specification whose source.person names persons"
SHOWN_NUMBERS = 4  # of records of a person, that a note tells apart


def attack_by_person(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Return beliefs about persons who have several records that are alone with their quasi-identifiers.

    There is none where the release declares that a person has one record.
    """
    persons = learnt.view.manifest.persons
    if persons is not None and not persons.several:
        return []
    if not learnt.view.persons:
        return [Finding(unit="persons", notes=(UNNAMED,))]
    scene, roles = learnt.scene, learnt.view.roles
    holes: Holes = {
        "rows": scene.rows,
        "people": temp_table("people"),
        "values": temp_table("a_values"),
        "qi": roles.qi_columns(),
        "same_qi": same_columns("a", "p", roles.qi_keys),
        "same_value": same_columns("p", "v", roles.sa_keys),
    }
    linked = scene.db.arrow(fill("attack/linked", holes))
    person, part, code = (linked[name].to_numpy().astype(np.int64) for name in ("person", "part", "code"))
    several = np.bincount(person)[person] > 1
    if not several.any():
        return [Finding(unit="persons", notes=("no person has several records that can be found",))]
    person = np.unique(person[several], return_inverse=True)[1]
    bucket, code = np.searchsorted(scene.lists.buckets, part[several]), code[several]
    step = max(1, CHUNK // len(scene.bounds))
    tops, above, right = [], [], []
    for start in range(0, int(person[-1]) + 1, step):
        chosen = slice(*np.searchsorted(person, [start, start + step]).tolist())
        owner = person[chosen] - start
        believed = multiply_buckets(scene.listed_counts, scene.shares, scene.real_ratio, owner, bucket[chosen])
        guess = believed.argmax(axis=1)
        tops.append(believed.max(axis=1))
        above.append((believed > scene.bounds * (1 + ROUNDING)).any(axis=1))
        right.append(np.bincount(owner, guess[owner] == code[chosen]) / np.bincount(owner))
    surest, over, records = np.concatenate(tops), np.concatenate(above), np.bincount(person)
    notes = []
    for number in np.unique(records)[:SHOWN_NUMBERS].tolist():
        own = records == number
        reached = f"above a bound for {over[own].mean():.0%}, at most {surest[own].max():.1%} sure"
        notes.append(f"{number} records each: {own.sum():,} attacked, {reached}")
    return [
        Finding(
            attacked=len(surest),
            unit="persons",
            mean=float(surest.mean()),
            highest=float(surest.max()),
            above=float(over.mean()),
            baseline=scene.baseline,
            right=float(np.concatenate(right).mean()),
            notes=tuple(notes),
        )
    ]


def multiply_buckets(
    listed: scipy.sparse.csr_array, shares: Floats, real_ratio: Floats, person: Ints, bucket: Ints
) -> Floats:
    """Return the beliefs (persons, m) of an attacker who takes all records of a person to have the same value.

    Args:
        listed: How often each bucket lists each value (buckets, m).
        shares: The frequencies of the values (m,).
        real_ratio: How much more often than others a listed value is real (m,).
        person: The person of every record (n,): 0, 1, .., in order.
        bucket: The row of ``listed`` of every record (n,).
    """
    pairs, records = np.unique(np.stack([person, bucket]), axis=1, return_counts=True)
    counts = listed[pairs[1]].toarray().astype(np.float64)
    places = counts * real_ratio
    single = places / np.maximum(places.sum(axis=1, keepdims=True), TINY) * records[:, None]
    starts = np.searchsorted(pairs[0], np.arange(int(person[-1]) + 1))
    number = np.bincount(person)[:, None]
    with np.errstate(divide="ignore"):
        logs = records[:, None] * np.log(real_ratio)
        for taken in range(int(records.max())):
            logs = logs + np.where(records[:, None] > taken, np.log(np.maximum(counts - taken, 0)), 0)
    total = np.add.reduceat(logs, starts, axis=0) - (number - 1) * np.log(np.maximum(shares, TINY))
    highest = total.max(axis=1, keepdims=True)
    possible = np.isfinite(highest)
    weights = np.exp(total - np.where(possible, highest, 0))
    together = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
    return np.asarray(np.where(possible, together, np.add.reduceat(single, starts, axis=0) / number))


PERSON_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    "records of one person",
    "which records belong to one person, and their quasi-identifiers; takes them to have the same sensitive value",
    promised=False,
    attack=attack_by_person,
)


# Homogeneity ----------------------------------------------------------------------------------------------------------
# Homogeneity: a bucket whose listed values are all, or nearly all, the same tells the value of everyone in it.
#
# Machanavajjhala et al. 2006 (l-diversity). Looked for bucket by bucket and in integers; a bound f' < 1 rules it out.


def attack_by_homogeneity(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Find the share of buckets in which the posterior of a value, or of a group of values, exceeds its bound.

    The certainty is that of the protected values; if none is protected, it is that of all values.
    """
    scene = learnt.scene
    protected = scene.protected_values
    listed, most = scene.listed_counts.sum(axis=1), scene.listed_counts[:, protected].max(axis=1).toarray()
    certainty, alone, number = most / listed, int((most == listed).sum()), len(scene.group_bounds)
    return [
        Finding(
            attacked=len(listed),
            unit="buckets",
            mean=float(certainty.mean()),
            highest=float(certainty.max()),
            above=len(scene.broken_buckets) / len(listed),
            baseline=float(scene.shares[protected].max()),
            notes=(
                *([f"{alone:,} buckets hold a single value"] if alone else []),
                *([f"bounds on {number:,} groups of values are counted"] if number else []),
            ),
        )
    ]


HOMOGENEITY_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    "homogeneity",
    "the record's quasi-identifiers; looks for buckets dominated by one value",
    promised=True,
    attack=attack_by_homogeneity,
)
LEARNING_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    suite.LEARNING, suite.LEARNING_KNOWS, promised=False, attack=attack_by_model
)


# Absence --------------------------------------------------------------------------------------------------------------


def attack_by_absence(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure what an attacker learns of missing people: records that are left out have a most frequent value."""
    if not learnt.view.manifest.facts.get("left_out"):
        return adversaries.list_absence(learnt.view, None)
    records = learnt.scene.channel.records.round().astype(np.int64)
    return adversaries.list_absence(learnt.view, 1 / int((records == records.max()).sum()))


ABSENCE_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    adversaries.ABSENCE, adversaries.ABSENCE_KNOWS, promised=False, attack=attack_by_absence
)
