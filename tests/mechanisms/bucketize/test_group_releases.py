"""Releases under bounds on columns and groups: what commands say, and what ``verify`` and ``attack`` find."""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from privsql.mechanisms.bucketize import publish
from support.commands import PEOPLE, manifest, refused, rows, run, specification, succeeded, write
from support.loops import rest_slow
from support.tampering import failed, rewrite, stating, with_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[duckdb.DuckDBPyConnection], None]

BOUNDS_HOLD = "every bucket obeys every bound on groups"
BOUNDS_ASKED = "bounds on groups follow from what was asked"
BOUNDS_SPECIFIED = "bounds on groups are those of the specification"
TOLD = "stated facts follow from the tables"

PATIENTS = """
SELECT 20 + i % 47 AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
  CASE i % 12 WHEN 0 THEN 'lung' WHEN 1 THEN 'skin' WHEN 2 THEN 'colon' WHEN 3 THEN 'flu' WHEN 4 THEN 'flu'
    WHEN 5 THEN 'cold' WHEN 6 THEN 'cold' WHEN 7 THEN 'gout' WHEN 8 THEN 'gout' WHEN 9 THEN 'ulcer' WHEN 10 THEN 'ulcer'
    END AS disease,
  1 + (i * 7 + i // 12 * 5) % 4 AS stage
FROM range(480) t(i)
"""
COLUMNS = """quasi_identifiers = ["age", "sex"]
sensitive = ["disease", "stage"]
nulls = { disease = "value" }"""
CANCER = """
[mechanism.groups.cancer]
column = "disease"
threshold = "1.2*f"
values = [["lung", "skin"], "colon"]
"""
DISEASE = """
[mechanism.components]
disease = "1/4"
"""
BOTH = """
[mechanism.components]
disease = { default = "1/3", HIV = 0.1 }
stage = "f + 1/5"
""".replace(", HIV = 0.1", "")


def asking(folder: Path, bounds: str, mechanism: str = 'algorithm = "two-size"\nthreshold = "1/4"') -> Path:
    """The specification of a hospital's release under bounds."""
    if not (folder / "people.parquet").exists():
        write(folder / "people.parquet", PATIENTS)
    return specification(folder, columns=COLUMNS, mechanism=f"allow_certain = true\n{mechanism}\n{bounds}")


def held(release: Path) -> dict[int, dict[tuple[str, int], int]]:
    """The listed values of every bucket."""
    found: dict[int, dict[tuple[str, int], int]] = defaultdict(dict)
    for bid, disease, stage, count in rows(release, 'SELECT bid, disease, stage, "count" FROM st'):
        found[bid][disease or "NULL", stage] = count
    return found


def highest(release: Path, member: Callable[[str, int], bool]) -> Fraction:
    """The largest share of a bucket that such values have."""
    return max(
        Fraction(sum(n for value, n in of.items() if member(*value)), sum(of.values())) for of in held(release).values()
    )


