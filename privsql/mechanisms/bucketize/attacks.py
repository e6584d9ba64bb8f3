"""Adversaries of bucketized releases: the view of the buckets, corruption and homogeneity."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.aggregates import is_number
from privsql.answers.bucket_model import BucketModel, find_obstacle, fit_bucket_model
from privsql.answers.channel import LARGE, Channel
from privsql.attacks import suite
from privsql.attacks.scene import CHUNK, AttackView, Block, Finding, Floats, Ints, ReleaseView
from privsql.attacks.suite import Adversary, AttackContext
from privsql.engine.files import label_value
from privsql.engine.sqlfiles import Holes, any_of, column, fill, same_columns, table, temp_table
from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize.beliefs import GroupBound, some_buckets, stated_bounds
from privsql.mechanisms.bucketize.estimator import FakeValueChannel, ListedPairs, make_fake_value_channel
from privsql.mechanisms.bucketize.informative import split_by_block
from privsql.mechanisms.bucketize.model import floor_thresholds, incidence_matrix
from privsql.mechanisms.bucketize.parameters import BucketizeFacts
from privsql.model.records import ReleaseArrays

if TYPE_CHECKING:
    from collections.abc import Iterator


# The adversaries' view ------------------------------------------------------------------------------------------------

TINY = 1e-30  # no division by 0


class BucketAttackView(AttackView):
    """QIT and ST. ``fake_count`` = sigma: values that the ST of every bucket lists beyond its records."""

    records, part, independent = "qit", "bid", False
    stated = ("records", "numerator", "denominator")
    relations = ("rows", "composition")

    @property
    def fake_count(self) -> int:
        """Sigma."""
        return int(self.given.manifest.parameters.get("fake_values", 0))

    def excess_share(self) -> float:
        """Share of the records in buckets that break a bound."""
        return float(np.isin(self.record_parts, self.broken_buckets).mean())

    @cached_property
    def _facts(self) -> BucketizeFacts:
        return BucketizeFacts.model_validate(self.given.manifest.facts)

    @property
    def numbered_groups(self) -> list[Ints]:
        """Records by bucket, unless the layout runs with the numbers of the buckets.

        These are drawn within a size with fakes, and in some layouts; blocks of buckets draw an order of values each,
        or where values stand in lumps, which the buckets of a block share, are numbered at random as a whole.
        """
        if self._facts.layout == "lumps":
            whole = self._attacked_share >= 1
            return [part for rows, _ in self.size_classes for part in split_by_block(rows)] if whole else []
        running = self._facts.layout == "round-robin" and not self.fake_count
        return [] if running else [rows for rows, _ in self.size_classes]

    @property
    def is_paired(self) -> bool:
        """Without fakes every record has a slot."""
        return not self.fake_count

    def _attacked_filter(self, bucket: str = "part") -> exp.Expr:
        share, part = self._attacked_share, column(bucket)
        if share >= 1:
            return exp.true()
        layout = self._facts.layout
        if layout == "round-robin":  # neighbours are alike: every k-th bucket
            return exp.EQ(this=exp.Mod(this=part, expression=_sql_number(round(1 / share))), expression=_sql_number(0))
        if layout != "largest-first":  # whose bucket numbers are exchangeable within a size
            return some_buckets(share, part)
        setting = [number for _, number in self._facts.sizes]
        firsts = np.cumsum(setting) - setting
        ranges = [(int(a), int(a + np.ceil(b * share)) - 1) for a, b in zip(firsts, setting, strict=True)]
        return any_of([exp.Between(this=part, low=_sql_number(low), high=_sql_number(high)) for low, high in ranges])

    @cached_property
    def _attacked_share(self) -> float:
        """The share of the buckets that is attacked."""
        view = self.given
        return 1.0 if view.sample is None else view.sample / max(1, view.manifest.published_records)

    @cached_property
    def listed_entries(self) -> tuple[Ints, Ints, Ints]:
        """ST as stored: bucket, code and count of every row."""
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
        self.db.create_table(self.name_relation("composition"), fill("attack/composition", holes))
        rows = self.db.arrow(exp.select("*").from_(temp_table(self.name_relation("composition"))))
        bid, code, records = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
        return bid, code, records

    @cached_property
    def _stated_values(self) -> Any:
        return self.read_values(["records", "numerator", "denominator"])

    @cached_property
    def value_labels(self) -> list[str]:
        """Texts of the values."""
        columns = [exp.cast(item, "VARCHAR") for item in self.roles.sa_columns()]
        rows = self.db.rows(exp.select(*columns).from_(temp_table("a_values")).order_by("code"))
        return [label_value(row) for row in rows]

    @property
    def listed_times(self) -> Floats:
        """How often each value is listed in the whole release (m,)."""
        return np.asarray(self._stated_values["records"].to_numpy().astype(np.float64))

    @cached_property
    def bounds(self) -> Floats:
        """Thresholds f' (m,)."""
        pairs = zip(
            self._stated_values["numerator"].to_pylist(), self._stated_values["denominator"].to_pylist(), strict=True
        )
        return np.array([float(top) / float(bottom) for top, bottom in pairs])

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,); estimates where listed values may be fake."""
        records = self.channel.records if self.fake_count else self.listed_times
        return np.asarray(records / records.sum())

    @cached_property
    def values_over_bound(self) -> list[tuple[Any, ...]]:
        """(bid, code, records, listed) of values above their threshold, compared in integers."""
        if not len(self.listed_entries[0]):  # and the composition is there
            return []
        holes: Holes = {"composition": temp_table(self.name_relation("composition")), "values": temp_table("a_values")}
        return self.db.rows(fill("attack/over_bound", holes))

    @cached_property
    def group_bounds(self) -> list[GroupBound]:
        """The bounds on sets of values."""
        stated = stated_bounds(self._facts)
        if max((max(one.members) for one in stated), default=0) >= len(self.bounds):
            raise GuaranteeError("a bound is on values that are not listed; verify the release")
        return stated

    @cached_property
    def broken_buckets(self) -> Ints:
        """Buckets in which a value exceeds its threshold, or values together the bound of their group."""
        over = np.unique(np.array([int(row[0]) for row in self.values_over_bound], dtype=np.int64))
        stated = self.group_bounds
        if not stated:
            return over
        bid, code, count = self.listed_entries
        buckets, rank = np.unique(bid, return_inverse=True)
        sizes, size = np.unique(np.bincount(rank, count).astype(np.int64), return_inverse=True)
        listed = scipy.sparse.csr_array((count, (rank, code)), shape=(len(buckets), len(self.bounds)))
        held = (listed @ incidence_matrix(stated, len(self.bounds)).T).tocoo()
        bucket_index, bound = held.coords
        most = floor_thresholds([one.threshold for one in stated], sizes)
        return np.union1d(over, buckets[bucket_index[held.data > most[bound, size[bucket_index]]]])

    @cached_property
    def size_classes(self) -> list[tuple[Ints, Ints]]:
        """Per size, rows (b, size) and codes (b, size + sigma), both in the order in which they are stored."""
        bid, code, count = self.listed_entries
        members = np.argsort(self.record_parts, kind="stable")
        buckets, sizes = np.unique(self.record_parts, return_counts=True)
        order = np.argsort(np.repeat(bid, count), kind="stable")
        slots = np.repeat(code, count)[order]
        named_, slot_sizes = np.unique(np.repeat(bid, count), return_counts=True)
        if not np.array_equal(buckets, named_) or not np.array_equal(sizes + self.fake_count, slot_sizes):
            raise GuaranteeError("QIT and ST do not agree on the buckets; verify the release")
        starts, slot_starts = np.cumsum(sizes) - sizes, np.cumsum(slot_sizes) - slot_sizes
        rows_and_codes = []
        for size in np.unique(sizes).tolist():
            of_size = np.flatnonzero(sizes == size)
            rows = members[starts[of_size][:, None] + np.arange(size)]
            rows_and_codes.append((rows, slots[slot_starts[of_size][:, None] + np.arange(size + self.fake_count)]))
        return rows_and_codes

    def blocks(self) -> Iterator[Block]:
        """Buckets of one size, as many at a time as memory wants."""
        for rows, codes in self.size_classes:
            step = max(1, CHUNK // (codes.shape[1] ** 2))
            for start in range(0, len(rows), step):
                part = codes[start : start + step]
                prior = self._slot_prior(part)
                yield Block(rows[start : start + step], part, prior, exclusive=True, spare=self.fake_count)

    def _slot_prior(self, codes: Ints) -> Floats:
        """Probability that a record has each of the values that its bucket lists (b, 1, t)."""
        ratio = self.real_ratio[codes]
        return np.asarray(ratio / np.maximum(ratio.sum(axis=1, keepdims=True), TINY))[:, None]

    @cached_property
    def _bucket_counts(self) -> tuple[scipy.sparse.csr_array, Ints, Ints]:
        """How often each bucket lists each value (buckets, m), |g| (buckets,), and the row of every record's bucket."""
        bid, code, count = self.listed_entries
        buckets, rank = np.unique(bid, return_inverse=True)
        bucket_rows = np.searchsorted(buckets, self.record_parts)
        counts = scipy.sparse.csr_array(
            (count.astype(np.float64), (rank, code)), shape=(len(buckets), len(self.bounds))
        )
        return counts, np.bincount(bucket_rows, minlength=len(buckets)), bucket_rows

    @cached_property
    def _listed_pairs(self) -> list[ListedPairs]:
        """How often values are listed together, by size of bucket."""
        counts, sizes, _ = self._bucket_counts
        pairs_by_size = []
        for size in np.unique(sizes).tolist():
            of_size = counts[np.flatnonzero(sizes == size)]
            met = (of_size.T @ of_size).tocsr()
            pairs = met if met.shape[0] > LARGE else met.toarray()
            pairs_by_size.append(ListedPairs(size, pairs, self.fake_count))
        return pairs_by_size

    @cached_property
    def _fake_value_channel(self) -> FakeValueChannel:
        return make_fake_value_channel(self._listed_pairs, self._facts.real, self.listed_times)

    @property
    def channel(self) -> Channel:
        """The channel of what the buckets list (``make_fake_value_channel``)."""
        return self._fake_value_channel.channel

    @property
    def real_ratio(self) -> Floats:
        """How much more often than others a listed value is real (m,)."""
        return self._fake_value_channel.ratio if self.fake_count else np.ones(len(self.bounds))

    def observe_levels(self, level: Ints) -> Floats:
        """Sums over the records with each level of what their buckets list (``make_fake_value_channel``)."""
        counts, sizes, bucket_rows = self._bucket_counts
        scale = np.array([self._fake_value_channel.scale[size] for size in sizes.tolist()])
        shape = (int(level.max()) + 1, len(sizes))
        members = scipy.sparse.csr_array((np.ones(len(level)), (level, bucket_rows)), shape=shape)
        return np.asarray((members @ (counts * scale[:, None])).todense())

    @cached_property
    def release_arrays(self) -> ReleaseArrays:
        """QIT and ST for a model: record i is row ``record_order``[i]."""
        bid, code, count = self.listed_entries
        buckets, listed = np.unique(bid, return_inverse=True)
        entries, fields = np.lexsort((code, listed)), zip(self.roles.quasi_identifiers, self.levels, strict=True)
        columns = {
            field.name: level[self.record_order].astype(np.float64 if is_number(field.type) else np.int64)
            for field, level in fields
        }
        bucket = np.searchsorted(buckets, self.record_parts[self.record_order])
        lists = (listed[entries], code[entries], count[entries])
        return ReleaseArrays(columns, bucket, *lists, values=list(self.value_labels))

    @cached_property
    def record_order(self) -> Ints:
        """Rows bucket by bucket (n,)."""
        return np.argsort(self.record_parts, kind="stable")


