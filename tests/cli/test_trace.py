"""``publish --trace``: what happens in the database, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import privsql
from privsql.engine.sqlfiles import text
from support.commands import PEOPLE, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_it_lists_the_files_of_a_run_in_order_with_rows(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    spec = specification(tmp_path)
    trace = succeeded("publish", spec, "--trace", "--json").json["trace"]
    files = [one["file"] for one in trace if one["file"]]
    assert all(text(name) for name in files)
    wanted = ["core/domain", "bucketize/qit", "bucketize/values", "verify/thresholds_hold"]
    assert [name for name in dict.fromkeys(files) if name in wanted] == wanted
    made = {one["relation"]: one["rows"] for one in trace if one["relation"]}
    assert (made["qit"], made["domain"]) == (400, 6)
    assert {one["step"] for one in trace if one["file"] == "verify/thresholds_hold"} == {"Checking the release"}
    assert all(one["seconds"] >= 0 for one in trace)
    shown = succeeded("publish", spec, "--trace", "--replace").out
    assert "bucketize/qit" in shown


def test_without_it_nothing_is_listed(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    done = privsql.publish(specification(tmp_path))
    assert done.trace == ()
    assert "trace" not in done.as_json()
