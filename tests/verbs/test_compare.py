"""``privsql compare``: several specifications of one table with one workload; and Anatomy that leaves records out."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from privsql import UsageError
from privsql.verbs.evaluate import combine_grid
from support.commands import fetched, refused, rows, run, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

SKEWED = """
SELECT CAST(i % 40 AS INTEGER) AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
  CASE WHEN i % 10 < 4 THEN 'flu' ELSE 'd' || CAST((i * 7 + i // 10) % 9 AS VARCHAR) END AS disease
FROM range(4000) t(i)
"""
COLUMNS = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
MECHANISMS = {
    "anatomy": 'algorithm = "anatomy"\nthreshold = "1/5"\nexcess = "suppress"\nabsence = "unobservable"',
    "pp": 'kind = "randomize"\nrho1 = "1/10"\nrho2 = "1/5"',
    "up": 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/10"\nrho2 = "1/5"',
}


@pytest.fixture
def skewed(tmp_path: Path) -> Path:
    """40 % of 4,000 records have the flu; a specification for every mechanism."""
    write(tmp_path / "skewed.parquet", SKEWED)
    for name, mechanism in MECHANISMS.items():
        source = 'file = "skewed.parquet"'
        release = f'name = "{name}"\nto = "{name}.duckdb"'
        specification(
            tmp_path, source=source, columns=COLUMNS, release=release, mechanism=mechanism, name=f"{name}.toml"
        )
    return tmp_path


@pytest.mark.slow
def test_compare_measures_every_specification_with_the_same_queries(skewed: Path) -> None:
    specs = [skewed / f"{name}.toml" for name in MECHANISMS]
    found = succeeded("evaluate", *specs, "--queries", "80", "--json").json["specs"]
    assert [one["spec"] for one in found] == list(MECHANISMS)
    assert [one["promise"] for one in found] == [
        "<= 0.2, of those who are there",
        "<= 1/5 if f <= 1/10",
        "<= 1/5 if f <= 1/10",
    ]
    scores = [score for one in found for score in one["evaluation"].values() if isinstance(score, dict)]
    assert {score["queries"] for score in scores if "queries" in score} == {80}
    bands = {str([(b["low"], b["queries"]) for b in one["evaluation"]["baseline"]["bands"]]) for one in found}
    assert len(bands) == 1
    assert not list(skewed.glob("*.duckdb"))


@pytest.mark.slow
def test_compare_prints_one_table_and_draws_a_picture(skewed: Path) -> None:
    done = succeeded(
        "evaluate", skewed / "anatomy.toml", skewed / "pp.toml", "--queries", "40", "--plot", skewed / "c.png"
    )
    for word in ("anatomy", "pp", "retained", "published", "covered", "if f <= 1/10"):
        assert word in done.out
    assert (skewed / "c.png").stat().st_size > 10_000


@pytest.mark.slow
def test_compare_repeats_itself(skewed: Path) -> None:
    asked = ["evaluate", skewed / "pp.toml", "--queries", "40", "--json", "--seed", "3"]
    first, second = (succeeded(*asked).json["specs"][0]["evaluation"] for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_what_can_not_be_compared_is_refused(skewed: Path) -> None:
    other = specification(
        skewed,
        source='file = "skewed.parquet"',
        columns='quasi_identifiers = ["age"]\nsensitive = "disease"',
        mechanism=MECHANISMS["pp"],
        name="other.toml",
    )
    refused(run("evaluate", skewed / "pp.toml", other), 2, "other", "[columns]", "one table")
    refused(run("evaluate", skewed / "pp.toml", "--plot", skewed / "c.txt", "--queries", "4"), 2, ".png or .svg")
    narrow = (
        (skewed / "anatomy.toml")
        .read_text()
        .replace('excess = "suppress"', "")
        .replace('absence = "unobservable"', "")
        .replace("anatomy.duckdb", "n.duckdb")
    )
    (skewed / "narrow.toml").write_text(narrow)
    refused(run("evaluate", skewed / "pp.toml", skewed / "narrow.toml", "--queries", "4"), 3, "narrow:", "flu")


# Anatomy by suppression ---


@pytest.mark.slow
def test_too_frequent_values_are_left_out_and_counted(skewed: Path) -> None:
    done = succeeded("publish", skewed / "anatomy.toml", "--seed", "1", "--json", "--allow-useless").json
    counts = dict(rows(skewed / "anatomy.duckdb", 'SELECT disease, sum("count") FROM st GROUP BY disease'))
    published = sum(counts.values())
    assert done["published"] == published
    assert done["suppressed"] == done["left_out"] == 4000 - published
    assert counts["flu"] * 5 <= published < (counts["flu"] + 1) * 5 + 5
    assert {disease: n for disease, n in counts.items() if disease != "flu"} == dict(
        fetched(f"SELECT disease, count(*) FROM ({SKEWED}) WHERE disease <> 'flu' GROUP BY disease")
    )
    succeeded("verify", skewed / "anatomy.duckdb")
    succeeded("verify", skewed / "anatomy.duckdb", "--source", skewed / "anatomy.toml")
    plan = succeeded("plan", skewed / "anatomy.toml", "--json").json
    assert (plan["published"], plan["suppressed"]) == (done["published"], done["suppressed"])


@pytest.mark.slow
def test_another_key_leaves_out_other_records(skewed: Path) -> None:
    ages = []
    for seed in (1, 2, 1):
        succeeded("publish", skewed / "anatomy.toml", "--seed", seed, "--replace", "--nobody-has-it", "--allow-useless")
        ages.append(rows(skewed / "anatomy.duckdb", "SELECT age, sex, count(*) FROM qit GROUP BY ALL ORDER BY ALL"))
    assert ages[0] == ages[2] != ages[1]


@pytest.mark.slow
def test_an_invented_record_is_found_against_the_source(skewed: Path) -> None:
    succeeded("publish", skewed / "anatomy.toml", "--seed", "1", "--allow-useless")
    with duckdb.connect(str(skewed / "anatomy.duckdb")) as db:
        db.execute("UPDATE qit SET age = 77 WHERE rowid = (SELECT max(rowid) FROM qit)")
    done = run("verify", skewed / "anatomy.duckdb", "--source", skewed / "anatomy.toml", "--json")
    assert done.code == 1
    assert "quasi-identifiers are the source's" in {c["name"] for c in done.json["checks"] if not c["ok"]}


def test_suppression_needs_a_constant_threshold(skewed: Path) -> None:
    spec = skewed / "anatomy.toml"
    spec.write_text(spec.read_text().replace('"1/5"', '"2*f"'))
    refused(run("publish", spec), 2, "excess", "constant threshold")


@pytest.mark.slow
def test_compare_is_a_function_of_the_library(skewed: Path) -> None:
    given = [(name, privsql.load(skewed / f"{name}.toml")) for name in ("up", "pp")]
    found = privsql.evaluate(given, workload=privsql.Workload(queries=40), seed=1)
    errors = {one.name: one.evaluated.scores["baseline"].summary()["mean_relative_error"] for one in found}
    assert errors["pp"] <= errors["up"] * 1.5


# A grid, what is finished, points, and filters ---

OPTIMAL = 'algorithm = "optimal"\nthreshold = "1/2"'


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A specification over 300 of the skewed records: of 40 % of them a value is had, so 1/4 can't be met."""
    write(tmp_path / "small.parquet", f"SELECT * FROM ({SKEWED}) LIMIT 300")
    specification(
        tmp_path, source='file = "small.parquet"', columns=COLUMNS, release='name = "small"', mechanism=OPTIMAL
    )
    return tmp_path / "spec.toml"


def grid_of(spec: Path, *more: object) -> list[dict[str, Any]]:
    asked = ["--grid", "mechanism.threshold=1/2,1/4", "--grid", "algorithm=optimal,anatomy", "--queries", "4"]
    return list(succeeded("evaluate", spec, *asked, "--json", *more).json["specs"])


@pytest.mark.slow
def test_a_grid_has_a_row_for_every_combination_and_says_which_can_not_be(small: Path) -> None:
    rows_of = grid_of(small)
    assert [one["spec"] for one in rows_of] == [
        f"spec, threshold={threshold}, algorithm={name}"
        for threshold in ("1/2", "1/4")
        for name in ("optimal", "anatomy")
    ]
    assert [one["grid"]["algorithm"] for one in rows_of] == ["optimal", "anatomy"] * 2
    assert [one["algorithm"] for one in rows_of[:2]] == ["optimal", "anatomy"]
    assert {one["promise"] for one in rows_of[:2]} == {"<= 0.5"}
    assert all("flu" in one["refused"] and one["exit_code"] == 3 and "evaluation" not in one for one in rows_of[2:])
    shown = succeeded("evaluate", small, "--grid", "threshold=1/2,1/4", "--queries", "4").out
    assert "threshold=1/4: " in shown
    nothing = run("evaluate", small, "--grid", "threshold=1/4", "--queries", "4", "--json")
    assert (nothing.code, len(nothing.json["specs"])) == (3, 1)
    with pytest.raises(privsql.InfeasibleError, match=r"^spec: .*flu"):
        privsql.evaluate([("spec", privsql.load(small).model_copy(update={"mechanism": _quarter(small)}))], queries=4)


def _quarter(spec: Path) -> Any:
    return privsql.build(
        {
            "source": {"file": str(spec.with_name("small.parquet"))},
            "columns": {"quasi_identifiers": ["age"], "sensitive": "disease"},
            "mechanism": {"threshold": "1/4"},
        }
    ).mechanism


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("treshold=1/4", ("treshold", "threshold")),
        ("threshold", ("key=value",)),
        ("threshold=", ("no value",)),
        ("algorithm.name=x", ("algorithm is not a table",)),
    ],
)
def test_a_grid_that_is_not_understood_is_refused(small: Path, given: str, words: tuple[str, ...]) -> None:
    done = run("evaluate", small, "--grid", given, "--queries", "4", "--json")
    if "." in given:  # of a specification that has the key: a combination that there can't be
        assert (done.code, words[0] in done.json["specs"][0]["refused"]) == (3, True)
    else:
        assert done.code == 2
        assert all(word in done.err for word in words)
    with pytest.raises(UsageError, match="twice"):
        combine_grid([("a", privsql.load(small))], ["threshold=1/2", "mechanism.threshold=1/4"])


