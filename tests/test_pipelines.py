"""The snippets of docs/pipelines.md: they run, but for the one that GitHub runs, whose steps are read."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import portalocker
import pytest
import yaml

from privsql import GuaranteeError
from support.commands import PEOPLE, succeeded, tables, write
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(cron|make|yaml)\n(.*?)```", PAGE, flags=re.DOTALL))
SPEC = """
[source]
file = "{folder}/people.parquet"
[columns]
quasi_identifiers = ["age", "sex"]
sensitive = "disease"
[mechanism]
algorithm = "two-size"
threshold = "{threshold}"
[release]
name = "clinic"
to = "{folder}/clinic.duckdb"
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    (tmp_path / "spec.toml").write_text(SPEC.format(folder=tmp_path, threshold="1/2"))
    return tmp_path


def ran(steps: list[str], place: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder, with this environment's own commands before all others."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path} | more
    return subprocess.run(steps, cwd=place, env=environment, capture_output=True, text=True, check=False)


def shell(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    return ran(["sh", "-c", command], place)


@pytest.mark.soak(part="long")
def test_the_line_of_cron_hands_out_what_was_verified(clinic: Path) -> None:
    """A second run hands out the same; where the next is another one, the last is kept."""
    command = BLOCKS["cron"].split(maxsplit=5)[5].replace("/srv/clinic", str(clinic))
    made = []
    for _ in range(2):
        done = shell(command, clinic)
        assert (done.returncode, done.stderr) == (0, "")
        made.append(tables(clinic / "public.duckdb"))
    assert made[0] == made[1]
    public = (clinic / "public.duckdb").read_bytes()
    write(clinic / "people.parquet", PEOPLE.format(n=401))
    done = shell(command, clinic)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert (clinic / "public.duckdb").read_bytes() == public


@pytest.mark.soak(part="long")
def test_make_publishes_once_and_verifies(clinic: Path) -> None:
    (clinic / "Makefile").write_text(BLOCKS["make"])
    assert shell("make verified", clinic).returncode == 0
    assert "up to date" in shell("make verified", clinic).stdout
    (clinic / "spec.toml").write_text(SPEC.format(folder=clinic, threshold="1/50"))
    os.utime(clinic / "spec.toml", (2**31, 2**31))
    assert "Error 1" in shell("make verified", clinic).stderr


def snippet(name: str, place: Path) -> Path:
    """The Python under a heading of the page, for specifications in a folder: ``jobs/clinic.py`` there."""
    text = PAGE.partition(f"## {name}\n")[2].partition("```python\n")[2].partition("```")[0]
    (place / "jobs").mkdir(exist_ok=True)
    (place / "jobs" / "clinic.py").write_text(text.replace("/srv/clinic", str(place)))
    return place / "jobs" / "clinic.py"


class Step:
    """A task of a scheduler, and what comes after it: either runs in this process."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def __rshift__(self, after: Step) -> None:
        self.function()
        _, *arguments = shlex.split(after.function())
        succeeded(*arguments)


class FailedForGood(Exception):  # noqa: N818
    """In place of Airflow's."""


def schedulers_in_short() -> dict[str, ModuleType]:
    """Modules with as much of Airflow and Dagster as the snippets name; their tasks run at once."""
    airflow, sdk, exceptions, dagster = map(ModuleType, ("airflow", "sdk", "exceptions", "dagster"))

    def task(**_: object) -> Callable[[Callable[[], Any]], Callable[[], Step]]:
        return lambda function: lambda: Step(function)

    task.bash = task()  # type: ignore[attr-defined]
    vars(sdk).update(task=task, dag=lambda **_: lambda function: function)
    vars(exceptions).update(AirflowFailException=FailedForGood)
    vars(dagster).update(asset=lambda function: function, asset_check=lambda asset: lambda function: function)
    vars(dagster).update(MaterializeResult=SimpleNamespace, AssetCheckResult=SimpleNamespace)
    return {"airflow": airflow, "airflow.sdk": sdk, "airflow.sdk.exceptions": exceptions, "dagster": dagster}


@pytest.mark.slow
def test_snippets_of_schedulers_publish_and_verify(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as they go without the schedulers: a second run is the same release, what can't be met ends for good."""
    for name, module in schedulers_in_short().items():
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(snippet("Airflow", clinic)))
    first = tables(clinic / "clinic.duckdb")
    job = runpy.run_path(str(snippet("Dagster", clinic)))
    assert job["clinic"]().metadata["records"] == 400
    assert job["verified"]().passed is True
    assert tables(clinic / "clinic.duckdb") == first
    (clinic / "spec.toml").write_text(SPEC.format(folder=clinic, threshold="1/50"))
    with pytest.raises(FailedForGood, match="is of this population"):
        runpy.run_path(str(snippet("Airflow", clinic)))
    with pytest.raises(GuaranteeError, match="is of this population"):
        job["clinic"]()
    assert tables(clinic / "clinic.duckdb") == first


SCHEDULERS = ["sh", str(ROOT / "tests" / "schedulers.sh")]


@pytest.fixture(scope="module")
def schedulers() -> None:
    """Their environment, which tests in two processes don't make at once."""
    with portalocker.Lock(ROOT / ".venv-schedulers.lock", timeout=600):
        made = ran([*SCHEDULERS, "python", "-c", ""], ROOT)
    if made.returncode == 69:
        pytest.skip(f"the schedulers can't be had: {made.stderr[-200:]}")


def scheduled(clinic: Path, name: str, *command: object) -> subprocess.CompletedProcess[str]:
    """A command of the environment with the schedulers; the snippet under a heading lies in ``jobs/clinic.py``."""
    jobs = snippet(name, clinic).parent
    settings = {
        "AIRFLOW_HOME": str(clinic / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(jobs),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    }
    return ran([*SCHEDULERS, *map(str, command)], jobs, **settings)


@pytest.mark.soak(part="services")
@pytest.mark.usefixtures("schedulers")
def test_airflow_runs_its_snippet(clinic: Path) -> None:
    """What can't succeed fails at once, with privsql's line, and leaves the last release."""
    assert scheduled(clinic, "Airflow", "airflow", "db", "migrate").returncode == 0
    done = scheduled(clinic, "Airflow", "airflow", "dags", "test", "clinic")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AirflowFailException is deprecated" not in done.stdout + done.stderr
    assert "clinic.duckdb: verified" in done.stdout + done.stderr
    before = (clinic / "clinic.duckdb").read_bytes()
    (clinic / "spec.toml").write_text(SPEC.format(folder=clinic, threshold="1/50"))
    refused = scheduled(clinic, "Airflow", "airflow", "dags", "test", "clinic")
    assert refused.returncode == 1
    assert (
        "AirflowFailException: release 1 (clinic, bucketize) is of this population" in refused.stdout + refused.stderr
    )
    assert "up_for_retry" not in refused.stdout + refused.stderr
    assert (clinic / "clinic.duckdb").read_bytes() == before


DAGSTER = """
import dagster as dg
from clinic import clinic, verified
done = dg.materialize([clinic, verified], raise_on_error=False)
ended = [one for one in done.all_events if one.event_type_value == "ASSET_CHECK_EVALUATION"]
checks = [one.asset_check_evaluation_data.passed for one in ended]
print(done.success, checks)
"""


@pytest.mark.soak(part="services")
@pytest.mark.usefixtures("schedulers")
def test_dagster_runs_its_snippet(clinic: Path) -> None:
    """An asset with a check that passes; what can't be published fails with privsql's line."""
    done = scheduled(clinic, "Dagster", "python", "-c", DAGSTER)
    assert done.stdout.splitlines()[-1:] == ["True [True]"], done.stderr
    before = (clinic / "clinic.duckdb").read_bytes()
    (clinic / "spec.toml").write_text(SPEC.format(folder=clinic, threshold="1/50"))
    refused = scheduled(clinic, "Dagster", "python", "-c", DAGSTER)
    assert refused.stdout.splitlines()[-1:] == ["False []"], refused.stderr
    assert "GuaranteeError: release 1 (clinic, bucketize) is of this population" in refused.stderr
    assert (clinic / "clinic.duckdb").read_bytes() == before


def test_the_steps_for_github_can_be_read() -> None:
    steps = yaml.safe_load(BLOCKS["yaml"])["jobs"]["verify"]["steps"]
    assert steps[-1]["run"] == "privsql verify clinic.duckdb --json"
