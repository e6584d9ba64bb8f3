"""Zero-concentrated privacy: conversions, noise, exact divergences by enumeration, releases and the ledger."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mechanisms.marginals.test_marginals import RECORDS, SIZES, rule
from privsql import dp_random
from privsql.dp_random import (
    CONCENTRATED,
    PURE,
    NoiseLaw,
    OpenDPNoise,
    SeededGaussian,
    as_decimal,
    concentrated_epsilon,
    concentrated_rho,
    noisy_max,
)
from privsql.mechanisms.dp import noisy_tables
from privsql.mechanisms.dp.mechanism import RecordBudget
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.marginals import plan
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.publish import measure_marginals
from privsql.mechanisms.views.parameters import SetValued
from privsql.releases.ledger.budget import Spending, sum_spending
from support import census, shop
from support.commands import manifest, refused, rows, run, succeeded, write
from support.enumeration import Enumeration, chi_square, fit_models_once
from support.loops import each
from support.tampering import changed, not_verified, stating

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

BILLIONTH = Fraction(1, 10**9)
WITH_DELTA = census.ASKED.replace("epsilon = 2", 'epsilon = 2\ndelta = "1e-9"\nnoise = "gaussian"')


# Conversions ----------------------------------------------------------------------------------------------------------


def log_delta(rho: Fraction, epsilon: Fraction) -> Decimal:
    """The least ln delta over alpha > 1, to about 60 digits (Canonne, Kamath, Steinke 2020, proposition 12).

    ln delta is convex in alpha; its derivative (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha) rises from -infinity.
    """
    with localcontext() as context:
        context.prec = 80
        spent, asked = as_decimal(rho), as_decimal(epsilon)
        low, high = Decimal(0), (asked + 1) / spent + 2  # of alpha - 1; where alpha >= 2 the logarithm is above -1
        for _ in range(220):
            more = (low + high) / 2
            rising = (2 * more + 1) * spent - asked + (more / (1 + more)).ln() > 0
            low, high = (low, more) if rising else (more, high)
        return high * ((1 + high) * spent - asked) + high * high.ln() - (1 + high) * (1 + high).ln()


@settings(max_examples=8, deadline=None)
@given(st.fractions("1/100", 20, max_denominator=100), st.integers(5, 18))
@example(Fraction(1), 9)
def test_rho_and_epsilon_are_rounded_to_the_safe_side(epsilon: Fraction, digits: int) -> None:
    """A release that spends rho keeps (epsilon, delta) exactly; a rho that is larger in its ninth digit does not."""
    delta = Fraction(1, 10**digits)
    bound = as_decimal(delta).ln(Context(prec=80))
    rho = concentrated_rho(epsilon, delta)
    last = Fraction(10) ** (Decimal(float(rho)).adjusted() - 8)
    assert rho % last == 0
    assert log_delta(rho, epsilon) <= bound < log_delta(rho + last, epsilon)
    least = concentrated_epsilon(rho, delta)
    assert log_delta(rho, least) <= bound < log_delta(rho, least - Fraction(1, 10**6))
    assert epsilon - Fraction(1, 10**6) <= least <= epsilon + Fraction(1, 10**6)


def test_rhos_add_up_to_less_than_epsilons() -> None:
    one = Spending(Fraction(1), BILLIONTH, concentrated_rho(Fraction(1), BILLIONTH))
    pure = Spending(Fraction(1, 2))
    assert sum_spending([], Fraction(0)) == 0
    assert sum_spending([one], BILLIONTH) == 1
    assert sum_spending([one, pure], BILLIONTH) == Fraction(3, 2)
    four = sum_spending([one] * 4, BILLIONTH)
    assert four == concentrated_epsilon(4 * (one.rho or 0), BILLIONTH)
    assert 2 < four < Fraction(21, 10)


@each("delta", ["-1e-9", "1e-19", "1e-4", 0.5])
def test_a_delta_out_of_range_is_refused(delta: object) -> None:
    with pytest.raises(ValidationError, match="delta"):
        Contingency(epsilon=1, delta=delta, domains={})


@pytest.mark.parametrize(
    ("columns", "workload", "concentrated"),
    [(5, (), False), (5, [["c0", "c1"]], False), (7, (), True), (5, [["c0", "c1", "c2"]] * 6, False)],
)
@each("epsilon", ["1/10", "1"])
def test_few_tables_take_the_pure_noise_which_is_smaller(
    columns: int, workload: Any, concentrated: bool, epsilon: str
) -> None:
    """Five columns make 16 tables, seven 29; ln(1/delta) is 20.7."""
    domains = {f"c{k}": "data" for k in range(columns)}
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": "1e-9", "domains": domains, "workload": workload}
    params = Contingency.model_validate(asked)
    assert find_law(params).concentrated == concentrated
    assert RecordBudget().delta(params) == (params.delta if concentrated else 0)
    assert (RecordBudget().rho(params) is not None) == concentrated
    assert find_law(Contingency.model_validate(asked | {"noise": "gaussian"})).concentrated
    assert not find_law(Contingency.model_validate(asked | {"noise": "laplace"})).concentrated
    each_of = Fraction(1, params.most_tables)
    rho = concentrated_rho(params.epsilon, params.delta)
    pure, gaussian = PURE.mean_noise(params.epsilon * each_of), CONCENTRATED.mean_noise(rho * each_of)
    assert concentrated == (gaussian < pure)


def test_gaussian_noise_needs_a_delta() -> None:
    with pytest.raises(ValidationError, match="needs a delta"):
        Contingency.model_validate({"epsilon": 1, "domains": {"sex": "data"}, "noise": "gaussian"})


def test_diffpart_has_no_delta() -> None:
    with pytest.raises(ValidationError, match="delta"):
        Contingency(epsilon=1, delta="1e-9", algorithm="diffpart", domains={})
    with pytest.raises(ValidationError, match="purely private"):
        SetValued(epsilon=1, delta="1e-9", algorithm="diffpart", universe="data")


# Noise ----------------------------------------------------------------------------------------------------------------


def gaussian(sigma: float, reach: int) -> NDArray[np.float64]:
    """Pr[noise = x] for |x| <= reach."""
    every = np.arange(-max(reach, math.ceil(12 * sigma) + 2), max(reach, math.ceil(12 * sigma) + 2) + 1)
    weights = np.exp(-(every**2) / (2 * sigma**2))
    return np.asarray((weights / weights.sum())[np.abs(every) <= reach])


@pytest.mark.slow
@each("make", [lambda: OpenDPNoise(CONCENTRATED), lambda: SeededGaussian(np.random.default_rng(3))])
@each("rho", [Fraction(1, 50), Fraction(1, 2), Fraction(8)])
def test_noise_is_discrete_gaussian(make: Any, rho: Fraction) -> None:
    drawn = make().add_noise(np.full(20_000, 7, dtype=np.int64), rho) - 7
    inside = drawn[np.abs(drawn) <= 20]
    chances = gaussian(CONCENTRATED.scale(rho), 20)
    chi_square([*np.bincount(inside + 20, minlength=41).tolist(), len(drawn) - len(inside)], chances)
    every = np.arange(-200, 201)
    assert CONCENTRATED.variance(rho) == pytest.approx(float((every**2) @ gaussian(CONCENTRATED.scale(rho), 200)))


@each("rho", [Fraction(1, 7), Fraction(3, 1000), Fraction(22, 7)])
def test_scales_never_spend_more(rho: Fraction) -> None:
    sigma = Fraction(CONCENTRATED.scale(rho))
    assert sigma**2 * 2 * rho >= 1
    assert float(sigma) * (1 - 1e-15) <= math.sqrt(1 / (2 * rho))
    for monotonic, times in ((True, 4), (False, 1)):
        spent = noisy_max(CONCENTRATED.scale(times * rho), monotonic=monotonic, gumbel=True).map(1)
        assert spent == pytest.approx(float(rho), rel=1e-12)


# Exact divergences ----------------------------------------------------------------------------------------------------


@cache
def clamped_law(count: int, rho: Fraction, most: int) -> list[float]:
    """The chances of 0, 1, .., most for a count with noise."""
    chances = gaussian(math.sqrt(1 / (2 * rho)), 60)
    values = np.clip(count + np.arange(-60, 61), 0, most)
    return np.bincount(values, weights=chances / chances.sum(), minlength=most + 1).tolist()


class Gaussian(Enumeration):
    """Gaussian noise that is clamped to [0, most], and choices by the exponential mechanism, through all values."""

    careless = 1

    def _law(self, count: int, rho: Fraction) -> list[float]:
        return clamped_law(count, rho * self.careless, self.most)

    def choose_best(self, scores: Any, rho: Fraction, *, monotonic: bool) -> int:
        epsilon = math.sqrt(8 * rho * self.careless) / (1 if monotonic else 2)
        weights = np.exp(epsilon * (scores - scores.max()))
        return self._draw((weights / weights.sum()).tolist())


class Careless(Gaussian):
    careless = 9


def law_of(
    records: Sequence[tuple[int, ...]], noise: Gaussian, sizes: tuple[int, ...], **asked: Any
) -> dict[Any, float]:
    """Exact distribution of all that is published."""
    of, found = rule(sizes, delta="1e-5", noise="gaussian", **asked), defaultdict[Any, float](float)
    codes = np.array(records, dtype=np.int64).reshape(-1, 3)[:, : len(sizes)]
    for tables, chance in noise.runs(lambda: measure_marginals(codes, np.ones(len(codes), dtype=np.int64), of, noise)):
        found[tuple((one.columns, tuple(one.counts.reshape(-1).tolist())) for one in tables)] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


def divergence(one: dict[Any, float], other: dict[Any, float], alpha: float) -> float:
    """The Renyi divergence of order alpha."""
    assert one.keys() == other.keys()
    terms = [alpha * math.log(one[o]) + (1 - alpha) * math.log(other[o]) for o in one]
    return float(np.logaddexp.reduce(terms)) / (alpha - 1)


def worst_part_of_rho(noise: type[Gaussian], pairs: str, sizes: tuple[int, ...]) -> float:
    """The largest divergence of neighbours beside alpha rho, which zero-concentrated privacy promises."""
    epsilon, delta = Fraction(4), Fraction(1, 10**5)
    rho, worst = float(concentrated_rho(epsilon, delta)), 0.0
    for one in ((), (RECORDS[0], RECORDS[3])):
        law = law_of(one, noise(1), sizes, epsilon="4", pairs=pairs)
        for added in (RECORDS[0], RECORDS[1]):
            more = law_of((*one, added), noise(1), sizes, epsilon="4", pairs=pairs)
            for first, second in ((law, more), (more, law)):
                worst = max(worst, *(divergence(first, second, alpha) / (alpha * rho) for alpha in (1.01, 2, 8, 30)))
                beyond = sum(max(first[o] - math.exp(epsilon) * second[o], 0) for o in first)
                assert noise is not Gaussian or beyond <= delta
    return worst


@pytest.mark.parametrize(
    ("pairs", "sizes"),
    [
        pytest.param("all", (2, 2), marks=pytest.mark.slow),
        pytest.param("all", SIZES, marks=pytest.mark.soak(part="outputs")),
        pytest.param("chosen", SIZES, marks=pytest.mark.soak(part="outputs")),
    ],
)
def test_no_divergence_exceeds_rho(pairs: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Clamped noise is a post-processing; choices depend on the tables before them, of two units in all."""
    monkeypatch.setattr(plan, "count_rounds", lambda *_: 2)
    monkeypatch.setattr(noisy_tables, "FALLING", (0,))
    fit_models_once(monkeypatch)
    assert 0.3 < worst_part_of_rho(Gaussian, pairs, sizes) <= 1 + 1e-9