def test_a_grid_in_python_takes_numbers_and_only_the_keys_that_a_mechanism_has(small: Path) -> None:
    spec = privsql.load(small)
    other = privsql.build(
        {
            "source": {"file": str(small.with_name("small.parquet"))},
            "columns": {"quasi_identifiers": ["age", "sex"], "sensitive": "disease"},
            "mechanism": {"kind": "permute", "k": 2, "e": 5},
        }
    )
    found = combine_grid([("a", spec), ("b", other)], {"threshold": [0.5, Fraction(1, 3)], "k": [3, 4]})
    assert [one.name for one in found] == ["a, threshold=0.5", "a, threshold=1/3", "b, k=3", "b, k=4"]
    assert [one.spec.mechanism.model_dump()["k"] for one in found[2:]] == [3, 4]
    assert found[1].spec.mechanism.model_dump()["threshold"] != found[0].spec.mechanism.model_dump()["threshold"]
    assert found[0].spec.mechanism == spec.mechanism  # 0.5 is 1/2


class Steps:
    """Keeps the titles of what is reported."""

    watched = False

    def __init__(self) -> None:
        self.titles: list[str] = []

    def start_step(self, title: str) -> None:
        self.titles.append(title)

    def update(self, percent: float) -> None:
        assert 0 <= percent <= 100

    def update_statement(self, percent: float) -> None:
        assert percent <= 100


