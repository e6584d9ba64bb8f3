"""Attack bucketized releases: by what buckets list, by known values or persons, and by models fitted to the release."""

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

TINY = 1e-30  # prevents division by 0
GOLDEN, TURN = 2654435769, 2**32  # number * GOLDEN mod TURN spreads consecutive numbers evenly


@dataclass(frozen=True)
class StoredLists:
    """The rows of ST as arrays, E rows over B buckets.

    Attributes:
        buckets: The numbers of the buckets in rising order (B,).
        rank: The position in ``buckets`` of each row's bucket (E,).
        code: The sensitive value of each row, as its rank among all values (E,).
        count: How many times the bucket lists this value (E,).
    """

    buckets: Ints
    rank: Ints
    code: Ints
    count: Ints


class BucketAttackView(AttackView):
    """The tables QIT and ST of one release as arrays, which simulated attackers read.

    m is the number of sensitive values. Attackers may be given a sample of the buckets only.
    """

    records, part, independent = "qit", "bid", False
    stated = ("records", "numerator", "denominator")

    @property
    def fake_count(self) -> int:
        """Return how many of the values that a bucket lists are fake (sigma in the papers)."""
        return int(self.given.manifest.parameters.get("fake_values", 0))

    def excess_share(self) -> float:
        """Return the share of all records in buckets where a value, or a set of values, exceeds its threshold."""
        return float(np.isin(self.record_parts, self.broken_buckets).mean())

    @cached_property
    def _facts(self) -> BucketizeFacts:
        return BucketizeFacts.model_validate(self.given.manifest.facts)

    @property
    def numbered_groups(self) -> list[Ints]:
        """Return groups of records whose order by bucket number should be random.

        An attacker tests whether quasi-identifiers follow the bucket numbers, which would reveal how buckets were
        filled. An array has one row for each bucket of one size. In layout ``lumps``, neighbouring buckets are filled
        alike, so a row holds the records of a block of them.

        The list is empty where bucket numbers follow the order of the values by design (``round-robin`` without fakes),
        and where a ``lumps`` release is only sampled.
        """
        if self._facts.layout == "lumps":
            whole = self._attacked_share >= 1
            return [part for rows, _ in self.size_classes for part in split_by_block(rows)] if whole else []
        running = self._facts.layout == "round-robin" and not self.fake_count
        return [] if running else [rows for rows, _ in self.size_classes]

    @property
    def is_paired(self) -> bool:
        """Return whether a bucket lists exactly the values of its records: no listed value is fake.

        Only then can the i-th row of a bucket be compared with its i-th listed value.
        """
        return not self.fake_count

    def _attacked_filter(self, bucket: str = "part") -> exp.Expr:
        share, part, number = self._attacked_share, column(bucket), exp.Literal.number
        if share >= 1:
            return exp.true()
        layout = self._facts.layout
        if layout == "round-robin":  # neighbouring buckets list similar values, so take every k-th one
            return exp.EQ(this=exp.Mod(this=part, expression=number(round(1 / share))), expression=number(0))
        if layout != "largest-first":  # with largest-first, bucket numbers within a size have no order
            turned = exp.paren(exp.Mul(this=exp.cast(part, "BIGINT"), expression=number(GOLDEN)))
            return exp.LT(this=exp.Mod(this=turned, expression=number(TURN)), expression=number(ceil(share * TURN)))
        setting = [number for _, number in self._facts.sizes]
        firsts = np.cumsum(setting) - setting
        ranges = [(int(a), int(a + np.ceil(b * share)) - 1) for a, b in zip(firsts, setting, strict=True)]
        return any_of([exp.Between(this=part, low=number(low), high=number(high)) for low, high in ranges])

    @cached_property
    def _attacked_share(self) -> float:
        """Return the share of the records that is to be attacked, from 0 to 1; 1 if no sample was asked for."""
        view = self.given
        return 1.0 if view.sample is None else view.sample / max(1, view.manifest.published_records)

    @cached_property
    def lists(self) -> StoredLists:
        """Return the rows of ST for the attacked buckets."""
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
        """Return the sensitive values as text, by code (m,)."""
        columns = [exp.cast(item, "VARCHAR") for item in self.roles.sa_columns()]
        rows = self.db.rows(exp.select(*columns).from_(temp_table("a_values")).order_by("code"))
        return [label_value(row) for row in rows]

    @property
    def listed_times(self) -> Floats:
        """Return how often each value is listed in the whole release, fakes included (m,)."""
        return np.asarray(self._stated_values["records"].to_numpy().astype(np.float64))

    @cached_property
    def thresholds(self) -> list[Fraction]:
        """Return the largest belief in each sensitive value that the release allows, as exact fractions (m,)."""
        pairs = (self._stated_values[name].to_pylist() for name in ("numerator", "denominator"))
        return [Fraction(int(top), int(bottom)) for top, bottom in zip(*pairs, strict=True)]

    @cached_property
    def bounds(self) -> Floats:
        """Return the threshold of every sensitive value as a double (m,)."""
        return np.array([float(one) for one in self.thresholds])

    @cached_property
    def shares(self) -> Floats:
        """Return the share of the records that have each value (m,). With fakes the shares are estimates."""
        records = self.channel.records if self.fake_count else self.listed_times
        return np.asarray(records / records.sum())

    @cached_property
    def group_bounds(self) -> list[GroupBound]:
        """Return the bounds that the release states for sets of values.

        Raises:
            GuaranteeError: A bound names a value that the release does not list.
        """
        stated = stated_bounds(self._facts)
        if max((max(one.members) for one in stated), default=0) >= len(self.bounds):
            raise GuaranteeError("a bound is on values that are not listed; verify the release")
        return stated

    @cached_property
    def listed_counts(self) -> scipy.sparse.csr_array:
        """Return how often each attacked bucket lists each value, as a sparse matrix (buckets, m)."""
        entries, shape = (self.lists.rank, self.lists.code), (len(self.lists.buckets), len(self.bounds))
        return scipy.sparse.csr_array((self.lists.count, entries), shape=shape)

    @cached_property
    def broken_buckets(self) -> Ints:
        """Return the numbers of the buckets in which a value, or a set of values, exceeds its threshold."""
        stated = self.group_bounds
        together = self.listed_counts @ incidence_matrix(stated, len(self.bounds)).T
        held = scipy.sparse.hstack((self.listed_counts, together), format="coo")
        sizes, size = np.unique(self.listed_counts.sum(axis=1), return_inverse=True)
        most = floor_thresholds([*self.thresholds, *(one.threshold for one in stated)], sizes)
        bucket, bound = held.coords
        return np.unique(self.lists.buckets[bucket[held.data > most[bound, size[bucket]]]])

    @cached_property
    def _record_buckets(self) -> tuple[Ints, Ints]:
        """Return (the position of each record's bucket among the attacked buckets, the number of records of each).

        The attacked buckets are in the order of their numbers.

        Raises:
            GuaranteeError: QIT and ST disagree on the buckets or on their sizes.
        """
        buckets, rows, sizes = np.unique(self.record_parts, return_inverse=True, return_counts=True)
        listed = self.listed_counts.sum(axis=1)
        if not np.array_equal(buckets, self.lists.buckets) or (listed != sizes + self.fake_count).any():
            raise GuaranteeError("QIT and ST do not agree on the buckets; verify the release")
        return rows, sizes

    @cached_property
    def size_classes(self) -> list[tuple[Ints, Ints]]:
        """Return (records, listed values) for each bucket size, smallest first, where b buckets have that size.

        ``records`` (b, size) holds row numbers of QIT. ``listed values`` (b, size + fakes) holds codes. Row k of both
        is the same bucket. The position in a row says nothing about which record has which value.
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
        """Yield the records and listed values of buckets of one size, as many buckets at a time as memory allows.

        A block's ``prior`` is the probability that a record has a listed value, before the attacker learns anything. It
        is proportional to how probable it is that this listing is real (``real_ratio``).
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
        """Return the channel: how the true counts of values in a set of records determine what its buckets list.

        Attackers solve it for the counts, as the linear estimator does.
        """
        return self._fake_value_channel.channel

    @property
    def real_ratio(self) -> Floats:
        """Return for each value how likely a listing of it is to be real, relative to the average value (m,).

        Attackers weigh listed values with it. All are 1 without fakes.
        """
        return self._fake_value_channel.ratio if self.fake_count else np.ones(len(self.bounds))

    def observe_levels(self, level: Ints) -> Floats:
        """Add up what the buckets of records list, for each value (level) of a quasi-identifier.

        From these sums an attacker estimates how often sensitive values occur with each level.

        Args:
            level: The level of each record, 0, 1, .. (n,).

        Returns:
            One row for each level (levels, m). Each listed value of a bucket counts 1 over the number of values that
            the bucket lists, so a record adds 1 in all.
        """
        rows, sizes = self._record_buckets
        scale = np.array([self._fake_value_channel.scale[size] for size in sizes.tolist()])
        shape = (int(level.max()) + 1, len(sizes))
        members = scipy.sparse.csr_array((np.ones(len(level)), (level, rows)), shape=shape)
        return np.asarray((members @ (self.listed_counts * scale[:, None])).todense())

    @cached_property
    def release_arrays(self) -> ReleaseArrays:
        """Return QIT and ST as arrays, to which an attacker fits a model of values given quasi-identifiers.

        Record i of the arrays is row ``record_order[i]`` of QIT.
        """
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
        """Return the row numbers of QIT, sorted by bucket (n,).

        They lead from a model back to the table: record i of ``release_arrays`` is row ``record_order[i]`` of QIT.
        """
        return np.argsort(self.record_parts, kind="stable")


