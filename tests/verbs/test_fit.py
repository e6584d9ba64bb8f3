"""A model of a release: what it answers, where it is found, and that nobody's word is taken for it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from sqlglot import parse_one

import privsql as api
from privsql.answers import bucket_model, effect_fit
from privsql.mechanisms.bucketize.answers import CORRELATION, combine_counts
from privsql.model.estimates import Estimate
from privsql.releases import fitted
from privsql.releases.opened import read_manifest
from support.commands import by_keys, refused, run, succeeded, write
from support.fitted import copy_fitted
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTIONS = {
    "age < 30 AND job = 2": "",
    "sex = 'F'": "sex, job",
    "job IN (1, 2) AND age BETWEEN 25 AND 34": "sex",
    "job = 3 OR age > 37": "sex",
    "(age < 22 AND job = 1) OR (age > 36 AND job < 3)": "",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A release as a file and as a folder, its source, and a cache with its model; each worker has a copy."""
    with copy_fitted(tmp_path_factory) as place:
        yield place


@pytest.fixture(scope="module")
def release(folder: Path) -> Iterator[api.Release]:
    """Open, with its model."""
    with api.open(folder / "t.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def beliefs(folder: Path, release: api.Release) -> duckdb.DuckDBPyConnection:
    """Tables ``people``, the truth, and ``drawn``: every record with every value, and what the model believes of it."""
    (file,) = (folder / "cache").glob("*.model")
    db = duckdb.connect()
    db.execute(f"ATTACH '{release.path}' AS r (READ_ONLY); ATTACH '{file}' AS m (READ_ONLY)")
    db.execute(f"CREATE VIEW people AS FROM '{folder / 'people.parquet'}'")
    db.execute(
        "CREATE VIEW drawn AS SELECT q.age, q.sex, q.points, v.job, w.weight FROM r.qit AS q JOIN m.weights AS w "
        "ON w.record = q.rowid JOIN r.privsql_values AS v ON w.code = v.code"
    )
    return db


def estimates(release: api.Release, sql: str, estimator: str = "best") -> dict[tuple[Any, ...], float]:
    """Estimates by group."""
    return {group: answer[0] for group, answer in release.query(sql, estimator=estimator).by_group().items()}


def same_figures(one: api.Answer, other: api.Answer) -> None:
    """Estimates and bounds by group, but for rounding."""
    left, right = one.by_group(), other.by_group()
    assert left.keys() == right.keys()
    for group, figures in left.items():
        assert figures == pytest.approx(right[group], rel=1e-9)


@pytest.mark.parametrize(("condition", "groups"), QUESTIONS.items())
def test_answers_are_sums_of_beliefs(
    release: api.Release, beliefs: duckdb.DuckDBPyConnection, condition: str, groups: str
) -> None:
    """Counts, in groups and without, as SQL over the beliefs has them, or between these and the linear estimates."""
    key, by = f"{groups}, " if groups else "", f" GROUP BY {groups}" if groups else ""
    query = f"SELECT {key}COUNT(*) FROM t WHERE {condition}{by}"
    found, linear = estimates(release, query), release.query(query, estimator="linear").by_group()
    rows = beliefs.sql(f"SELECT {key}sum(weight) FROM drawn WHERE {condition}{by}").fetchall()
    model = {row[:-1]: row[-1] for row in rows}
    assert found.keys() == model.keys()
    for group, count in found.items():
        ends = sorted((model[group], linear[group][0]))
        assert ends[0] - 1e-6 <= count <= ends[1] + 1e-6


def test_groups_add_up(release: api.Release) -> None:
    """To the answer without groups, whatever the groups."""
    (whole,) = estimates(release, "SELECT COUNT(*) FROM t WHERE job < 3 AND age > 30").values()
    for groups in ("sex", "job", "sex, job", "age // 5"):
        parts = estimates(release, f"SELECT {groups}, COUNT(*) FROM t WHERE job < 3 AND age > 30 GROUP BY {groups}")
        assert sum(parts.values()) == pytest.approx(whole, rel=1e-9)


def test_answers_are_more_precise_and_intervals_hold(release: api.Release, beliefs: duckdb.DuckDBPyConnection) -> None:
    """On a table whose jobs follow age and sex; seeded, so that it passes or fails for ever."""
    sql = "SELECT sex, age // 4, job, COUNT(*) FROM {} GROUP BY sex, age // 4, job"
    true = {row[:-1]: row[-1] for row in beliefs.sql(sql.format("people")).fetchall()}
    errors, inside = {}, []
    for estimator in ("model", "linear"):
        answer = release.query(sql.format("t"), estimator=estimator).by_group()
        errors[estimator] = sum(abs(figures[0] - true.get(group, 0)) for group, figures in answer.items())
        inside.append(sum(low <= true.get(group, 0) <= high for group, (_, low, high) in answer.items()) / len(answer))
    assert errors["model"] < 0.7 * errors["linear"]
    assert inside[0] >= 0.93
    assert inside[1] >= 0.85


def test_what_is_certain_stays_certain(release: api.Release) -> None:
    """A count that QIT holds is exact; intervals lie within the certain bounds."""
    assert release.query("SELECT COUNT(*) FROM t WHERE age < 30").certain
    for row in release.query("SELECT age, job, COUNT(*) FROM t GROUP BY age, job").rows:
        sure = release.query(
            f"SELECT COUNT(*) FROM t WHERE age = {row[0]} AND job = {row[1]}", estimator="baseline"
        ).rows[0]
        assert sure[2] - 1e-9 <= row[4] <= row[2] <= row[5] <= sure[3] + 1e-9
        break


def test_without_a_model_answers_are_linear_and_say_what_would_help(
    folder: Path, release: api.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linear answer is the same with a model beside it."""
    sql = "SELECT COUNT(*) FROM t WHERE age < 30 AND job = 2"
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))
    plain = api.query(folder / "t.duckdb", sql)
    assert plain.estimator == "linear"
    assert "note: 'privsql fit' makes answers" in succeeded("query", folder / "t.duckdb", sql).out
    assert release.query(sql).estimator == "model"
    assert release.query(sql, estimator="linear").rows == plain.rows


def test_a_folder_of_the_same_tables_has_the_same_model(folder: Path, release: api.Release) -> None:
    """The cache knows tables, not files."""
    sql = "SELECT sex, COUNT(*) FROM t WHERE job = 2 GROUP BY sex"
    answer = api.query(folder / "folder", sql)
    assert answer.estimator == "model"
    same_figures(answer, release.query(sql))


@pytest.mark.slow
def test_parameters_are_handed_on(
    folder: Path, release: api.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes them in computes the same beliefs, without fitting."""
    sql = "SELECT sex, COUNT(*) FROM t WHERE job = 2 GROUP BY sex"
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))
    monkeypatch.setattr(bucket_model, "fit_bucket_model", None)
    taken = succeeded("fit", folder / "t.duckdb", "--from", folder / "t.json", "--json").json
    assert taken["records"] == 1600
    same_figures(api.query(folder / "t.duckdb", sql), release.query(sql))