@pytest.mark.slow
def test_progress_names_each_combination_and_its_number(small: Path) -> None:
    seen = Steps()
    found = privsql.evaluate(
        [small], grid={"threshold": ["1/2", "1/3"]}, queries=4, options=privsql.Options(report=seen)
    )
    assert {title.partition(": ")[0] for title in seen.titles} == {"1/2 spec, threshold=1/2", "2/2 spec, threshold=1/3"}
    assert [one.name for one in found] == ["spec, threshold=1/2"]
    assert [one.name for one in found.refused] == ["spec, threshold=1/3"]


@pytest.mark.slow
def test_points_are_every_question_with_its_truth_and_both_answers(small: Path) -> None:
    (row,) = succeeded("evaluate", small, "--queries", "8", "--json", "--points").json["specs"]
    points = row["points"]
    assert len(points) == row["evaluation"]["baseline"]["queries"] == 8
    with duckdb.connect() as db:
        db.execute(f"CREATE VIEW small AS SELECT * FROM '{small.with_name('small.parquet')}'")
        for point in points:
            counts = {row[0]: row[-1] for row in db.execute(point["question"]).fetchall()}
            assert counts.get(point["group"][0], 0) == point["truth"]
            assert set(point) == {"question", "group", "truth", "baseline", "linear"}
            for answer in (point["baseline"], point["linear"]):
                assert answer["low"] <= answer["estimate"] <= answer["high"]
    errors = [abs(one["baseline"]["estimate"] - one["truth"]) / one["truth"] for one in points if one["truth"]]
    assert row["evaluation"]["baseline"]["mean_relative_error"] == pytest.approx(sum(errors) / len(errors))
    refused(run("evaluate", small, "--points"), 2, "--points", "--json")


@pytest.mark.slow
def test_only_questions_with_such_true_answers_count(small: Path) -> None:
    every = privsql.evaluate([small], queries=40)[0].evaluated
    some = privsql.evaluate([small], queries=40, true_answers="5:20")[0].evaluated
    wanted = [point for point in every.points() if 5 <= point["truth"] <= 20]
    assert 0 < len(wanted) < len(every.points())
    assert some.points() == wanted
    assert (
        privsql.evaluate([small], queries=8, true_answers=(None, -1))[0].evaluated.as_json()["baseline"]["queries"] == 0
    )
    refused(run("evaluate", small, "--true-answers", "20:5"), 2, "true_answers", "above")
    refused(run("evaluate", small, "--true-answers", "many"), 2, "100:5000")