# Learning -------------------------------------------------------------------------------------------------------------
# The strongest attacker known here fits the model of ``answers.bucket_model`` to the release. Beliefs are averages over
# the models that fit QIT and ST. So they are calibrated: of guesses believed to 30 %, about 30 % are right.
#
# No release can hide what other people's records show about a person. With the source, the same model is therefore
# fitted to the true values of other records as well. An attacker can hardly learn more than this.

LEARNING_SAMPLE = 30_000  # the attacker's model is fitted to whole buckets with about so many records
SEED = "0" * 64  # belongs to no release; a constant, so that attacks give the same result each time


def attack_by_model(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure the beliefs of an attacker who fits a model of values given quasi-identifiers to the release.

    If no model can be fitted, as with fake values, the attacker uses naive Bayes instead.

    Args:
        learnt: The release under attack, with its tables as arrays.
    """
    view = learnt.view
    if min(view.manifest.published_records, view.sample or LEARNING_SAMPLE + 1) > LEARNING_SAMPLE:
        finding = measure_learning(replace(view, prefix="s"))
    else:
        finding = find_learning(learnt.scene)
    return suite.attack_by_learning(learnt) if finding is None else [finding]


def find_learning(scene: BucketAttackView) -> Finding | None:
    """Return the finding of an attacker who fits a model of values given quasi-identifiers to the buckets of ``scene``.

    The same release always gives the same finding. Its field ``highest`` (the largest belief) is None. The result is
    None if no model can be fitted.

    Args:
        scene: The release under attack, with its tables as arrays.
    """
    if scene.fake_count or find_obstacle(len(scene.record_parts), len(scene.bounds)):
        return None
    learnt = tally_beliefs(scene, fit_bucket_model(scene.release_arrays, SEED).average_posteriors())
    notes = ["a model of all columns, fitted to the release"]
    if scene.truth is not None and np.ptp(scene.truth.keys) > 0:  # others differ, so they teach something
        taught = tally_beliefs(scene, teach_truth(scene, scene.truth))
        notes.append(f"who learns from the true table in place of the release is right for {taught['right']:.0%}")
    return Finding(baseline=scene.baseline, calibrated=True, notes=tuple(notes), **{**learnt, "highest": None})


def tally_beliefs(scene: BucketAttackView, batches: Iterable[Batch]) -> dict[str, Any]:
    """Sum up an attacker's beliefs in the listed values of all records, and return them as fields of a ``Finding``.

    Args:
        scene: The release.
        batches: For some buckets of one size at a time, the belief about each record in each value that its bucket
            lists.
    """
    tally = scene.make_tally()
    for batch in batches:
        rows, listed = scene.record_order[batch.of.records], batch.of.values.shape[1]
        uniform = np.broadcast_to(1 / listed, (len(rows), 1, listed))
        tally.add_block(Block(rows, batch.of.values, uniform, exclusive=batch.of.exact), batch.beliefs)
    return tally.finding_fields()


def teach_truth(scene: BucketAttackView, truth: Truth) -> Iterator[Batch]:
    """Yield the beliefs of an attacker who learns from the true values of other records, not from the release.

    They show how much any attacker could learn at most, which no release can hide. The combinations of
    quasi-identifiers, of which there must be several, are divided into two halves at random. Beliefs about records of
    each half come from a model that is fitted to the other half.

    Args:
        scene: The release under attack, with its tables as arrays.
        truth: For each combination of quasi-identifiers in the source, how many records have which sensitive values.
    """
    arrays, keys = scene.release_arrays, truth.keys[scene.record_order]
    _, first = np.unique(keys, return_index=True)
    key = np.repeat(truth.cells // truth.value_count, truth.records)
    value = np.repeat(truth.cells % truth.value_count, truth.records)
    side = seed_key(1).random_generator("ceiling").integers(2, size=len(first))
    if np.ptp(side) == 0:  # of few combinations all may be in one half
        side[0] = 1 - side[0]
    likelihood, probabilities = None, None
    for part in (0, 1):
        taught = np.flatnonzero(side[key] != part)
        columns = {name: column[first[key[taught]]] for name, column in arrays.columns.items()}
        alone = np.arange(len(taught))  # each record has its own bucket, which lists its value
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
    """Return the finding of an attacker who fits a model of values given quasi-identifiers to a sample of the buckets.

    A sample makes this quick for large releases, too. The result is None if no model can be fitted.
    """
    scene = BucketAttackView(replace(view, sample=LEARNING_SAMPLE))
    finding = find_learning(scene)
    scene.close()
    return finding


# Corruption -----------------------------------------------------------------------------------------------------------
# An attacker who already knows the values of q records in a bucket g strikes them off the bucket's list.
#
# With distinct values and sigma fakes (Wang et al., section 6), |g| - q + sigma values remain, sigma of them fake. A
# given remaining record has a given remaining value with probability 1/(|g| - q + sigma). A remaining value is real
# with probability (|g| - q)/(|g| - q + sigma). A value listed c times may keep all c; the worst case is then c/(|g| - q
# + sigma).


def real(size: int, known: int, fakes: int) -> float:
    """Return the probability that a listed value is real once the attacker has struck off the values of known records.

    Args:
        size: The number of records of the bucket.
        known: How many of these records the attacker knows.
        fakes: The number of fake values that the bucket lists.

    >>> real(4, 3, 1)
    0.5
    """
    return (size - known) / (size - known + fakes)


def attack_by_corruption(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure how certain an attacker is who knows the value of one other record in the bucket.

    The finding's curve gives the certainty for every number of known records.

    Args:
        learnt: The release under attack, with its tables as arrays.
    """
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
        theory, records = 0.0, 0  # theory: the worst case of the formula
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
    """Return (the belief in the likeliest value of each unknown record, how many of these records exceed a bound).

    The known records are drawn at random. Every assignment of records to listed values is equally likely. So known
    records take a uniformly random choice of real values off the list, and the true values are not needed.

    Args:
        scene: The release.
        known: The number of known records in each bucket; None for all but one.
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
    """Return for each listed value how probable it is that a listing of it is real, if the attacker knows no record.

    The tuple is empty without fakes. Each dict has the probability in two or three forms. ``theory`` is the bucket size
    over the number of listed values. ``stated`` follows from the release. ``source`` follows from the true counts, if
    they are known.

    Args:
        scene: The release under attack, with its tables as arrays.
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
    """Return for each place in each bucket's list how often the bucket lists the value of this place.

    Args:
        codes: The values that each bucket lists; the result has the same shape (buckets, places).
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
# An attacker who knows which r records belong to one person, and assumes that they all have the same value, multiplies
# what their buckets say.
#
# Let bucket g list value x c_g(x) times, and let f(x) be the frequency of x. A record with value x lies in bucket g
# with a probability proportional to c_g(x)/f(x). A second record with x in the same bucket has c_g(x) - 1 places left.
# If q_g of the person's r records lie in bucket g, then
#
#     Pr(x | buckets) is proportional to f(x)^(1 - r) prod_g c_g(x) (c_g(x) - 1) .. (c_g(x) - q_g + 1).
#
# With fakes, each factor c_g(x) is multiplied by ``real_ratio`` of x. If no value is possible, the records do not have
# the same value; then each record is believed to have what its own bucket lists.

UNNAMED = "not measured: it needs the source, by a specification whose source.person names persons"
SHOWN_NUMBERS = 4  # numbers of records of a person (2, 3, ..) that have a note of their own


def attack_by_person(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure the beliefs of an attacker who knows all records of a person, and takes them to have one value.

    Only persons with several records are attacked, and only records that alone have their quasi-identifiers. The list
    is empty if the release declares one record for each person.

    Args:
        learnt: The release under attack, with its tables as arrays.
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
    """Return the beliefs of an attacker who combines the buckets of all records of a person (persons, m).

    The attacker assumes that these records have the same value, so multiplies the probabilities that the buckets give.
    If a person's buckets have no value in common, the belief is the mean of these probabilities.

    Args:
        listed: How often each bucket lists each value (buckets, m).
        shares: The share of the records that have each value (m,).
        real_ratio: How probable it is that a listing is real, relative to the average value (m,).
        person: The number of each record's person: 0, 1, .., in rising order (n,).
        bucket: The row of ``listed`` of each record's bucket (n,).
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
# A bucket whose listed values are all, or nearly all, the same reveals the value of everyone in it (Machanavajjhala et
# al. 2006, l-diversity). Buckets are checked one by one, in integers; a threshold below 1 rules such buckets out.


def attack_by_homogeneity(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Measure the share of buckets in which a value, or a set of values, is more frequent than its bound allows.

    The finding's certainty is the largest share of a protected value (one with a threshold below 1) in a bucket. If no
    value is protected, it is that of any value.

    Args:
        learnt: The release under attack, with its tables as arrays.
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
    """Measure what an attacker learns of people who are missing in the release.

    If the publisher left out records, these had one of the most frequent values.

    Args:
        learnt: The release under attack, with its tables as arrays.
    """
    if not learnt.view.manifest.facts.get("left_out"):
        return adversaries.list_absence(learnt.view, None)
    records = learnt.scene.channel.records.round().astype(np.int64)
    return adversaries.list_absence(learnt.view, 1 / int((records == records.max()).sum()))


ABSENCE_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    adversaries.ABSENCE, adversaries.ABSENCE_KNOWS, promised=False, attack=attack_by_absence
)