def _sql_number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


# Learning -------------------------------------------------------------------------------------------------------------
# Learning by the model of the release (``answers.bucket_model``), the strongest attacker known here. Its beliefs are
# taken to the power that fits buckets best to which it was not fitted. So they are as often right as they say, and
# that follows from QIT and ST alone.

LEARNING_SAMPLE = 30_000  # records to which the attacker's model is fitted, in whole buckets


def attack_by_model(learnt: AttackContext[BucketAttackView]) -> list[Finding]:
    """Return what a model of the release believes of single records; naive Bayes where there is no model."""
    scene = (
        learnt.set_up(replace(learnt.view, sample=LEARNING_SAMPLE, prefix="s")) if _is_large(learnt) else learnt.scene
    )
    finding = find_learning(scene)
    if scene is not learnt.scene:
        scene.close()
    return suite.attack_by_learning(learnt.scene, learnt.associations) if finding is None else [finding]


def find_learning(scene: BucketAttackView) -> Finding | None:
    """Return the finding of the model of a release, None without a model.

    ``mean`` is the belief in buckets to which the model was not fitted. Its beliefs in the others are surer than right:
    the largest is not stated.
    """
    model = fit_attacker(scene)
    if model is None:
        return None
    tally = scene.make_tally()
    for batch in model.find_calibrated_beliefs():
        rows = scene.record_order[batch.of.records]
        uniform = np.broadcast_to(1 / batch.of.values.shape[1], (len(rows), 1, batch.of.values.shape[1]))
        tally.add_block(Block(rows, batch.of.values, uniform, exclusive=batch.of.exact), batch.beliefs)
    return Finding(
        suite.LEARNING,
        suite.LEARNING_KNOWS,
        promised=False,
        baseline=scene.baseline,
        calibrated=True,
        notes=("a model of all columns, calibrated on buckets to which it was not fitted",),
        **{**tally.finding_fields(), "mean": model.belief, "highest": None},
    )


