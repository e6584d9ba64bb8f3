"""Flags and keywords beside a specification file: they override its keys, and the whole is validated again."""

from __future__ import annotations

from pathlib import Path

import pytest

import privsql
from privsql.errors import UsageError
from privsql.source import keywords
from support.commands import refused, run, specification


def test_flags_override_keys_of_a_file(tmp_path: Path) -> None:
    file = specification(tmp_path)
    stated = privsql.load(file)
    changed = keywords.spec_from_flags(file, {"threshold": "1/8", "algorithm": "two-size", "name": "other"})
    assert changed.mechanism.model_dump()["algorithm"] == "two-size"
    assert changed.name == "other"
    assert (changed.columns, changed.source) == (stated.columns, stated.source)
    assert keywords.spec_from_flags(file, {"ledger_off": True}).ledger.off  # type: ignore[union-attr]
    assert keywords.spec_from_flags(file, {}) == stated
    assert changed.mechanism.model_dump(mode="json")["threshold"]["default"] == "0.125"


def test_the_default_target_lies_beside_the_specification(tmp_path: Path) -> None:
    file = specification(tmp_path, release="")
    plain, other = (keywords.spec_from_flags(file, given) for given in ({}, {"name": "other"}))
    assert plain.target.path == tmp_path / "people_release.duckdb"
    assert other.target.path == tmp_path / "other_release.duckdb"
    assert keywords.spec_from_flags(file, {"format": "parquet"}).target.path == tmp_path / "people_release"
    file = specification(tmp_path, release='to = "out.duckdb"')
    assert keywords.spec_from_flags(file, {"format": "parquet"}).target.path == tmp_path / "out"
    assert keywords.spec_from_flags(file, {"to": "r.duckdb"}).target.path == Path("r.duckdb")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"query": "SELECT 1"}, "query=.. can't be combined with a specification, which names its source"),
        ({"rho1": "0.2"}, "rho1=.. can't be combined with kind = 'bucketize'; it needs randomize"),
        ({"algorithm": "nothing"}, "nothing"),
        ({"kind": "setvalued"}, "mechanism"),
        ({"sensitive": "age"}, "age"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, given: dict[str, str], words: str) -> None:
    file = specification(tmp_path)
    with pytest.raises(UsageError) as error:
        keywords.spec_from_flags(file, given)
    assert words in str(error.value)


def test_a_missing_file_is_named_before_missing_flags(tmp_path: Path) -> None:
    for verb in ("publish", "plan", "init"):
        refused(run(verb, tmp_path / "nofile.parquet"), 4, "nofile.parquet: no such file")
        refused(run(verb, tmp_path / "no" / "*.parquet"), 4, "*.parquet: no file matches this pattern")
    with pytest.raises(privsql.EngineError, match="no such file"):
        privsql.plan(tmp_path / "nofile.parquet")


def test_public_names_and_short_keywords() -> None:
    assert sorted(dir(privsql)) == sorted(privsql.__all__)
    with pytest.raises(UsageError, match="mean the same"):
        privsql.plan({}, qi="a", quasi_identifiers="b")
