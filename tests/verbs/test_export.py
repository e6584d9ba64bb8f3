"""Completed tables as files and schemas, for packages of multiple imputation and for tools that read rows."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import privsql as api
from privsql.answers.answer import DRAWN_COLUMNS, DRAWS
from privsql.releases.contents import digest_release
from privsql.source.targets import Target
from support import postgres
from support.commands import refused, run, succeeded
from support.fitted import copy_fitted
from support.places import ROOT
from support.shelf import make_once, publish_shelf, release_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

COLUMNS = ["age", "sex", "points", "job"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A release with a model in a cache; each worker has a copy."""
    with copy_fitted(tmp_path_factory) as place:
        yield place


def test_a_long_table_as_parquet(folder: Path, tmp_path: Path) -> None:
    """Every draw has every record, with its own quasi-identifiers; every bucket has the values that it lists."""
    file = tmp_path / "draws.parquet"
    done = succeeded("export", folder / "t.duckdb", "--completed", file)
    note = f"drawn from release {digest_release(Target(folder / 't.duckdb'))}; nobody can verify it"
    assert note in " ".join(done.out.split())
    assert pq.read_schema(file).metadata[b"privsql_drawn_from"].decode() == note
    assert pq.read_schema(file).names == ["draw", "record", *COLUMNS]
    db = duckdb.connect()
    db.execute(f"ATTACH '{folder / 't.duckdb'}' AS r (READ_ONLY); CREATE VIEW drawn AS FROM '{file}'")
    assert db.sql("SELECT min(draw), max(draw), count(*) FROM drawn").fetchall() == [(1, DRAWS, DRAWS * 1600)]
    assert db.sql(
        "FROM drawn SELECT count(DISTINCT (record, age, sex, points)), count(DISTINCT record), min(record)"
    ).fetchall() == [(1600, 1600, 1)]
    wrong = (
        "SELECT draw, bid, job, count(*) FROM drawn JOIN (SELECT *, rowid + 1 AS record FROM r.qit) USING (record) "
        "GROUP BY ALL EXCEPT SELECT draw, bid, job, count FROM r.st, (SELECT DISTINCT draw FROM drawn)"
    )
    assert db.sql(wrong).fetchall() == []
    (cached,) = (folder / "cache").glob("*.model")
    db.execute(f"ATTACH '{cached}' AS m (READ_ONLY)")
    for at, name in enumerate(DRAWN_COLUMNS, 1):
        apart = (
            f"SELECT c.record FROM m.completed AS c JOIN r.privsql_values AS v ON v.code = c.{name} "
            f"JOIN drawn AS d ON d.record = c.record + 1 WHERE d.draw = {at} AND d.job IS DISTINCT FROM v.job"
        )
        assert db.sql(apart).fetchall() == []


def test_one_table_looks_like_the_source(folder: Path, tmp_path: Path) -> None:
    """Under its name, with its columns and types, so that a count works."""
    file = tmp_path / "one.duckdb"
    written = api.export(folder / "t.duckdb", completed=file, draw=3)
    assert written.rows == 1600
    with duckdb.connect(str(file), read_only=True) as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(1600,)]
        source = db.sql(f"DESCRIBE FROM '{folder / 'people.parquet'}'").fetchall()
        assert [row[:2] for row in db.sql("DESCRIBE t").fetchall()] == [row[:2] for row in source]
        assert db.sql("SELECT note FROM privsql_drawn_from").fetchall() == [(written.note,)]
        jobs = db.sql("SELECT job, count(*) FROM t GROUP BY job ORDER BY job").fetchall()
    api.export(folder / "t.duckdb", completed=tmp_path / "one.parquet", draw=3)
    same = duckdb.sql(f"SELECT job, count(*) FROM '{tmp_path / 'one.parquet'}' GROUP BY job ORDER BY job").fetchall()
    assert same == jobs
    assert pq.read_schema(tmp_path / "one.parquet").names == COLUMNS


@pytest.mark.slow
def test_a_schema_of_a_database(folder: Path, tmp_path: Path) -> None:
    """As a whole or not at all; what lies there already stays."""
    place = tmp_path / "house.duckdb"
    with duckdb.connect(str(place)) as db:
        db.execute("CREATE TABLE other AS SELECT 1 AS one")
    succeeded("export", folder / "t.duckdb", "--completed", f"{place}::drawn")
    with duckdb.connect(str(place), read_only=True) as db:
        assert db.sql("SELECT count(*) FROM drawn.t_completed").fetchall() == [(DRAWS * 1600,)]
        assert db.sql("FROM other").fetchall() == [(1,)]
    refused(run("export", folder / "t.duckdb", "--completed", f"{place}::drawn"), 2, "new schema")