DAMAGES = {
    "of other tables": lambda stated: stated | {"digest": "0" * 64},
    "another version": lambda stated: stated | {"version": 0},
    "no model": lambda stated: stated | {"more": 1},
    "damaged": lambda stated: stated | {"arrays": {key: one | {"data": "AA"} for key, one in stated["arrays"].items()}},
    "damaged|fit it again": lambda stated: stated | {"arrays": {}},
}  # fmt: skip


@pytest.mark.parametrize("why", DAMAGES)
def test_damaged_parameters_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """In one line, and nothing is stored."""
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "x.json").write_text(json.dumps(DAMAGES[why](json.loads((folder / "t.json").read_text()))))
    outcome = run("fit", folder / "t.duckdb", "--from", tmp_path / "x.json")
    assert outcome.code in (1, 2, 4)
    assert any(part in outcome.err for part in why.split("|"))
    assert len(outcome.err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.model"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "noise", "weights", "completed"])
def test_a_damaged_cache_is_not_believed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Answers are linear then."""
    (file,) = (folder / "cache").glob("*.model")
    copy = tmp_path / file.name
    content = file.read_bytes()
    copy.write_bytes({"cut": content[:20_000], "noise": b"x" * len(content)}.get(damage, content))
    if damage == "weights":
        with duckdb.connect(copy) as db:
            db.execute("UPDATE weights SET weight = weight + .1 WHERE record = 3")
    if damage == "completed":
        with duckdb.connect(copy) as db:
            db.execute("UPDATE completed SET drawn_7 = 99 WHERE record = 3")
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))
    assert api.query(folder / "t.duckdb", "SELECT COUNT(*) FROM t WHERE job = 2 AND age < 30").estimator == "linear"


def test_a_fit_that_is_interrupted_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while it runs, nor while it is stored."""
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((bucket_model, "fit_bucket_model"), (fitted, "list_beliefs")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                api.fit(folder / "t.duckdb", parameters=folder / "t.json" if module is fitted else None)
    assert not list(tmp_path.rglob("*.model"))


WITHOUT_MODEL: dict[str, tuple[str, dict[str, Any]]] = {
    "fewer than 200 records": ("LIMIT 160", {}),
    "more than 500 values": ("", {"sensitive": "many"}),
    "fake values": ("", {"threshold": "1/2", "mechanism.fake_values": 1}),
    "compound attribute": ("", {"sensitive": ["job", "part"], "mechanism.allow_certain": True}),
    "groups of values": ("", {"threshold": "1/2", "mechanism.groups": {"low": {"values": [1, 2], "threshold": "3/4"}}}),
    "always in the same buckets": ("", {"sensitive": "half", "threshold": "1/2"}),
    "does not converge": ("", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("obstacle", rest_slow(WITHOUT_MODEL))
def test_what_has_no_model_answers_by_the_linear_estimator(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    """fit says why, and an answer names its estimator, even beside a model of other tables."""
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path / "cache"))
    if obstacle == "does not converge":
        monkeypatch.setattr(effect_fit, "CONVERGED", 0.0)
    rows, keywords = WITHOUT_MODEL[obstacle]
    row = "row_number() OVER ()"
    more = f"'v' || {row} % 520 AS many, {row} // 7 % 5 AS part, {row} % 2 AS half"
    people = write(tmp_path / "chosen.parquet", f"SELECT *, {more} FROM '{folder / 'people.parquet'}' {rows}")
    target, usual = tmp_path / "t.duckdb", {"sensitive": "job", "threshold": "1/3", "qi": ["age", "sex"]}
    api.publish(people, to=target, **by_keys({**(usual | keywords), "ledger.off": True}), allow_useless=True)  # type: ignore[arg-type]
    refused(run("fit", target), 3, obstacle, "linear")
    value = {"many": "many = 'v2'", "half": "half = 1"}.get(str(keywords.get("sensitive", "job")), "job = 2")
    answer = api.query(target, f"SELECT COUNT(*) FROM chosen WHERE {value} AND age < 40")
    assert answer.estimator == "linear"
    assert answer.as_json()["estimator"] == "linear"


@pytest.mark.slow
def test_where_there_is_no_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another mechanism, and a cache that is switched off."""
    roles: dict[str, Any] = {"qi": ["age"], "ledger.off": True}
    people = folder / "people.parquet"
    filled = write(tmp_path / "filled.parquet", f"FROM '{people}' WHERE points IS NOT NULL")
    api.publish(filled, to=tmp_path / "p.duckdb", sensitive="points", mechanism="permute", k=2, e=2, **by_keys(roles))
    refused(run("fit", tmp_path / "p.duckdb"), 2, "permute")
    monkeypatch.setenv("PRIVSQL_CACHE", "off")
    refused(run("fit", folder / "t.duckdb", "--from", folder / "t.json"), 2, "PRIVSQL_CACHE", "option to")


@pytest.mark.slow
def test_max_learning_refuses_what_is_learnt_too_well(folder: Path, tmp_path: Path) -> None:
    """Nothing is written; a higher limit lets the same release out. What is not known is refused."""
    people, roles = (
        folder / "people.parquet",
        ("--qi", "age,sex", "--sensitive", "job", "--seed", 1, "--set", "ledger.off=true"),
    )
    release = tmp_path / "t.duckdb"
    usual = ("publish", people, *roles, "--threshold", "1/3", "--to", release)
    refused(run(*usual, "--set", "mechanism.max_learning=0.34"), 3, "max_learning", "mean belief", "larger buckets")
    assert not release.exists()
    assert "can expect to be right" in " ".join(succeeded(*usual, "--set", "mechanism.max_learning=0.99").out.split())
    assert privsql_parameters(release)["max_learning"] == 0.99
    faked = (
        "publish",
        people,
        *roles,
        "--threshold",
        "1/2",
        "--set",
        "mechanism.fake_values=1",
        "--to",
        tmp_path / "f.duckdb",
    )
    refused(run(*faked, "--set", "mechanism.max_learning=0.99"), 3, "max_learning", "measure learning")


def privsql_parameters(release: Path) -> dict[str, Any]:
    """The parameters of the mechanism, as the release states them."""
    return dict(read_manifest(release).parameters)


def test_the_cache_lies_where_the_system_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG's folder, where it is an absolute path; else the one in the home folder."""
    monkeypatch.delenv(fitted.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fitted.cache_folder() == tmp_path / "xdg" / "privsql"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr("sys.platform", "linux")
    assert fitted.cache_folder() == tmp_path / ".cache" / "privsql"
    monkeypatch.setattr("sys.platform", "darwin")
    assert fitted.cache_folder() == tmp_path / "Library" / "Caches" / "privsql"


def test_only_files_of_the_user_are_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No link, no folder, and nothing of somebody else's."""
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))
    (tmp_path / "a.model").write_text("x")
    (tmp_path / "b.model").symlink_to(tmp_path / "a.model")
    (tmp_path / "c.model").mkdir()
    assert list(fitted.list_models()) == ["a"]
    monkeypatch.setattr("privsql.system.is_users_file", lambda _: False)
    assert not fitted.list_models()


def test_no_release_holds_a_model(folder: Path, tmp_path: Path) -> None:
    """Neither publish stores one, nor is one of a stranger's read: what a fit made is the reader's."""
    with pytest.raises(api.UsageError, match="fit"):
        api.publish(folder / "spec.toml", fit=True)  # type: ignore[call-arg]
    assert run("publish", folder / "spec.toml", "--fit").code == 2
    release = shutil.copy(folder / "t.duckdb", tmp_path)
    with duckdb.connect(str(release)) as db:
        db.execute("CREATE TABLE privsql_model AS SELECT 1 AS line, 'Ann: HIV' AS text")
        db.execute("INSERT INTO privsql_manifest VALUES ('modelled', 'true')")
    refused(run("query", release, "SELECT COUNT(*) FROM t"), 4, "publish anew")


def test_an_opened_release_reaches_no_other_model(folder: Path, monkeypatch: Any) -> None:
    cache = folder / "cache"
    other = cache / "0000.model"
    other.write_bytes(next(cache.glob("*.model")).read_bytes())
    try:
        with api.open(folder / "t.duckdb") as opened:
            ((allowed,),) = opened._db.rows(parse_one("SELECT current_setting('allowed_paths')"))
        assert str(other) not in str(allowed)
        assert "model" in str(allowed)
    finally:
        other.unlink()


@pytest.mark.slow
def test_what_memory_does_not_hold_is_said(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))
    monkeypatch.setattr(bucket_model, "MOST_BYTES", 2**26)
    done = succeeded("fit", folder / "t.duckdb")
    share = api.fit(folder / "t.duckdb").fitted_share
    assert 0.1 < share < 0.9
    assert f"fitted to {share:.0%} of these, which memory holds" in " ".join(done.out.split())


def test_a_count_leans_to_what_is_more_precise() -> None:
    """Weights of least variance for two errors with a correlation; nothing changes without a linear error."""
    linear = [Estimate((), 200.0, error, 0.0, 400.0) for error in (1.0, 10.0, 100.0, None)]
    found = [combine_counts([()], np.array([100.0]), np.array([100.0]), [one]) for one in linear]
    counts, variances = np.array(found)[:, :, 0].T
    assert counts.tolist() == pytest.approx([200, 150, 100, 100])
    assert variances.tolist() == pytest.approx([1, (1 + CORRELATION) / 2 * 100, 100, 100])


@pytest.fixture
def unfitted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release without a model, and a cache of its own."""
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PRIVSQL_FIT")
    return folder / "t.duckdb"


def list_stored() -> list[Path]:
    """The models in the cache."""
    return list(Path(os.environ["PRIVSQL_CACHE"]).glob("*.model"))


@pytest.mark.slow
def test_the_first_query_fits_a_model(unfitted: Path) -> None:
    """Once: it lies in the cache afterwards, and the session answers by it at once."""
    with api.open(unfitted) as opened:
        assert not list_stored()
        assert opened.query("SELECT COUNT(*) FROM t WHERE job = 1 AND age < 30").estimator == "model"
    (file,) = list_stored()
    made = file.stat().st_mtime_ns
    assert api.query(unfitted, "SELECT COUNT(*) FROM t WHERE job = 2 AND age < 30").estimator == "model"
    assert file.stat().st_mtime_ns == made


@pytest.mark.parametrize("how", ["option", "variable", "estimator", "long", "no cache"])
def test_no_model_is_fitted(unfitted: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "variable":
        monkeypatch.setenv("PRIVSQL_FIT", "off")
    if how == "no cache":
        monkeypatch.setenv("PRIVSQL_CACHE", "off")
    if how == "long":
        monkeypatch.setattr(fitted, "MOST_SECONDS", 0.01)
    asked = {"estimator": "linear"} if how == "estimator" else {"fit": False} if how == "option" else {}
    assert api.query(unfitted, "SELECT COUNT(*) FROM t WHERE job = 1 AND age < 30", **asked).estimator == "linear"
    assert not list_stored()


@pytest.mark.slow
def test_no_fit_by_the_command_line(unfitted: Path) -> None:
    """A hint says what a fit would do, and how long it takes."""
    query = "SELECT COUNT(*) FROM t WHERE job = 1 AND age < 30"
    hinted = succeeded("query", unfitted, query, "--no-fit")
    assert "'privsql fit' makes answers of this release more precise; it takes about" in hinted.out + hinted.err
    assert "privsql fit" not in succeeded("query", unfitted, query).err