@pytest.mark.slow
@each("person", [(0, 0), (0, 3)])
def test_persons_of_two_records_share_rho(person: tuple[int, int]) -> None:
    epsilon, delta, some = Fraction(4), Fraction(1, 10**5), {"epsilon": "4", "pairs": "all", "max_records": 2}
    rho, sizes = float(concentrated_rho(epsilon, delta)), (2, 2)
    before = law_of((RECORDS[1],), Gaussian(1), sizes, **some)
    after = law_of((RECORDS[1], *(RECORDS[number] for number in person)), Gaussian(1), sizes, **some)
    for one, other in ((before, after), (after, before)):
        parts = [divergence(one, other, alpha) / (alpha * rho) for alpha in (1.01, 2, 8, 30)]
        assert 0.3 < max(parts) <= 1 + 1e-9


@pytest.mark.slow
def test_the_enumeration_would_find_a_leak() -> None:
    assert worst_part_of_rho(Careless, "all", (2, 2)) > 1


# Releases -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of marginals with a delta."""
    folder = tmp_path_factory.mktemp("people")
    write(folder / "people.parquet", census.PEOPLE)
    succeeded("publish", census.spec(folder, WITH_DELTA), "--seed", 5)
    return folder


@pytest.mark.slow
def test_a_release_states_and_spends_its_rho(people: Path) -> None:
    release = people / "people.duckdb"
    shown = succeeded("verify", release, "--source", people / "spec.toml", "--json").json
    rho = concentrated_rho(Fraction(2), BILLIONTH)
    assert [one["found"] for one in shown["bounds"]][:1] == ["2"]
    spent = [Fraction(one) for (one,) in rows(release, "SELECT budget FROM privsql_cliques")]
    assert sum(spent) == rho
    assert manifest(release)["parameters"]["delta"] == "0.000000001"
    shown = succeeded("verify", release, "--verbose").out
    assert "delta" in shown
    (row,) = succeeded(
        "query", release, "SELECT COUNT(*) FROM people WHERE sex = 'F'", "--confidence", 0.9999, "--json"
    ).json["rows"]
    assert row["low"] <= 4000 <= row["high"]


