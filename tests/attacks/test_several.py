"""Adversaries who have more than one release, or ask whether a record is there at all."""

from __future__ import annotations

from collections import Counter
from math import exp
from typing import TYPE_CHECKING

import duckdb
import pytest

from support.commands import refused, rows, run, specification, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.office import Office

ALONE = """
SELECT CAST(i // 2 AS INTEGER) AS age, CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
  'd' || CAST((i * 7 + i // 5) % 9 AS VARCHAR) AS disease
FROM range(400) t(i)
"""


def attacked(*arguments: object) -> dict[str, dict[str, object]]:
    """The findings by adversary."""
    return {one["adversary"]: one for one in succeeded("attack", *arguments, "--json").json["adversaries"]}


@pytest.fixture
def twice(tmp_path: Path) -> list[Path]:
    """Two releases of 400 records that are all alone with age and sex."""
    write(tmp_path / "people.parquet", ALONE)
    columns = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
    made = []
    for name in ("one", "two"):
        release = f'name = "ill"\nto = "{name}.duckdb"'
        spec = specification(
            tmp_path, columns=columns, release=release, mechanism='threshold = "1/4"', name=f"{name}.toml"
        )
        succeeded("publish", spec, "--seed", "1" if name == "one" else "2", "--allow-composition")
        made.append(tmp_path / f"{name}.duckdb")
    return made


def believed(first: Path, second: Path) -> list[float]:
    """The belief in the best guess for every record, by plain Python: c1 c2/o, scaled."""
    groups = []
    for release in (first, second):
        members = dict(rows(release, "SELECT (age, sex), bid FROM qit"))
        listed: dict[int, dict[str, int]] = {}
        for bid, disease, count in rows(release, 'SELECT bid, disease, "count" FROM st'):
            listed.setdefault(bid, {})[disease] = count
        groups.append((members, listed))
    records: Counter[str] = Counter()
    for values in groups[0][1].values():
        records.update(values)
    found = []
    for person, bid in groups[0][0].items():
        one, other = groups[0][1][bid], groups[1][1][groups[1][0][person]]
        weights = [one[x] * other[x] / records[x] for x in one.keys() & other.keys()]
        found.append(max(weights) / sum(weights))
    return found


@pytest.mark.slow
def test_two_releases_are_intersected(twice: list[Path]) -> None:
    found = attacked(twice[0], "--against", twice[1])["intersection of releases"]
    beliefs = believed(*twice)
    assert found["attacked"] == 400
    assert found["mean"] == pytest.approx(sum(beliefs) / 400)
    assert found["highest"] == pytest.approx(max(beliefs))
    assert found["mean"] > 1.1 * attacked(twice[0])["linkage"]["mean"]  # each release alone keeps its bound
    assert not found["promised"]


@pytest.mark.slow
def test_a_repeated_release_tells_nothing_more(twice: list[Path]) -> None:
    found = attacked(twice[0], "--against", twice[0])["intersection of releases"]
    assert found["mean"] == pytest.approx(sum(believed(twice[0], twice[0])) / 400)


@pytest.mark.soak(part="long")
def test_releases_of_other_kinds_are_not_intersected(twice: list[Path], tmp_path: Path) -> None:
    spec = specification(
        tmp_path,
        columns='quasi_identifiers = ["age"]\nsensitive = "disease"',
        release='to = "three.duckdb"',
        mechanism='threshold = "1/4"',
        name="three.toml",
    )
    succeeded("publish", spec, "--allow-composition")
    refused(run("attack", twice[0], "--against", tmp_path / "three.duckdb"), 2, "other columns")
    with duckdb.connect(str(twice[1])) as db:
        db.execute("CREATE TABLE more (a INTEGER)")
    refused(run("attack", twice[0], "--against", twice[1]), 1, "does not belong here")


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "kept"), rest_slow([("nested", True), ("reapply-last", False)]))
def test_differences_of_growing_releases(algorithm: str, kept: bool, grown: Callable[[str], Office]) -> None:
    """The known answer of the growing table: checking the last release only breaches against the first."""
    office = grown(algorithm)
    found = attacked(office.made[2], "--against", office.made[0])["difference of releases"]
    assert found["promised"] == (algorithm == "nested")
    assert found["leaks"] != kept
    assert kept or " breaches by " in str(found["notes"])


@pytest.mark.slow
def test_membership_is_bounded_by_epsilon(tmp_path: Path) -> None:
    write(
        tmp_path / "baskets.parquet",
        "SELECT CASE WHEN i % 3 = 0 THEN ['ale'] WHEN i % 3 = 1 THEN ['ale', 'bread'] ELSE ['figs'] END AS goods "
        "FROM range(3000) t(i)",
    )
    spec = tmp_path / "baskets.toml"
    spec.write_text(
        '[source]\nfile = "baskets.parquet"\n[columns]\nitems = "goods"\n[release]\nname = "b"\nto = "b.duckdb"\n'
        '[mechanism]\nkind = "setvalued"\nepsilon = 0.5\nuniverse = ["ale", "bread", "figs"]\n'
        'algorithm = "diffpart"\nfan_out = 2\n'
    )
    succeeded("publish", spec, "--seed", "1")
    found = attacked(tmp_path / "b.duckdb")["membership"]
    assert found["promised"]
    assert found["attacked"] >= 3
    assert 0.5 < found["mean"] <= found["highest"] <= 1 / (1 + exp(-0.5)) + 1e-12
    assert found["above"] == 0
    with duckdb.connect(str(tmp_path / "b.duckdb")) as db:  # less noise than was promised
        db.execute("UPDATE privsql_tree SET scale = scale / 2")
    assert run("attack", tmp_path / "b.duckdb").code == 1