def measure_learning(view: ReleaseView) -> Finding | None:
    """Return the finding of who learns from QIT and ST; None without a model."""
    scene = BucketAttackView(replace(view, sample=LEARNING_SAMPLE))
    finding = find_learning(scene)
    scene.close()
    return finding


def _is_large(learnt: AttackContext[BucketAttackView]) -> bool:
    sample = learnt.view.sample
    return learnt.view.manifest.published_records > LEARNING_SAMPLE and (sample is None or sample > LEARNING_SAMPLE)


def fit_attacker(scene: BucketAttackView) -> BucketModel | None:
    """Return the attacker's model, the same for the same release; None where lists have fakes, or nothing is learnt."""
    if scene.fake_count or find_obstacle(len(scene.record_parts), len(scene.bounds)):
        return None
    return fit_bucket_model(scene.release_arrays, "0" * 64, intervals=False)


# Corruption -----------------------------------------------------------------------------------------------------------
# Corruption: who already knows the values of q records in a bucket strikes them off its list.
#
# With distinct values and sigma fakes (Wang et al., section 6), |g| - q + sigma values remain of which sigma are fake:
# the certainty that a given remaining record has a given remaining value is 1/(|g| - q + sigma), that a remaining value
# is real (|g| - q)/(|g| - q + sigma). A value listed c times may keep all c: c/(|g| - q + sigma) is then the worst
# case.