@pytest.mark.slow
@each(
    ("words", "change"),
    [
        ("spend", stating("parameters", lambda asked: asked | {"delta": "1e-10"})),
        ("states no valid", stating("parameters", lambda asked: asked | {"delta": "0"})),
        ("spend", stating("parameters", lambda asked: asked | {"noise": "laplace"})),
        ("scales", "UPDATE privsql_cliques SET scale = scale / 2 WHERE clique = 2"),
    ],
)
def test_damage_is_found(people: Path, tmp_path: Path, words: str, change: Any) -> None:
    done = not_verified(changed(people / "people.duckdb", tmp_path, change))
    assert words in done.out + done.err


@pytest.mark.soak(part="cases")
@each("algorithm", ["views", "basic"])
def test_item_sets_with_a_delta(tmp_path: Path, algorithm: str) -> None:
    write(tmp_path / "shop.parquet", shop.LISTS)
    asked = f'{shop.VIEWS}\ndelta = "1e-9"\nalgorithm = "{algorithm}"'
    spec = shop.spec(tmp_path, mechanism=asked)
    succeeded("publish", spec, "--seed", 3)
    assert succeeded("verify", tmp_path / "shop.duckdb", "--source", spec, "--json").json["ok"]
    assert run("attack", tmp_path / "shop.duckdb").code == 0
    query = "SELECT COUNT(*) FROM shop WHERE list_contains(goods, 'ale')"
    (row,) = succeeded("query", tmp_path / "shop.duckdb", query, "--confidence", "0.999", "--json").json["rows"]
    assert row["low"] <= 2900 <= row["high"]


