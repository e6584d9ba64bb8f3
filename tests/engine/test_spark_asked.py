"""Questions about a release that Spark counts: the answers that DuckDB gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pandas import DataFrame
from pandas.testing import assert_frame_equal

import privsql
from privsql.engine.database import Options
from privsql.errors import EngineError, UsageError
from support import engines
from support.commands import specification, succeeded, write
from support.mixed import MECHANISMS, PEOPLE, QI

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
REPEATED = pytest.mark.soak(part="spark")  # counted by the same queries as others
ABOUT = [
    "SELECT COUNT(*) FROM r WHERE odd",
    "SELECT sex, COUNT(*) FROM r GROUP BY sex",
    "SELECT COUNT(*) FROM r WHERE seen > DATE '2020-02-28' OR sex IS NULL",
    "SELECT sex, COUNT(*) FROM r WHERE age IN (20, 33, 50) GROUP BY sex",
    "SELECT odd, part, COUNT(*) FROM r WHERE {sensitive} GROUP BY odd, part",
    "SELECT COUNT(*) FROM r WHERE (age = 20 AND {sensitive}) OR (age > 50 AND NOT ({sensitive}))",
    "SELECT AVG(age), SUM(age) FROM r WHERE {sensitive}",
]
CATEGORIES = 'categories = ["disease", "odd", "sex"]\nnulls = { sex = "suppress" }'
MARGINALS = 'kind = "contingency"\nepsilon = 1\ndomains = { disease = "data", odd = "data", sex = "data" }'


def made(folder: Path, kind: str, release_format: str = "parquet") -> Path:
    write(folder / "people.parquet", PEOPLE)
    sensitive, mechanism = MECHANISMS.get(kind, ("disease", MARGINALS))
    columns = f'{QI}\nsensitive = "{sensitive}"' if kind in MECHANISMS else CATEGORIES
    ending = ".duckdb" if release_format == "duckdb" else ""
    spec = specification(
        folder,
        columns=columns,
        release=f'name = "r"\nto = "{kind}{ending}"\nformat = "{release_format}"',
        mechanism=f"{mechanism}\n[ledger]\noff = true",
    )
    succeeded("publish", spec, "--seed", 3)
    return folder / f"{kind}{ending}"


@pytest.mark.parametrize(
    "kind", ["fakes", "permute", *(pytest.param(kind, marks=REPEATED) for kind in ("randomize", "marginals"))]
)
def test_spark_answers_as_duckdb_does(tmp_path: Path, kind: str) -> None:
    release = made(tmp_path, kind)
    sensitive = "salary < 300" if kind == "permute" else "disease IN ('v1', 'v2')"
    session = engines.spark(None).session
    with privsql.open(release) as here, privsql.open(release, options=Options(session=session)) as there:
        for text in ABOUT:
            sql = text.format(sensitive=sensitive)
            assert_frame_equal(answered(there, sql), answered(here, sql), rtol=1e-9, obj=sql)


def answered(release: privsql.Release, sql: str) -> DataFrame:
    """The rows of an answer, or the line by which it is refused."""
    try:
        return release.sql(sql)
    except UsageError as error:
        return DataFrame({"refused": [str(error)]})


def test_what_spark_does_not_count_is_said(tmp_path: Path) -> None:
    options = Options(session=engines.spark(None).session)
    database = made(tmp_path, "randomize", "duckdb")
    with pytest.raises(UsageError, match="Spark reads releases in Parquet"):
        privsql.open(database, options=options)
    write(tmp_path / "sexes.parquet", "SELECT 'M' AS sex, 1 AS number")
    folder = made(tmp_path, "randomize")
    with privsql.open(folder, [tmp_path / "sexes.parquet"], options) as release:
        with pytest.raises(UsageError, match="JOIN: Spark counts"):
            release.sql("SELECT COUNT(*) FROM r JOIN sexes USING (sex) WHERE number = 1")
        with pytest.raises(EngineError, match="portable subset"):
            release.sql("SELECT COUNT(*) FROM r WHERE regexp_matches(sex, 'M')")
    with pytest.raises(UsageError, match="str is not a Spark session"):
        privsql.open(folder, options=Options(session="x"))
