"""Which listed values are fake: every value as often as it must be, and nothing of the lists tells which they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from privsql.errors import InfeasibleError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import fakes
from privsql.mechanisms.bucketize.fake_law import Entries, times_listed
from privsql.mechanisms.bucketize.fakes import find_too_frequent
from privsql.mechanisms.bucketize.model import Plan, Setting
from support.enumeration import FALSE_ALARM, Enumerator
from support.layouts import draw_bids
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.model import Ints

DRAWS = 24  # tables laid out and drawn independently
EVEN = ("blocks", "round-robin", "largest-first")  # layouts that fakes go with


@dataclass(frozen=True)
class Made:
    """``listed``, ``real`` (buckets, m): which values a bucket lists, and which of them somebody there has."""

    listed: NDArray[np.bool_]
    real: NDArray[np.bool_]

    @staticmethod
    def of(buckets: int, values: int, bids: Ints, codes: Ints, fake_bids: Ints, fake_codes: Ints) -> Made:
        """No value stands twice in a bucket."""
        times = np.zeros((buckets, values), dtype=np.int64)
        np.add.at(times, (bids, codes), 1)
        real = times > 0
        np.add.at(times, (fake_bids, fake_codes), 1)
        assert times.max() <= 1
        return Made(times > 0, real)


def plan(counts: Ints, setting: Setting) -> Plan:
    return Plan("any", setting, counts[:, None])


def made(counts: Ints, setting: Setting, sigma: int, layout: str, noise: Shuffler) -> tuple[Made, fakes.HiddenValues]:
    """One table of values."""
    found = fakes.hide_values(plan(counts, setting), counts, sigma, layout, noise)
    codes = np.repeat(np.arange(len(counts)), counts)
    number = sum(setting.buckets)
    return Made.of(number, len(counts), found.bids, codes, found.fake_bids, found.fake_codes), found


def zipf(values: int, setting: Setting, power: float) -> Ints:
    """Counts in proportion to 1/rank^power."""
    shares = np.arange(1, values + 1) ** -power
    counts = np.floor(setting.records * shares / shares.sum()).astype(np.int64)
    counts[: setting.records - counts.sum()] += 1
    return counts


# What is always so ---


@pytest.mark.parametrize("layout", EVEN)
@pytest.mark.parametrize(
    ("sizes", "values", "sigma"),
    [({4: 200}, 12, 1), ({3: 100, 4: 30}, 9, 2), ({1: 40}, 2, 1), ({2: 5, 3: 60, 5: 20}, 20, 4), ({2: 30}, 20, 17)],
)
def test_every_bucket_and_every_value_has_its_fakes(
    layout: str, sizes: dict[int, int], values: int, sigma: int
) -> None:
    setting = Setting.from_counts(sizes)
    counts = zipf(values, setting, 0.1 if values > max(sizes) + 2 * sigma else 0.0)
    assert find_too_frequent(counts, setting, sigma) == []
    table, _ = made(counts, setting, sigma, layout, seed_key(1).random_generator("fakes"))
    of_buckets = np.repeat(setting.sizes, setting.buckets)
    assert (table.real.sum(axis=1) == of_buckets).all()
    assert (table.listed.sum(axis=1) == of_buckets + sigma).all()
    assert (table.real.sum(axis=0) == counts).all()
    assert (table.listed.sum(axis=0) == times_listed(counts, setting.items, sigma).sum(axis=1)).all()


def test_all_counts_equal_and_all_values_listed() -> None:
    """S + sigma of S + sigma values: every bucket lists everything, and each is as likely to be fake."""
    setting, counts = Setting.from_counts({3: 50}), np.full(5, 30)
    table, found = made(counts, setting, 2, "blocks", seed_key(1).random_generator("fakes"))
    assert table.listed.all()
    assert found.highest == pytest.approx(3 / 5, abs=1e-6)


def test_values_that_are_too_frequent_are_listed_everywhere() -> None:
    """Asked for all the same: 9 of 10 buckets have the value, and every one lists it."""
    setting, counts = Setting.from_counts({3: 100}), np.array([90, *[30] * 7])
    table, found = made(counts, setting, 1, "blocks", seed_key(1).random_generator("fakes"))
    assert table.listed[:, 0].all()
    assert table.real[:, 0].sum() == 90
    assert found.highest >= 0.9 - 1e-6


# Every outcome, in fractions ---


@pytest.mark.soak(part="outputs")
def test_a_tiny_table_in_every_outcome() -> None:
    """All random choices of layout, numbers and fakes: given the lists, each listed value is real in half of them."""
    noise, joint = Enumerator(), defaultdict(Fraction)

    def run() -> tuple[int, ...]:
        table, _ = made(np.array([1, 1]), Setting.from_counts({1: 2}), 1, "blocks", noise)
        return (*table.listed.ravel().tolist(), *table.real.ravel().tolist())

    for outcome, chance in noise.runs(run):
        joint[outcome] += chance
    lists, certain = defaultdict(Fraction), defaultdict(Fraction)
    for outcome, chance in joint.items():
        lists[outcome[:4]] += chance
        for place in range(4):
            certain[outcome[:4], place] += chance * outcome[4 + place]
    assert sum(lists.values()) == 1
    for listed, chance in lists.items():
        for place, here in enumerate(listed):
            assert certain[listed, place] == chance * here / 2


def test_chances_of_a_quarter_are_kept_over_all_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bits instead of 24, four lists of two values, one of which is fake three times in four: every draw."""
    monkeypatch.setattr(fakes, "ONE", 4)
    monkeypatch.setattr(fakes, "BITS", 2)
    one = Entries(np.repeat(np.arange(4), 2), np.tile([0, 1], 4), (4, 2))
    noise, kept = Enumerator(), [Fraction(0)] * 8
    for chosen, chance in noise.runs(lambda: tuple(fakes.choose_entries(one, np.tile([1, 3], 4), noise).tolist())):
        assert [side.tolist() for side in one.sum_amounts(np.array(chosen))] == [[1] * 4, [1, 3]]
        kept = [total + chance * yes for total, yes in zip(kept, chosen, strict=True)]
    assert kept == [Fraction(1, 4), Fraction(3, 4)] * 4


