"""What a release teaches: the algebra by brute force, sampling by enumeration, and questions put to made records."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import scipy

from privsql.answers import learned_prior as asking
from privsql.answers import learned_prior as em
from privsql.answers import learned_prior as gibbs
from privsql.answers import learned_prior as learning
from privsql.answers.channel import STRENGTHS, Channel, CovarianceForm, Observation, Prior, observe_counts, reconstruct
from privsql.answers.estimate import count_interval
from privsql.answers.learned_prior import Sample, encode_values
from privsql.keyed_random import seed_key
from support.channels import assert_same, questions, random_channel, textbook
from support.loops import each

if TYPE_CHECKING:
    from numpy.typing import NDArray


def any_covariance(rng: np.random.Generator, values: int, size: float = 0.02) -> NDArray[np.float64]:
    """A covariance matrix of full rank."""
    root = rng.standard_normal((values, values + 2))
    return np.asarray(size**2 * root @ root.T)


def made(rng: np.random.Generator, records: int = 3000, values: int = 6, size: int = 3) -> tuple[Channel, Sample]:
    """Records in random buckets; column ``strong`` says much of the value, ``free`` nothing."""
    value = rng.permutation(np.arange(records) % values)
    place = rng.permutation(np.arange(records) // size)
    counts = scipy.sparse.coo_array((np.ones(records), (place, value)), shape=(records // size, values)).tocsr()
    moment = (counts.T @ counts).toarray() / size
    own = np.asarray(counts.sum(axis=0)).ravel()
    strong = np.where(rng.random(records) < 0.8, value % 4, rng.integers(0, 4, records))
    columns = {"strong": strong, "free": rng.integers(0, 12, records), "fine": rng.integers(0, 1000, records)}
    coded = {name: codes.astype(np.int32) for name, codes in columns.items()}
    sample = Sample(place.astype(np.int32), scipy.sparse.csr_array(counts / size), coded)
    return Channel(moment / own[:, None], moment, own), sample


# The posterior ---


@each("values", [2, 5, 12])
@each("own", [False, True])
@each("seed", [1, 2])
def test_a_full_covariance_is_the_textbook_mixture(values: int, own: bool, seed: int) -> None:
    """Any K and weights of strengths, a weight of nothing included."""
    rng = np.random.default_rng([71, values, own, seed])
    through = random_channel(rng, values)
    seen = questions(rng, through, 4)
    functionals = rng.integers(0, 2, (4, values, 3) if own else (values, 3)).astype(float)
    found, strengths = any_covariance(rng, values), np.array([0.1, 0.6, 2.0, 4.0])
    weights = np.append(rng.dirichlet(np.ones(3)), 1e-12)
    posterior = reconstruct(through, seen, functionals, Prior(CovarianceForm(through, found), strengths, weights))
    expected = textbook(through, seen, functionals, found, (strengths, weights))
    assert_same(posterior, expected, float(seen.total.max()))


def test_the_default_form_as_a_matrix_gives_the_default_answers() -> None:
    """K = diag(spread), every strength alike."""
    rng = np.random.default_rng(72)
    through = random_channel(rng, 9)
    seen, functionals = questions(rng, through, 5), np.eye(9)
    uniform = np.full(len(STRENGTHS), 1 / len(STRENGTHS))
    whole = Prior(CovarianceForm(through, np.diag(through.prior_shape)), STRENGTHS, uniform)
    assert_same(reconstruct(through, seen, functionals, whole), reconstruct(through, seen, functionals), 1.0, rtol=1e-9)


@each("own", [False, True])
def test_the_spread_is_that_of_both_accounts_half_each(own: bool) -> None:
    """Around the estimate with K."""
    rng = np.random.default_rng([73, own])
    through = random_channel(rng, 7)
    seen = questions(rng, through, 4)
    functionals = rng.integers(0, 2, (4, 7, 3) if own else (7, 3)).astype(float)
    grid = gibbs.STRENGTHS
    weights = {name: (rng.dirichlet(np.ones(len(grid))), rng.dirichlet(np.ones(len(grid)))) for name in ("", "age")}
    taught = learning.TaughtPrior(through, learning.LearnedPrior(any_covariance(rng, 7), weights))
    found = taught.reconstruct(seen, functionals, ["age", "unknown"])
    together = reconstruct(through, seen, functionals, Prior(taught.learned_form, grid, weights["age"][0]))
    alone = reconstruct(through, seen, functionals, Prior(through.default_form, grid, weights["age"][1]))
    np.testing.assert_array_equal(found.values, together.values)
    for g in range(4):
        x = functionals[g] if own else functionals
        apart = x.T @ (alone.values[g] - together.values[g])
        expected = np.sqrt((together.std_error[g] ** 2 + alone.std_error[g] ** 2 + apart**2) / 2)
        np.testing.assert_allclose(found.std_error[g], expected)


def test_a_question_has_the_weights_of_its_strongest_column() -> None:
    """Of each account for itself; a column that taught nothing, or none, has those of all conditions."""
    grid = gibbs.STRENGTHS
    point = np.eye(len(grid))
    weights = {"": (point[4], point[5]), "weak": (point[1], point[3]), "strong": (point[6], point[2])}
    taught = learning.TaughtPrior(
        random_channel(np.random.default_rng(74), 3), learning.LearnedPrior(np.eye(3), weights)
    )
    for columns, first, second in ((["weak"], 1, 3), (["strong", "weak"], 6, 3), (["other"], 4, 5), ([], 4, 5)):
        together, alone = taught.choose_weights(columns)
        assert (np.argmax(together), np.argmax(alone)) == (first, second)


# K ---


def deviations(through: Channel, seen: Observation) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """d_q and B_q / T_q of every question, as the formula has them."""
    shares, records = through.shares, through.records.sum()
    noise = [through.moment / records / total for total in seen.total]
    return (seen.observed - seen.total[:, None] * (shares @ through.mean)) / seen.total[:, None], noise


def test_one_round_is_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """G = K M (M' K M + B_q / T_q)^-1, mu = G d_q, acc = sum of mu mu' + K - G M' K, with plain inverses."""
    rng = np.random.default_rng(75)
    through = random_channel(rng, 6)
    seen = questions(rng, through, 9)
    monkeypatch.setattr(em, "ROUNDS", 1)
    shares = through.shares
    default = np.diag(shares**1.5 * (shares**2).sum() / (shares**1.5).sum())
    start, added = em.START * default, np.zeros((6, 6))
    for d, noise in zip(*deviations(through, seen), strict=True):
        gain = start @ through.mean @ np.linalg.inv(through.mean.T @ start @ through.mean + noise)
        added += np.outer(gain @ d, gain @ d) + start - gain @ through.mean.T @ start
    scale = np.trace(added) / 9 / np.trace(default)
    expected = (added + em.PRIOR * scale * default) / (9 + em.PRIOR)
    np.testing.assert_allclose(
        em.estimate_covariance(through, seen), expected, rtol=1e-6, atol=1e-9 * np.trace(expected)
    )


@pytest.mark.slow
def test_every_round_raises_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a prior EM is exact, so it must; of the direction of the total nothing is unknown."""
    rng = np.random.default_rng(76)
    through = random_channel(rng, 5)
    seen = questions(rng, through, 30)
    monkeypatch.setattr(em, "PRIOR", 0.0)
    found = []
    for rounds in range(6):
        monkeypatch.setattr(em, "ROUNDS", rounds)
        covariance = em.estimate_covariance(through, seen)
        logs = 0.0
        for d, noise in zip(*deviations(through, seen), strict=True):
            whole = through.mean.T @ covariance @ through.mean + noise
            logs -= np.linalg.slogdet(whole)[1] + d @ np.linalg.solve(whole, d)
        found.append(logs)
    assert (np.diff(found) > 0).all()


def test_without_questions_it_is_the_default_form() -> None:
    """Nothing was learnt."""
    through = random_channel(np.random.default_rng(77), 4)
    empty = Observation(np.zeros((0, 4)), *(np.zeros(0) for _ in range(4)))
    np.testing.assert_array_equal(em.estimate_covariance(through, empty), np.diag(through.prior_shape))


# Strengths ---


@pytest.mark.parametrize("prior", [0.2, 1.5])
def test_weights_are_their_posterior_mean_by_enumeration(prior: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three strengths, four questions, all 81 assignments: P(z) ~ product of L and of Gamma(n_s + prior).

    E[w_s | z] = (n_s + prior) / (4 + 3 prior). 7,900 draws that depend on each other: within 0.05, four standard
    errors of as few as 1,600 independent ones (each within [0, 1], deviation at most 1/2). Seeded.
    """
    monkeypatch.setattr(gibbs, "STEPS", 800)
    logs = np.log(np.random.default_rng(78).uniform(0.05, 1, (3, 4)))
    total, expected = 0.0, np.zeros(3)
    for strengths in itertools.product(range(3), repeat=4):
        counts = np.bincount(strengths, minlength=3)
        chance = np.exp(logs[list(strengths), range(4)].sum() + scipy.special.gammaln(counts + prior).sum())
        total += chance
        expected += chance * (counts + prior) / (4 + 3 * prior)
    found = gibbs.weigh_strengths(logs, np.full(3, prior), seed_key(1).random_generator("test"))
    np.testing.assert_allclose(found, expected / total, atol=0.05)


def test_without_questions_weights_are_the_prior() -> None:
    """Within the error of 200 draws of a Dirichlet: five times sqrt(2/9 / 2.5 / 200)."""
    found = gibbs.weigh_strengths(
        np.zeros((3, 0)), np.array([1.0, 0.5, 0.0 + 1e-9]), seed_key(1).random_generator("test")
    )
    np.testing.assert_allclose(found, [2 / 3, 1 / 3, 0], atol=0.11)


# Records and questions ---


def test_what_sets_of_records_see_by_brute_force() -> None:
    """Record by record."""
    rng = np.random.default_rng(79)
    _, sample = made(rng, 120)
    each_sees = sample.contributions.toarray()[sample.places]
    members = [np.flatnonzero(rng.random(120) < 0.3) for _ in range(4)] + [np.zeros(0, dtype=np.intp)]
    observed, total = sample.observe_sets(members)
    np.testing.assert_allclose(observed, [each_sees[chosen].sum(axis=0) for chosen in members])
    assert total.tolist() == [len(chosen) for chosen in members]
    codes, some = sample.columns["free"], np.array([7, 2, 5])
    observed, total = sample.by_value("free", some)
    np.testing.assert_allclose(observed, [each_sees[codes == value].sum(axis=0) for value in some], atol=1e-12)
    assert total.tolist() == [(codes == value).sum() for value in some]


def test_conditions_select_enough_of_the_records() -> None:
    """And none that selects less is among them, or stands twice; columns of which every value is rare give none."""
    through, sample = made(np.random.default_rng(80), 9000)
    seen = asking.draw_conditions(sample, through, seed_key(1).random_generator("test"))
    assert 40 < len(seen.total) <= asking.NUMBER
    assert len(np.unique(seen.observed, axis=0)) == len(seen.total)
    assert (seen.total > asking.SHARE * 9000).all()
    np.testing.assert_allclose(seen.observed.sum(axis=1), seen.total)
    rare = Sample(sample.places, sample.contributions, {"id": np.arange(9000, dtype=np.int32)})
    assert not len(asking.draw_conditions(rare, through, seed_key(1).random_generator("test")).total)
    assert not len(asking.list_values(rare, through, "id", seed_key(1).random_generator("test")).total)


def test_a_question_that_is_drawn_again_and_again_is_one() -> None:
    """A column of two values has two conditions; counted 250 times, what they hardly say was taken for certain."""
    through, sample = made(np.random.default_rng(82), 9000)
    two = replace(sample, columns={"two": (np.arange(9000) % 7 == 0).astype(np.int32)})
    seen = asking.draw_conditions(two, through, seed_key(1).random_generator("test"))
    assert sorted(seen.total.tolist()) == [1286, 7714]


def test_values_of_a_column_are_those_with_enough_records() -> None:
    """All of them where they are few; of many some."""
    through, sample = made(np.random.default_rng(81), 9000)
    records = np.bincount(sample.columns["fine"])
    few = asking.list_values(sample, through, "strong", seed_key(1).random_generator("test"))
    assert sorted(few.total.tolist()) == sorted(np.bincount(sample.columns["strong"]).tolist())
    some = asking.list_values(sample, through, "fine", seed_key(1).random_generator("test"))
    assert (records >= asking.FEWEST_IN_SET).sum() > asking.GROUPS == len(some.total)
    assert (some.total >= asking.FEWEST_IN_SET).all()


@each(
    "column",
    [
        pa.chunked_array([["a", None, "b"], ["a", None]]),
        pa.chunked_array([[1.5, float("nan"), 2.0], [1.5, float("nan")]]),
        pa.chunked_array([[True, None, False], [True, None]]),
        pa.chunked_array([pa.array([3, None, 70_000], pa.date32()), pa.array([3, None], pa.date32())]),
    ],
)
def test_values_are_told_apart(column: pa.ChunkedArray) -> None:
    """NULL and NaN are values."""
    assert encode_values(column).tolist() == [0, 1, 2, 0, 1]


# Learning ---


def test_learning_finds_what_was_put_there() -> None:
    """Strengths of a column that says much are larger by far than of one that says nothing; and the same again."""
    through, sample = made(np.random.default_rng(84))
    first, second = (learning.learn_prior(through, sample, seed_key(1).random_generator("test")) for _ in range(2))
    np.testing.assert_array_equal(first.covariance, second.covariance)
    assert all(
        np.array_equal(one, other)
        for name, pair in first.weights.items()
        for one, other in zip(pair, second.weights[name], strict=True)
    )
    assert set(first.weights) == {"", "strong", "free", "fine"}
    for account in range(2):
        strong, free = (first.weights[name][account] @ gibbs.STRENGTHS**2 for name in ("strong", "free"))
        assert strong > 20 * free
    np.testing.assert_array_equal(first.covariance, first.covariance.T)
    assert np.linalg.eigvalsh(first.covariance).min() > 0


def test_values_that_go_together_do_so_in_k() -> None:
    """0 and 4, 1 and 5 share a value of ``strong``; 0 and 1 do not."""
    through, sample = made(np.random.default_rng(85), 12_000)
    found = learning.learn_prior(through, sample, seed_key(1).random_generator("test")).covariance
    size = np.sqrt(np.diag(found))
    correlation = found / size[:, None] / size
    assert min(correlation[0, 4], correlation[1, 5]) > 0.3
    assert max(correlation[0, 1], correlation[0, 5], correlation[2, 3]) < 0


def test_more_noise_in_every_place_and_none_in_their_sum() -> None:
    """The rows of the noise's moment add up to what they did; the rest is positive."""
    through = random_channel(np.random.default_rng(87), 6)
    more = learning.blur_channel(through).moment - through.moment
    np.testing.assert_allclose(more.sum(axis=0), 0, atol=1e-12 * np.trace(through.moment))
    assert (np.linalg.eigvalsh(more) > -1e-12 * np.trace(through.moment)).all()
    own = np.diag(through.moment - through.mean.T @ np.diag(through.records) @ through.mean)
    np.testing.assert_allclose(np.diag(more), learning.BLUR * own * (1 - own / own.sum()))
    records = np.array([30.0, 20.0, 10.0])
    clear = Channel(np.eye(3), np.diag(records), records)
    np.testing.assert_allclose(learning.blur_channel(clear).moment, clear.moment, rtol=1e-12)


def test_what_everybody_has_stays_known() -> None:
    """All records: the posterior with what was learnt gives every count back, as the default one does."""
    through, sample = made(np.random.default_rng(88))
    taught = learning.learn_from_release(through, sample)
    assert taught is not None
    total = np.array([3000.0])
    everyone = observe_counts((through.records @ through.mean)[None], total, 3000.0)
    found = taught.reconstruct(everyone, np.eye(6), [])
    np.testing.assert_allclose(found.values[0], through.records, rtol=1e-6)
    assert (found.std_error[0] < 0.01 * through.records).all()


def test_too_little_to_learn_from() -> None:
    """Few records, no columns, or more values than are solved for at once: the default prior stays."""
    through, sample = made(np.random.default_rng(86), 900)
    assert learning.learn_from_release(through, sample) is None
    through, sample = made(np.random.default_rng(86))
    assert learning.learn_from_release(through, Sample(sample.places, sample.contributions, {})) is None
    assert learning.learn_from_release(through, sample) is not None


@pytest.mark.soak(part="coverage")
def test_intervals_cover_where_columns_differ() -> None:
    """At 95 %, over 20 tables of 6,000 records with a strong, a fair and an empty column: 93 % or more, 99.5 or less.

    Tables are independent of each other, answers on one are not: each table is one observation. Where the coverage lies
    within these limits its mean is beyond them by four standard errors with probability 4e-4 (t, 19 degrees). Seeded.
    """
    shares = []
    for table in range(20):
        rng = np.random.default_rng([91, table])
        values, size, records = 8, 4, 6000
        value = rng.choice(values, records, p=rng.dirichlet(np.full(values, 20.0)))
        value = value[np.argsort(rng.random(records))]
        place = rng.permutation(np.arange(records) // size)
        counts = scipy.sparse.coo_array((np.ones(records), (place, value)), shape=(records // size, values)).tocsr()
        moment = (counts.T @ counts).toarray() / size
        own = moment.sum(axis=1)
        codes = {"empty": rng.integers(0, 8, records)}
        for name, odds in (("strong", 0.9), ("fair", 0.4)):
            chances = np.exp(odds * rng.standard_normal((values, 10)))
            ends = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)[value]
            codes[name] = (rng.random(records)[:, None] > ends).sum(axis=1).clip(max=9)
        columns = {name: one.astype(np.int32) for name, one in codes.items()}
        sample = Sample(place.astype(np.int32), scipy.sparse.csr_array(counts / size), columns)
        taught = learning.learn_from_release(Channel(moment / own[:, None], moment, own), sample)
        assert taught is not None
        covered = []
        for name, one in columns.items():
            seen, total = sample.by_value(name, np.unique(one))
            found = taught.reconstruct(observe_counts(seen, total, float(records)), np.eye(values), [name])
            for g, level in enumerate(np.unique(one)):
                truth = np.bincount(value[one == level], minlength=values)
                bounds = zip(found.values[g], found.std_error[g], truth, strict=True)
                for mean, error, true in bounds:
                    low, high = count_interval(mean, error, 0.95, learning.DEGREES)
                    covered.append(np.floor(low) <= true <= np.ceil(high))
        shares.append(np.mean(covered))
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert 0.93 - 4 * error <= np.mean(shares) <= 0.995 + 4 * error