CORRUPTION = "corruption"
CORRUPTION_KNOWS = "the sensitive value of one other record in the person's bucket, from elsewhere"


def certainty(size: int, known: int, fakes: int = 0, times: int = 1) -> float:
    """Largest probability of a value listed ``times`` for a record left: min(1, c/(|g| - q + sigma)).

    >>> certainty(4, 3), certainty(4, 3, fakes=1)
    (1.0, 0.5)
    """
    return min(1.0, times / (size - known + fakes))


def real(size: int, known: int, fakes: int) -> float:
    """Probability that a value left on the list is real: (|g| - q)/(|g| - q + sigma).

    >>> real(4, 3, 1)
    0.5
    """
    return (size - known) / (size - known + fakes)


def attack_by_corruption(scene: BucketAttackView) -> list[Finding]:
    """Return one finding: figures of who knows one other record, the curve over all numbers, and of all others."""
    most = max(rows.shape[1] for rows, _ in scene.size_classes)
    values = _list_certainties(scene) if scene.fake_count else ()
    tops, above, attacked = _measure_corruption(scene, min(1, most - 1))
    last = float(_measure_corruption(scene, None)[0].mean())
    notes = (f"{last:.1%} sure on average where all others are known",)
    return [
        Finding(
            CORRUPTION,
            CORRUPTION_KNOWS,
            promised=False,
            attacked=attacked,
            mean=float(tops.mean()),
            highest=float(tops.max()),
            above=above / max(1, attacked),
            baseline=scene.baseline,
            notes=(*notes, *(_corruption_notes(scene.fake_count, values) if scene.fake_count else ())),
            curve=tuple(_curve_point(scene, known) for known in range(most)),
            values=values,
        )
    ]


def _measure_corruption(scene: BucketAttackView, known: int | None) -> tuple[Floats, int, int]:
    """Return the best guesses' certainties, how many of them exceed a bound, and how many records are attacked."""
    tops, above, attacked = [], 0, 0
    for top, over, left in _measure_certainty(scene, known):
        tops.append(np.repeat(top, left))
        above += int(over.sum()) * left
        attacked += len(top) * left
    return np.concatenate(tops) if tops else np.zeros(1), above, attacked


def _list_certainties(scene: BucketAttackView) -> tuple[dict[str, Any], ...]:
    """By value, the probability that it is real where it is listed and nobody is known: ``theory`` |g|/(|g| + sigma),
    ``stated`` by the release (or estimated, of releases that state no law), and its share by the ``source``'s records.
    """
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