def test_what_leaves_no_choice_is_refused() -> None:
    """One bucket, and two values that nobody has: they can't be listed as often as others."""
    with pytest.raises(InfeasibleError, match="leave no doubt"):
        made(np.array([1, 1, 0, 0]), Setting.from_counts({2: 1}), 2, "blocks", seed_key(1).random_generator("fakes"))


# What the lists tell ---


def features(table: Made, counts: Ints) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Kinds of entries that an adversary could suspect: flags (buckets, m)."""
    listed = table.listed
    before, after = np.zeros_like(listed), np.zeros_like(listed)
    before[1:], after[:-1] = listed[:-1], listed[1:]
    yield "both neighbours list it", listed & before & after
    yield "no neighbour lists it", listed & ~before & ~after
    lower, upper = np.zeros_like(listed), np.zeros_like(listed)
    lower[:, 1:], upper[:, :-1] = listed[:, :-1], listed[:, 1:]
    yield "between values that are listed", listed & lower & upper
    yield "alone among values", listed & ~lower & ~upper
    shifted = np.zeros_like(listed)
    shifted[1:, 1:] = listed[:-1, :-1]
    yield "the bucket before lists the value before", listed & shifted
    shared = listed.astype(np.float64) @ listed.T
    np.fill_diagonal(shared, -1)
    closest = shared.argmax(axis=1)
    yield "the bucket that is most alike lists it", listed & listed[closest]
    yield "the bucket that is most alike lacks it", listed & ~listed[closest]
    together = listed.T.astype(np.float64) @ listed
    others = listed @ together
    yield "its values often meet the others", listed & (others > np.median(others[listed]))
    order = np.argsort(-counts, kind="stable")
    frequent = np.zeros(len(counts), dtype=bool)
    frequent[order[: len(counts) // 3]] = True
    yield "frequent", listed & frequent
    yield "rare", listed & ~frequent
    for half in (0, 1):
        part = np.arange(len(listed)) % 2 == half
        yield f"bucket {half} of two", listed & part[:, None]


def deviates(make: Callable[[int], Made], counts: Ints) -> dict[str, float]:
    """By feature Student's t of how many more of its entries are real than the values' certainties say."""
    more: dict[str, list[float]] = defaultdict(list)
    for draw in range(DRAWS):
        table = make(draw)
        certain = table.real.sum(axis=0) / np.maximum(table.listed.sum(axis=0), 1)
        for name, chosen in features(table, counts):
            more[name].append(float(table.real[chosen].sum() - (chosen * certain).sum()))
    found = {}
    for name, values in more.items():
        spread = np.std(values, ddof=1) / DRAWS**0.5
        found[name] = float(np.mean(values) / spread) if spread > 1e-9 else 0.0
    return found


SETTINGS = [({8: 300}, 2), ({4: 300}, 1), ({4: 240, 5: 60}, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("layout", rest_slow(EVEN))
@pytest.mark.parametrize(("sizes", "sigma"), rest_slow(SETTINGS))
def test_nothing_of_the_lists_tells_fakes(layout: str, sizes: dict[int, int], sigma: int) -> None:
    """Neighbours, overlaps, shifts and frequencies; false alarm 1e-6 over all features."""
    setting = Setting.from_counts(sizes)
    counts = zipf(24, setting, 0.25)
    assert find_too_frequent(counts, setting, sigma) == []

    def make(draw: int) -> Made:
        return made(counts, setting, sigma, layout, seed_key(draw).random_generator("fakes"))[0]

    found = deviates(make, counts)
    assert max(abs(deviate) for deviate in found.values()) < student.isf(FALSE_ALARM / 2 / len(found), DRAWS - 1)


@pytest.mark.slow
def test_fakes_beside_buckets_that_are_laid_out_are_told() -> None:
    """The same adversary against fakes uniform over the values that are not in the bucket: the test can fail."""
    setting, sigma = Setting.from_counts({8: 300}), 2
    counts = zipf(24, setting, 0.25)

    def make(draw: int) -> Made:
        noise = seed_key(draw).random_generator("fakes")
        bids = draw_bids(plan(counts, setting), "round-robin", noise)
        codes = np.repeat(np.arange(24), counts)
        table = Made.of(300, 24, bids, codes, bids[:0], codes[:0])
        lacking = [noise.permutation(np.flatnonzero(~row))[:sigma] for row in table.real]
        return Made.of(300, 24, bids, codes, np.repeat(np.arange(300), sigma), np.concatenate(lacking))

    found = deviates(make, counts)
    told = {name for name, deviate in found.items() if abs(deviate) > student.isf(FALSE_ALARM / 2, DRAWS - 1)}
    assert {"both neighbours list it", "no neighbour lists it", "between values that are listed"} <= told


@pytest.mark.parametrize("layout", rest_slow(EVEN))
def test_bucket_numbers_are_drawn(layout: str) -> None:
    """How often one bucket number lists a value, over draws: as often as others do; false alarm 1e-6."""
    setting, sigma = Setting.from_counts({3: 8}), 1
    counts, runs = np.full(8, 3), 120
    times = np.zeros((8, 8))
    for draw in range(runs):
        times += made(counts, setting, sigma, layout, seed_key(draw).random_generator("fakes"))[0].listed
    chance = 4 / 8
    furthest = np.abs(times - runs * chance).max() / (runs * chance * (1 - chance)) ** 0.5
    assert furthest < norm.isf(FALSE_ALARM / 2 / times.size)


# Certainty by value ---


@pytest.mark.parametrize(("sizes", "sigma", "power"), [({8: 500}, 2, 0.5), ({4: 500}, 1, 0.6), ({6: 450}, 2, 0.4)])
def test_certainty_by_value_with_zipf_counts(sizes: dict[int, int], sigma: int, power: float) -> None:
    """Of m = 50 values: p (L_x - 1) < o_x, and o_x/L_x <= p/(1 - p m/n), p = S/(S + sigma); by entry nearly so."""
    setting, noise = Setting.from_counts(sizes), seed_key(3).random_generator("fakes")
    counts = zipf(50, setting, power)
    assert find_too_frequent(counts, setting, sigma) == []
    size = setting.sizes[0]
    table, found = made(counts, setting, sigma, "blocks", noise)
    real, listed = table.real.sum(axis=0), table.listed.sum(axis=0)
    assert (real > size / (size + sigma) * (listed - 1)).all()
    assert (real / listed <= size / (size + sigma) / (1 - size / (size + sigma) * 50 / setting.records)).all()
    assert found.highest < size / (size + sigma) + 0.04


@pytest.mark.slow
@pytest.mark.parametrize("known", [0, 1, 3])
def test_certainty_after_corruption(known: int) -> None:
    """q known of S values leave (S - q)/(S - q + sigma), for frequent values as for rare ones; false alarm 1e-6."""
    setting, sigma = Setting.from_counts({4: 5000}), 2
    noise = seed_key(4).random_generator("corruption")
    counts = zipf(20, setting, 0.5)
    table, _ = made(counts, setting, sigma, "blocks", noise)
    theory = (4 - known) / (4 - known + sigma)
    left, real = Counter[int](), Counter[int]()
    for lists, own in zip(table.listed, table.real, strict=True):
        struck = set(noise.permutation(np.flatnonzero(own))[:known].tolist())
        for x in set(np.flatnonzero(lists).tolist()) - struck:
            left[x] += 1
            real[x] += bool(own[x])
    for x in range(20):
        spread = (theory * (1 - theory) / left[x]) ** 0.5
        assert abs(real[x] / left[x] - theory) < norm.isf(FALSE_ALARM / 40) * spread
