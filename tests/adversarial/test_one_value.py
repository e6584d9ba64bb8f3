"""No sensitive value decides anything of a release of noisy tables but its noise: messages, sizes and tables included.

Noise that forgets the counts takes the place of OpenDP's. Then all that a publisher and a reader see is the same,
whatever the sensitive column holds.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import privsql
from privsql.keyed_random import seed_key
from privsql.mechanisms.label_tables import publish
from support.commands import run, specification
from support.loops import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PEOPLE = 60
LEDGER = '[ledger]\ndatabase = "ledger.duckdb"'
COLUMNS = 'quasi_identifiers = ["age", "sex", "zip"]\nsensitive = ["disease"]'
TABLES = 'kind = "randomize"\nalgorithm = "tables"\nepsilon = 1\nvalues = ["cold", "flu", "gout"]'
PLAIN = [["cold", "flu", "gout"][i % 3] for i in range(PEOPLE)]
VALUES: dict[str, list[str | None]] = {
    "plain": [*PLAIN],
    "nobody is ill": [None] * PEOPLE,
    "all alike": ["cold"] * PEOPLE,
    "all strange": [f"plague {i}" for i in range(PEOPLE)],
    "numbers": [str(i) for i in range(PEOPLE)],
    "one strange": ["zebra", *PLAIN[1:]],
    "one long": ["x" * 3_000_000, *PLAIN[1:]],
    "one that is no text": ["\udcff\udcfe", *PLAIN[1:]],
    "one with marks": ['"\n,;', *PLAIN[1:]],
}
FEW = ("plain", "nobody is ill", "all strange", "one strange")
SCHEMA = [("nr", pa.int64()), ("age", pa.int64()), ("sex", pa.string()), ("zip", pa.int64()), ("disease", pa.string())]
WORDS = (b"plague", b"zebra", b"xxxxxxxxxxxx")


class ForgetfulNoise:
    """Noise that has nothing to do with counts and scores."""

    origin = "seed"

    def add_noise(self, counts: Any, _: Any) -> Any:
        return np.arange(len(counts), dtype=np.int64) * 7919 % 13

    def choose_best(self, scores: Any, _: Any, *, monotonic: bool) -> int:
        return min(1, len(scores) - 1)


@pytest.fixture(autouse=True)
def forget_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "noise_for", lambda _: ForgetfulNoise())


def make_people(values: list[str | None]) -> pd.DataFrame:
    """The people, with ids."""
    number = np.arange(PEOPLE)
    sex = np.where(number % 3 == 0, "F", "M")
    columns = {"nr": number, "age": 20 + number * 7 % 30, "sex": sex, "zip": number * 31 % 17}
    return pd.DataFrame({**columns, "disease": pd.Series(values, dtype=object)})


def as_text(values: list[str | None]) -> list[str | None]:
    """The values as a file of texts can have them: what is no text is other bytes there."""
    return [None if one is None else one.encode(errors="replace").decode() for one in values]


def write_parquet(folder: Path, values: list[str | None]) -> str:
    people = make_people(as_text(values))
    people.to_parquet(folder / "people.parquet", schema=pa.schema(SCHEMA))
    return 'file = "people.parquet"'


def write_csv(folder: Path, values: list[str | None]) -> str:
    text = make_people(values).to_csv(index=False)
    (folder / "people.csv").write_bytes(text.encode(errors="surrogateescape"))
    return 'file = "people.csv"'


def write_enum(folder: Path, values: list[str | None]) -> str:
    """Of a type that lists the values."""
    people = make_people(as_text(values))  # noqa: F841 (DuckDB reads it)
    labels = ", ".join(f"'{one}'" for one in sorted({one for one in as_text(values) if one})) or "'none'"
    (folder / "people.duckdb").unlink(missing_ok=True)
    with duckdb.connect(str(folder / "people.duckdb")) as db:
        db.execute(f"CREATE TYPE diseases AS ENUM ({labels})")
        db.execute("CREATE TABLE people AS SELECT * REPLACE (CAST(disease AS diseases) AS disease) FROM people")
    return 'database = "people.duckdb"\ntable = "people"'


def without_times(text: str) -> str:
    return re.sub(r'"?seconds"?: [\d.]+|[\d.]+ s\b|\d{4}-\d\d-\d\d[T ][\d:.+Z]+|[0-9a-f]{32,}', "", text)


def read_release(path: Path) -> tuple[Any, ...]:
    """Sizes and contents of what was written."""
    with duckdb.connect(str(path), read_only=True) as db:
        names = [name for (name,) in db.sql("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]
        rows = [without_times(str(db.sql(f'FROM "{name}"').fetchall())) for name in names]
        kinds = db.sql("SELECT table_name, column_name, data_type FROM duckdb_columns() ORDER BY ALL").fetchall()
    assert not any(word in path.read_bytes() for word in WORDS)
    return path.stat().st_size, names, rows, kinds


def observe_release(
    folder: Path, write: Callable[[Path, list[str | None]], str], values: list[str | None], *, reading: bool
) -> Any:
    """All that commands say, and the release; ``reading``: so do commands that see no source, and the page."""
    source = f'{write(folder, values)}\nid = "nr"'
    spec = specification(folder, source=source, columns=COLUMNS, mechanism=f"{TABLES}\n{LEDGER}")
    commands: list[tuple[Any, ...]] = [
        ("plan", spec), ("plan", spec, "--json"), ("publish", spec, "--seed", 1), ("ledger", spec, "--json"),
    ]  # fmt: skip
    readers: list[tuple[Any, ...]] = [
        ("verify", folder / "ill.duckdb", "--json"), ("attack", folder / "ill.duckdb", "--json"),
        ("report", folder / "ill.duckdb", "--to", folder / "ill.html"),
    ]  # fmt: skip
    done = [run(*command) for command in (*commands, *(readers if reading else []))]
    assert [one.code for one in done] == [0] * len(done), [one.err for one in done]
    said = [without_times(one.out + one.err) for one in done]
    read = [*said[len(commands) :], without_times((folder / "ill.html").read_text())] if reading else []
    return (said[: len(commands)], *read_release(folder / "ill.duckdb")), read


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_parquet, write_csv, write_enum])
def test_no_value_shows_once_noise_forgets_the_counts(write: Any, tmp_path: Path) -> None:
    """What is read of equal releases is equal: it is looked at for a few values of one kind of source."""
    observed = {}
    for name in VALUES if write is write_csv else FEW:
        folder = tmp_path / "here"
        folder.mkdir()
        reading = write is write_csv and name in FEW
        observed[name] = observe_release(folder, write, VALUES[name], reading=reading)
        shutil.rmtree(folder)
    for name, (made, read) in observed.items():
        assert made == observed["plain"][0], name
        assert not read or read == observed["plain"][1], name


@pytest.mark.parametrize("kind", slow_but(["object", "category"], "object"))
def test_no_value_of_a_frame_shows(kind: str, tmp_path: Path) -> None:
    """A frame of values that are missing has a column without a type."""
    observed = []
    for name in FEW:
        people = make_people(VALUES[name]).astype({"disease": kind})
        spec = privsql.build(
            {
                "source": {"frame": people, "id": "nr"},
                "columns": {"quasi_identifiers": ["age", "sex", "zip"], "sensitive": ["disease"]},
                "release": {"name": "ill", "to": str(tmp_path / "ill.duckdb")},
                "mechanism": {"kind": "randomize", "algorithm": "tables", "epsilon": 1, "values": sorted({*PLAIN})},
                "ledger": {"off": True},
            }
        )
        privsql.publish(spec, key=seed_key(1), replace=True, nobody_has_it=True)
        observed.append(read_release(tmp_path / "ill.duckdb"))
    assert all(one == observed[0] for one in observed)