def _corruption_notes(fakes: int, values: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    """Each kind of figure from the least to the most certain value."""
    kinds = {name: [float(one[name]) for one in values] for name in ("theory", "stated", "source") if name in values[0]}
    spans = ", ".join(f"{name} {min(of):.3f} to {max(of):.3f}" for name, of in kinds.items())
    return (
        f"if all others are known, the last value is real with {real(2, 1, fakes):.0%} probability",
        f"probability that a listed value is real, lowest to highest value: {spans}",
    )


def _measure_certainty(scene: BucketAttackView, known: int | None) -> Iterator[tuple[Floats, Ints, int]]:
    """Per size class: the best guess's certainty in every bucket, whether a bound is exceeded, and records left.

    Which q records are known is drawn: every assignment of records to slots is equally likely, so what they take off
    the list is a uniformly random choice of its real values, and the truth is not needed. With fakes, any listed
    values are as likely to be the real ones, up to how much more often than others they are (``scene.ratio``).
    """
    for rows, codes in scene.size_classes:
        size = rows.shape[1]
        q = size - 1 if known is None else known
        if q >= size:
            continue
        order = scene.given.noise.permuted(np.broadcast_to(np.arange(codes.shape[1]), codes.shape), axis=1)
        left = np.take_along_axis(codes, order, axis=1)[:, q:]
        ratio = scene.real_ratio[left]
        believed = _count_repeats(left) * ratio / ratio.sum(axis=1, keepdims=True)
        over = (believed > scene.bounds[left] * (1 + 1e-9)).any(axis=1)
        yield believed.max(axis=1), over.astype(np.int64), size - q


def _count_repeats(codes: Ints) -> Ints:
    """How often each slot's value stands in its row (b, t): sorted runs, so that large buckets stay cheap."""
    ordered = np.sort(codes, axis=1)
    new = np.ones(ordered.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = np.cumsum(new.ravel()) - 1
    lengths = np.bincount(run)
    times = lengths[run].reshape(codes.shape)
    by_slot = np.empty_like(times)
    np.put_along_axis(by_slot, np.argsort(codes, axis=1, kind="stable"), times, axis=1)
    return np.asarray(by_slot)


def _curve_point(scene: BucketAttackView, known: int) -> dict[str, float]:
    """Mean certainty over the records left, measured and by the formula's worst case."""
    measured = theory = 0.0
    records = 0
    larger = [(rows, codes) for rows, codes in scene.size_classes if rows.shape[1] > known]
    for (rows, codes), (top, _, left) in zip(larger, _measure_certainty(scene, known), strict=True):
        worst = _count_repeats(codes).max(axis=1) / (rows.shape[1] - known + scene.fake_count)
        measured += float(top.sum()) * left
        theory += float(np.minimum(worst, 1).sum()) * left
        records += len(top) * left
    return {"known": known, "theory": theory / max(1, records), "measured": measured / max(1, records)}


CORRUPTION_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    CORRUPTION, CORRUPTION_KNOWS, promised=False, attack=lambda learnt: attack_by_corruption(learnt.scene)
)


# Homogeneity ----------------------------------------------------------------------------------------------------------
# Homogeneity: a bucket whose listed values are all, or nearly all, the same tells the value of everyone in it.
#
# Machanavajjhala et al. 2006 (l-diversity). Looked for bucket by bucket and in integers; a bound f' < 1 rules it out.

HOMOGENEITY = "homogeneity"
HOMOGENEITY_KNOWS = "the person's quasi-identifiers; looks for buckets in which one value stands alone or dominates"


def attack_by_homogeneity(scene: BucketAttackView) -> list[Finding]:
    """Share of buckets in which the posterior of a value, or of a group, exceeds its bound; how many hold one value."""
    bid, _, count = scene.listed_entries
    _, rank = np.unique(bid, return_inverse=True)
    listed = np.bincount(rank, count)
    most = np.zeros(len(listed), dtype=np.int64)
    np.maximum.at(most, rank, count)
    certainty = most / listed
    alone, number = int((most == listed).sum()), len(scene.group_bounds)
    over = len(scene.broken_buckets)
    return [
        Finding(
            HOMOGENEITY,
            HOMOGENEITY_KNOWS,
            promised=True,
            attacked=len(listed),
            unit="buckets",
            mean=float(certainty.mean()),
            highest=float(certainty.max()),
            above=over / len(listed),
            baseline=scene.baseline,
            notes=(
                *([f"{alone:,} buckets hold a single value"] if alone else []),
                *([f"bounds on {number:,} groups of values are counted"] if number else []),
            ),
        )
    ]


HOMOGENEITY_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    HOMOGENEITY, HOMOGENEITY_KNOWS, promised=True, attack=lambda learnt: attack_by_homogeneity(learnt.scene)
)
LEARNING_ADVERSARY: Adversary[BucketAttackView] = Adversary(
    suite.LEARNING, suite.LEARNING_KNOWS, promised=False, attack=attack_by_model
)