def test_a_schema_of_a_postgres_database(folder: Path) -> None:
    """A dashboard counts there."""
    place = f"{postgres.address()}::drawn_t"
    succeeded("export", folder / "t.duckdb", "--completed", place, "--draw", 1)
    from privsql.engine.postgres import PostgresServer

    server = PostgresServer(postgres.address())
    assert server.arrow("SELECT count(*) AS n FROM drawn_t.t").to_pylist() == [{"n": 1600}]
    assert "drawn from release" in server.arrow("SELECT note FROM drawn_t.privsql_drawn_from").to_pylist()[0]["note"]
    server.close()


def test_what_can_not_be_written_is_refused(
    folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says what works."""
    release, file = folder / "t.duckdb", tmp_path / "x.parquet"
    (tmp_path / "taken.parquet").touch()
    refused(run("export", release, "--completed", tmp_path / "taken.parquet"), 2, "new file")
    refused(run("export", release, "--completed", tmp_path / "x.csv"), 2, ".parquet or .duckdb")
    refused(run("export", release, "--completed", file, "--draw", 21), 2, "from 1 to 20")
    refused(run("export", release, "--draw", 1), 2, "option synthetic, or completed")
    refused(run("export", release, "--completed", file, "--synthetic", file), 2, "one place")
    refused(run("export", release, "--completed", tmp_path / "no" / "x.parquet"), 4, "no")
    shelf = make_once(tmp_path_factory, "shelf", lambda place: publish_shelf(place))
    refused(run("export", release_of(shelf, "permute"), "--completed", file), 2, "permute")
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path))
    refused(run("export", release, "--completed", file), 2, "privsql fit")
    assert not file.exists()


def test_the_regression_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within- and between-variance over 20 draws; without statsmodels its least squares are numpy's."""
    rng, parts = np.random.default_rng(1), []
    for draw in range(1, DRAWS + 1):
        data = pd.DataFrame({"draw": draw, "sex": np.arange(300) % 2 + 1, "disease": rng.choice(["flu", "HIV"], 300)})
        age = 40 + 2 * (data["sex"] == 2) + 10 * (data["disease"] == "flu") + rng.normal(size=300)
        parts.append(data.assign(age=age))
    pd.concat(parts).to_parquet(tmp_path / "draws.parquet")
    text = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
    code = next(one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "statsmodels" in one)
    assert len(code.splitlines()) <= 12
    if importlib.util.find_spec("statsmodels") is None:
        stand_in: Any = types.SimpleNamespace(ols=LeastSquares)
        for name in ("statsmodels.formula.api", "statsmodels.formula", "statsmodels"):
            monkeypatch.setitem(sys.modules, name, stand_in)
            stand_in = types.SimpleNamespace(**{name.rpartition(".")[2]: stand_in})
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "query.md", "exec"), {})  # noqa: S102
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    found = {row[0]: (float(row[1]), float(row[2])) for row in rows}
    assert found["C(sex)[T.2]"][0] == pytest.approx(2, abs=0.2)
    assert found["C(disease)[T.flu]"][0] == pytest.approx(10, abs=0.2)
    assert all(0 < error < 1 for _, error in found.values())


class LeastSquares:
    """Stands for ``statsmodels.formula.api.ols`` with the formula of the page."""

    def __init__(self, formula: str, data: pd.DataFrame) -> None:
        assert formula == "age ~ C(sex) + C(disease)"
        names = ["Intercept", "C(sex)[T.2]", "C(disease)[T.flu]"]
        columns = np.column_stack([np.ones(len(data)), data["sex"] == 2, data["disease"] == "flu"]).astype(float)
        inverse = np.linalg.inv(columns.T @ columns)
        self.params = pd.Series(inverse @ columns.T @ data["age"].to_numpy(), index=names)
        left = data["age"].to_numpy() - columns @ self.params.to_numpy()
        self._covariance = inverse * (left @ left) / (len(data) - 3)

    def fit(self) -> LeastSquares:
        """It is."""
        return self

    def cov_params(self) -> NDArray[Any]:
        """Covariance of the coefficients."""
        return np.asarray(self._covariance)