@pytest.mark.slow
def test_a_ledger_composes_rhos_and_states_epsilon_and_delta(people: Path, tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", f"SELECT *, row_number() OVER () AS nr FROM ({census.PEOPLE})")
    path = census.spec(tmp_path, WITH_DELTA)
    text = path.read_text(encoding="utf-8").replace("[source]\n", '[source]\nid = "nr"\n')
    path.write_text(f"{text}\n[ledger]\nepsilon = 3\n", encoding="utf-8")
    for _ in range(2):
        succeeded("publish", path, "--replace", "--seed", 5)
    listed = succeeded("ledger", path, "--json").json
    total = concentrated_epsilon(2 * concentrated_rho(Fraction(2), BILLIONTH), BILLIONTH)
    assert 2.8 < float(total) < 3
    assert Fraction(listed["spent"]) == total
    assert [one["composes"].split(";")[1] for one in listed["releases"]] == [
        " all together 2 at delta 1e-09", f" all together {float(total)} at delta 1e-09",
    ]  # fmt: skip
    refused(run("publish", path, "--replace", "--seed", 5), 3, "is left of the budget 3")


@pytest.mark.parametrize("law", [PURE, CONCENTRATED])
def test_a_choice_by_scores_that_may_fall_has_twice_the_scale(monkeypatch: pytest.MonkeyPatch, law: NoiseLaw) -> None:
    """By permute-and-flip 1/epsilon or 2/epsilon, by Gumbel noise the same of epsilon = sqrt(8 rho)."""
    widths: list[float] = []

    def note_width(width: float, **_: object) -> Any:
        widths.append(width)
        return lambda scores: len(scores) - 1

    monkeypatch.setattr(dp_random, "noisy_max", note_width)
    budget = Fraction(1, 2)
    for monotonic in (True, False):
        dp_random.OpenDPNoise(law).choose_best(np.array([1, 2]), budget, monotonic=monotonic)
    epsilon = math.sqrt(8 * budget) if law.concentrated else float(budget)
    assert widths == pytest.approx([1 / epsilon, 2 / epsilon])