SETS: dict[str, dict[str, tuple[Callable[[str, int], bool], Fraction]]] = {
    CANCER: {
        "cancer": (lambda d, _: d in ("lung", "skin", "colon"), Fraction(12, 10) * Fraction(3, 12)),
        "cancer.1": (lambda d, _: d in ("lung", "skin"), Fraction(12, 10) * Fraction(2, 12)),
    },
    DISEASE: {
        f"disease = {name}": (lambda d, _, name=name: d == name, Fraction(1, 4))
        for name in ("NULL", "cold", "colon", "flu", "gout", "lung", "skin", "ulcer")
    },
    BOTH: {
        **{
            f"disease = {name}": (lambda d, _, name=name: d == name, Fraction(1, 3))
            for name in ("NULL", "cold", "colon", "flu", "gout", "lung", "skin", "ulcer")
        },
        **{f"stage = {k}": (lambda _, s, k=k: s == k, Fraction(1, 4) + Fraction(1, 5)) for k in range(1, 5)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("bounds", rest_slow(SETS), ids=["groups", "one column", "two columns"])
def test_bounds_are_kept_told_and_verified(tmp_path: Path, bounds: str) -> None:
    """Against the published tables; a plan says no less than what a release has, and exactly that here."""
    spec, release = asking(tmp_path, bounds), tmp_path / "ill.duckdb"
    planned, published = (succeeded(verb, spec, "--json").json for verb in ("plan", "publish"))
    verified = succeeded("verify", release, "--source", spec, "--json").json
    expected = {name: highest(release, member) for name, (member, _) in SETS[bounds].items()}
    for shown in (planned, published, verified, manifest(release)["facts"]):
        assert {k: Fraction(v) for k, v in shown["highest_belief"]["bounded"].items()} == expected
    for shown in (planned, published, manifest(release)["facts"]):
        stated = {one["name"]: Fraction(one["threshold"]) for one in shown["bounds"]}
        assert stated == {name: threshold for name, (_, threshold) in SETS[bounds].items()}
    for name, (_, threshold) in SETS[bounds].items():
        assert expected[name] <= threshold
    listed = [one for one in verified["bounds"] if one["value"] in expected]
    assert {one["value"]: Fraction(one["found"]) for one in listed} == expected
    assert {one["value"]: Fraction(one["bound"]) for one in listed} == stated
    names = {check["name"] for check in verified["checks"]}
    assert {BOUNDS_HOLD, BOUNDS_ASKED, BOUNDS_SPECIFIED} <= names
    alone = succeeded("attack", release, "--json").json
    assert {
        one["adversary"]: one["exceeded"]
        for one in alone["adversaries"]
        if one["adversary"] in ("linkage", "homogeneity")
    } == {
        "linkage": False,
        "homogeneity": False,
    }
    for printed in (succeeded("verify", release, "--verbose"), succeeded("plan", spec)):
        assert "at most" in printed.out
        assert "bounded" in printed.out


@pytest.mark.slow
def test_without_bounds_nothing_is_told_of_any(tmp_path: Path) -> None:
    """And a group makes the difference: without it a bucket holds more cancers than the bound."""
    spec = asking(tmp_path, "")
    published = succeeded("publish", spec, "--seed", 1, "--json").json
    assert "bounds" not in published
    assert "bounded" not in published["highest_belief"]
    names = {check["name"] for check in succeeded("verify", tmp_path / "ill.duckdb", "--json").json["checks"]}
    assert not names & {BOUNDS_HOLD, BOUNDS_ASKED}
    member, threshold = SETS[CANCER]["cancer"]
    assert highest(tmp_path / "ill.duckdb", member) > threshold


# Tampering


def crowd(db: duckdb.DuckDBPyConnection) -> None:
    """Swap values of two buckets of one size, so that one of them holds cancers only; sums stay as they are."""
    sizes = db.execute('SELECT bid, sum("count") FROM st GROUP BY bid ORDER BY bid').fetchall()
    size = sizes[0][1]
    bids = [bid for bid, own in sizes if own == size]
    db.execute(f"CREATE TABLE moved AS SELECT * FROM st WHERE bid IN ({', '.join(map(str, bids))})")
    slots = db.execute(
        'SELECT disease, stage FROM (SELECT *, unnest(range("count")) FROM moved) '
        "ORDER BY disease NOT IN ('lung', 'skin', 'colon') OR disease IS NULL, stage, disease"
    ).fetchall()
    db.execute(f"DELETE FROM st WHERE bid IN ({', '.join(map(str, bids))})")
    rows_ = [(*value, bids[i // size]) for i, value in enumerate(slots)]
    db.executemany('INSERT INTO st (disease, stage, bid, "count") VALUES (?, ?, ?, 1)', rows_)
    db.execute(
        'CREATE TABLE st2 AS SELECT disease, stage, bid, sum("count")::BIGINT AS "count" FROM st GROUP BY ALL '
        "ORDER BY bid, disease, stage"
    )
    db.execute("DELETE FROM st")
    db.execute("INSERT INTO st BY NAME FROM st2")
    db.execute("DROP TABLE st2; DROP TABLE moved")


def bounds_with(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Change:
    return stating("facts", lambda facts: facts | {"bounds": change(facts["bounds"])})


def without_bounds(db: duckdb.DuckDBPyConnection) -> None:
    """As if no group had been asked for."""
    stating("parameters", lambda asked: asked | {"groups": {}})(db)
    bare = {"bounds": []}
    stating("facts", lambda facts: facts | bare)(db)
    stating("facts", lambda facts: facts | {"highest_belief": dict(list(facts["highest_belief"].items())[:2])})(db)


def wider(db: duckdb.DuckDBPyConnection) -> None:
    """A looser group, wherever it is stated."""
    group = {"column": "disease", "threshold": "1.3*f", "values": [["lung", "skin"], "colon"]}
    stating("parameters", lambda asked: asked | {"groups": {"cancer": group}})(db)
    looser = [str(Fraction(13, 10) * Fraction(k, 12)) for k in (3, 2)]
    bounds_with(lambda of: [one | {"threshold": t} for one, t in zip(of, looser, strict=True)])(db)


FOUND: dict[str, tuple[Change, set[str]]] = {
    "a looser bound": (bounds_with(lambda of: [one | {"threshold": "1/2"} for one in of]), {BOUNDS_ASKED}),
    "a bound above certainty": (bounds_with(lambda of: [one | {"threshold": "3/2"} for one in of]), {BOUNDS_ASKED}),
    "a tighter bound": (
        bounds_with(lambda of: [one | {"threshold": "1/10"} for one in of]),
        {BOUNDS_HOLD, BOUNDS_ASKED},
    ),
    "a bound less": (bounds_with(lambda of: of[:1]), {BOUNDS_ASKED}),
    "no bound": (with_facts(bounds=[]), {BOUNDS_ASKED}),
    "a bound more": (bounds_with(lambda of: [*of, of[0] | {"name": "more"}]), {BOUNDS_ASKED}),
    "another name": (bounds_with(lambda of: [of[0] | {"name": "flu"}, *of[1:]]), {BOUNDS_ASKED}),
    "a value less": (bounds_with(lambda of: [of[0] | {"codes": of[0]["codes"][1:]}, *of[1:]]), {BOUNDS_ASKED}),
    "values that are not there": (bounds_with(lambda of: [of[0] | {"codes": [10**6]}, *of[1:]]), {BOUNDS_ASKED}),
    "no group asked for": (stating("parameters", lambda asked: asked | {"groups": {}}), {BOUNDS_ASKED}),
    "a looser group asked for": (
        stating(
            "parameters", lambda asked: asked | {"groups": {"cancer": asked["groups"]["cancer"] | {"threshold": "1"}}}
        ),
        {BOUNDS_ASKED},
    ),
    "a group of nobody": (
        stating("parameters", lambda asked: asked | {"groups": {"x": {"threshold": "1/2", "values": ["none"]}}}),
        {BOUNDS_ASKED},
    ),
    "a column that is not there": (
        stating("parameters", lambda asked: asked | {"components": {"none": {"default": "1/2", "values": {}}}}),
        {BOUNDS_ASKED},
    ),
    "a lower belief": (
        stating(
            "facts",
            lambda facts: facts | {"highest_belief": facts["highest_belief"] | {"bounded": {"cancer": "1/100"}}},
        ),
        {TOLD},
    ),
    "a bucket of cancers": (crowd, {BOUNDS_HOLD}),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A release under a taxonomy of cancers, and its specification."""
    folder = tmp_path_factory.mktemp("cancers")
    spec = asking(folder, CANCER)
    succeeded("publish", spec)
    return folder / "ill.duckdb", spec


def changed(published: tuple[Path, Path], folder: Path, change: Change) -> Path:
    """A copy of the release after a change."""
    release = folder / "changed.duckdb"
    release.write_bytes(published[0].read_bytes())
    with duckdb.connect(str(release)) as db:
        change(db)
    rewrite(release)
    return release


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(FOUND))
def test_verify_finds_what_was_changed(published: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    change, checks = FOUND[name]
    release = changed(published, tmp_path, change)
    found = set(failed(run("verify", release, "--json")))
    assert found & {BOUNDS_HOLD, BOUNDS_ASKED, TOLD} == checks


@pytest.mark.slow
@pytest.mark.parametrize("change", rest_slow([without_bounds, wider]))
def test_a_promise_that_was_taken_back_everywhere_is_found_beside_the_source(
    published: tuple[Path, Path], tmp_path: Path, change: Change
) -> None:
    """The release alone then promises no more than it states, and that holds."""
    release = changed(published, tmp_path, change)
    succeeded("verify", release)
    found = set(failed(run("verify", release, "--source", published[1], "--json")))
    assert found == {BOUNDS_SPECIFIED, "parameters are those of the specification"}


@pytest.mark.slow
def test_attack_counts_a_broken_bound_as_a_broken_promise(published: tuple[Path, Path], tmp_path: Path) -> None:
    """Of values alone each bucket of cancers is within the thresholds."""

    def loosened(db: duckdb.DuckDBPyConnection) -> None:
        db.execute("UPDATE privsql_values SET numerator = '1', denominator = '1'")
        bounds_with(lambda of: [one | {"threshold": "1/10"} for one in of])(db)

    release = changed(published, tmp_path, loosened)
    done = run("attack", release, "--json")
    assert done.code == 1
    shown = {one["adversary"]: one for one in done.json["adversaries"]}
    for name in ("linkage", "homogeneity"):
        assert shown[name]["exceeded"] is True
        assert shown[name]["above"] > 0


@pytest.mark.parametrize(
    "bad",
    rest_slow(
        [
            {"codes": [-1]},
            {"codes": [10**30]},
            {"codes": []},
            {"codes": "all"},
            {"threshold": "1/0"},
            {"threshold": "nan"},
            {"threshold": "1/" + "9" * 400},
            {"threshold": 0.5},
            {"name": None},
            {"more": 1},
        ]
    ),
    ids=str,
)
def test_bounds_of_no_form_are_refused(published: tuple[Path, Path], tmp_path: Path, bad: dict[str, Any]) -> None:
    release = changed(published, tmp_path, bounds_with(lambda of: [of[0] | bad, *of[1:]]))
    for verb in ("verify", "attack"):
        refused(run(verb, release), 4, "is not a release of privsql")


@pytest.mark.parametrize("depth", rest_slow([50, 20_000]))
def test_lists_in_lists_without_end_are_no_traceback(published: tuple[Path, Path], tmp_path: Path, depth: int) -> None:
    release = changed(published, tmp_path, lambda db: None)
    text_ = json.dumps(manifest(release)["parameters"]).replace('"colon"', "[" * depth + '"colon"' + "]" * depth)
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE privsql_manifest SET value = ? WHERE key = 'parameters'", [text_])
    done = run("verify", release)
    assert done.crash is None, repr(done.crash)
    assert done.code in (1, 2, 4)


# What is refused


@pytest.mark.parametrize(
    ("bounds", "words"),
    rest_slow(
        [
            ('[mechanism.components]\ndesease = "1/4"', ("'desease' is not a sensitive column", "disease, stage")),
            ('[mechanism.components]\nage = "1/4"', ("'age' is not a sensitive column",)),
            ('[mechanism.components]\ndisease = { default = "1/4", HVI = 0.1 }', ("components.disease", "'HVI'")),
            ('[mechanism.components]\ndisease = "f - 0.2"', ("components.disease", "must be above 0")),
            ('[mechanism.components]\nstage = { query = "SELECT 1::BIGINT, 0.5" }', ("components.stage", "value 2")),
            ('[mechanism.components]\nstage = { query = "SELECT 0.5" }', ("components.stage", "yields 1 columns")),
            (CANCER.replace('"skin"', '"skinn"'), ("groups.cancer", "'skinn' is not a value of column disease")),
            (CANCER.replace('column = "disease"\n', ""), ("'colon' is not a value of the sensitive columns together",)),
            (CANCER.replace('"disease"', '"illness"'), ("'illness' is not a sensitive column",)),
            (CANCER.replace('"colon"', '"lung"'), ("value 'lung' appears twice",)),
            (CANCER.replace('"colon"', "[]"), ("a group holds at least one value",)),
            (CANCER.replace('"colon"', "1.5"), ("groups.cancer", "value 1.5: write it as text")),
            (CANCER.replace('"colon"', "true"), ("value True: write it as text",)),
            (CANCER.replace('[["lung", "skin"], "colon"]', '"colon"'), ("values must be a list, not 'colon'",)),
            (CANCER.replace('"1.2*f"', "0"), ("lies outside (0, 1]",)),
            (CANCER.replace('"1.2*f"', '"f - 0.5"'), ("must be above 0",)),
            (CANCER.replace("threshold", "bound"), ("groups.cancer.",)),
            ("fake_values = 1" + CANCER, ("groups can't be combined with fake_values",)),
            ('excess = "suppress"\nabsence = "unobservable"' + DISEASE, ("components can't be combined with excess",)),
            ('layout = "round-robin"' + BOTH, ("'round-robin' does not support groups that overlap", "'blocks'")),
        ]
    ),
)
def test_what_is_wrong_is_named(tmp_path: Path, bounds: str, words: tuple[str, ...]) -> None:
    refused(run("plan", asking(tmp_path, bounds)), 2, *words)


def test_the_only_sensitive_column_is_no_component(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    spec = specification(tmp_path, mechanism='threshold = "1/2"\n[mechanism.components]\ndisease = "1/2"')
    refused(run("plan", spec), 2, "there is one sensitive column")


@pytest.mark.parametrize(
    ("algorithm", "bounds", "named"),
    [
        ("anatomy", CANCER, "'one-size', 'two-size', 'multi-size', 'optimal'"),
        ("optimal", BOTH, "'one-size', 'two-size'"),
        ("multi-size", BOTH, "'one-size', 'two-size'"),
    ],
)
def test_an_algorithm_that_cannot_names_those_that_can(tmp_path: Path, algorithm: str, bounds: str, named: str) -> None:
    spec = asking(tmp_path, bounds, f'algorithm = "{algorithm}"\nthreshold = "1/4"')
    refused(run("plan", spec), 2, f"'{algorithm}' does not keep", named)


def test_three_families_are_refused_by_name(tmp_path: Path) -> None:
    third = '[mechanism.groups.pairs]\nthreshold = "1/2"\nvalues = ["[lung, 1]", "[skin, 2]"]\n'
    refused(run("plan", asking(tmp_path, BOTH + third)), 2, "cross each other", "'pairs'", "'stage = ")


def test_what_cannot_be_met_names_the_nearest_bound_that_can(tmp_path: Path) -> None:
    """A quarter of the patients has a cancer."""
    spec = asking(tmp_path, CANCER.replace("1.2*f", "1/10"))
    refused(run("publish", spec), 3, "'cancer' has frequency 0.25 above its bound 0.1")
    once = '[mechanism.groups.cancer]\ncolumn = "disease"\nthreshold = 0.2\nvalues = ["lung", "skin", "colon"]'
    shown = run("plan", asking(tmp_path, once), "--json")
    assert shown.code == 3
    nearest = shown.json["nearest_group"]["cancer"]
    succeeded("plan", asking(tmp_path, once.replace("0.2", f'"{nearest}"')))
    lower = Fraction(nearest) - Fraction(1, 10**4)
    assert run("plan", asking(tmp_path, once.replace("0.2", f'"{float(lower):.4f}"'))).code == 3


# Values as texts


@pytest.mark.slow
def test_values_are_written_as_sql_prints_them(tmp_path: Path) -> None:
    """Whole numbers with or without quotes, combinations in brackets, NULL by that name."""
    group = '[mechanism.groups.{}]\nthreshold = "{}"\nvalues = [{}]\n{}'
    alike = [
        group.format("late", "0.6", values, 'column = "stage"')
        for values in ("3, 4", '"3", "4"', '3, "4"', '["3"], [4]')
    ]
    stated = [succeeded("plan", asking(tmp_path, bounds), "--json").json["bounds"] for bounds in alike]
    assert stated[0] == stated[1] == stated[2] == stated[3][:1]
    listed = group.format("one", "0.3", '"[NULL, 4]", "[lung, 2]"', "")
    (found,) = succeeded("plan", asking(tmp_path, listed), "--json").json["bounds"]
    assert len(found["codes"]) == 2
    missing = group.format("unknown", "0.3", '"NULL"', 'column = "disease"')
    (found,) = succeeded("plan", asking(tmp_path, missing), "--json").json["bounds"]
    release = tmp_path / "ill.duckdb"
    succeeded("publish", asking(tmp_path, missing))
    of_null = rows(
        release,
        "SELECT code FROM (SELECT row_number() OVER (ORDER BY disease NULLS LAST, stage) - 1 AS code, "
        "disease FROM (SELECT DISTINCT disease, stage FROM st)) WHERE disease IS NULL ORDER BY code",
    )
    assert found["codes"] == [code for (code,) in of_null]


@pytest.mark.slow
def test_a_text_that_looks_like_null_is_bounded_with_it_by_name_and_apart_as_a_part(tmp_path: Path) -> None:
    """A group by that name holds both; bounds on the column's values are two, of one name."""
    people = "SELECT i AS age, CASE i % 6 WHEN 0 THEN 'NULL' WHEN 2 THEN 'flu' WHEN 3 THEN 'cold' WHEN 4 THEN 'gout' "
    write(
        tmp_path / "people.parquet", people + "WHEN 5 THEN 'ulcer' END AS disease, i % 2 AS stage FROM range(240) t(i)"
    )
    columns = COLUMNS.replace(', "sex"', "")
    group = 'threshold = "1/2"\n[mechanism.groups.unknown]\ncolumn = "disease"\nthreshold = "2/5"\nvalues = ["NULL"]\n'
    spec = specification(
        tmp_path,
        columns=columns,
        mechanism="allow_certain = true\n" + group + '[mechanism.components]\ndisease = "1/3"',
    )
    shown = succeeded("publish", spec, "--json").json
    names = [one["name"] for one in shown["bounds"]]
    assert names.count("disease = NULL") == 2
    (unknown,) = (one for one in shown["bounds"] if one["name"] == "unknown")
    own = [one["codes"] for one in shown["bounds"] if one["name"] == "disease = NULL"]
    assert sorted(unknown["codes"]) == sorted(own[0] + own[1])
    succeeded("verify", tmp_path / "ill.duckdb", "--source", spec)


@pytest.mark.slow
def test_thresholds_of_a_column_from_a_query_and_with_exceptions(tmp_path: Path) -> None:
    table = "SELECT s::BIGINT, CASE WHEN s = 4 THEN 0.3 ELSE 0.5 END FROM range(1, 5) t(s)"
    bounds = f'[mechanism.components]\nstage = {{ query = "{table}" }}\ndisease = {{ default = "1/3", lung = 0.125 }}'
    spec, release = asking(tmp_path, bounds), tmp_path / "ill.duckdb"
    stated = {one["name"]: Fraction(one["threshold"]) for one in succeeded("publish", spec, "--json").json["bounds"]}
    assert stated["stage = 4"] == Fraction(3, 10)
    assert stated["stage = 1"] == Fraction(1, 2)
    assert stated["disease = lung"] == Fraction(1, 8)
    assert stated["disease = flu"] == Fraction(1, 3)
    succeeded("verify", release, "--source", spec)
    assert highest(release, lambda _, s: s == 4) <= Fraction(3, 10)
    with duckdb.connect(str(release)) as db:
        bounds_with(lambda of: [one | {"threshold": "2/5"} if one["name"] == "stage = 4" else one for one in of])(db)
    rewrite(release)
    assert set(failed(run("verify", release, "--source", spec, "--json"))) == {BOUNDS_SPECIFIED}


def test_a_table_with_no_records_asks_for_no_bounds(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PATIENTS.replace("range(480)", "range(0)"))
    refused(run("plan", asking(tmp_path, CANCER)), 3, "no records")


def test_nothing_is_published_that_breaks_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that forgets the groups is found in the database, before there is a release."""
    whole = publish.make_layout
    monkeypatch.setattr(publish, "make_layout", lambda plan, layout, noise, _: whole(plan, layout, noise))
    refused(run("publish", asking(tmp_path, CANCER), "--seed", 1), 1, BOUNDS_HOLD)
    assert not (tmp_path / "ill.duckdb").exists()
