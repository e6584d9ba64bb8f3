"""Drive privsql by its public names. Change this module alone when a verb, a flag or a key of JSON gets another name.

Tests of this folder import nothing of privsql. They write specifications as nested dictionaries with the sections and
keys of a TOML file. ``PYTHON`` and ``COMMANDS`` have the same methods, one for each verb, and return the same
``Outcome``: what an error is in Python is an exit code and one object on stdout at the command line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

import privsql
from privsql.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MANIFEST = "privsql_manifest"
WEIGHTED = "{name}_weighted"
ERRORS = (privsql.UsageError, privsql.GuaranteeError, privsql.InfeasibleError, privsql.EngineError)


@dataclass(frozen=True)
class Outcome:
    """The exit code of a verb, and its object of ``--json``. An error has the keys ``error`` and ``exit_code``."""

    code: int
    facts: dict[str, Any]
    text: str = ""

    @property
    def error(self) -> str:
        """The message of an error."""
        return str(self.facts["error"])


# Verbs in Python ------------------------------------------------------------------------------------------------------


class Python:
    """The verbs as functions of the package."""

    def init(self, source: Path, *, kind: str | None = None, sensitive: str | None = None) -> Outcome:
        """Propose a specification; its TOML is the ``text``."""
        roles = {name: value for name, value in (("mechanism", kind), ("sensitive", sensitive)) if value}
        return _guarded(lambda: Outcome(0, {}, str(privsql.init(str(source), accept=True, **roles))))

    def plan(self, spec: Mapping[str, Any]) -> Outcome:
        """Predict a release."""
        return _guarded(lambda: _told(privsql.plan(spec, threads=1)))

    def publish(
        self, spec: Mapping[str, Any], *, seed: int | None = None, key_file: Path | None = None, replace: bool = False
    ) -> Outcome:
        """Publish a release."""
        key = {"seed": seed} if key_file is None else {"key_file": key_file}
        return _guarded(lambda: _told(privsql.publish(spec, **key, replace=replace, threads=1)))

    def verify(
        self,
        release: Path,
        *,
        source: Any = None,
        against: list[Path] | None = None,
        key_file: Path | None = None,
    ) -> Outcome:
        """Check a release."""
        given = {"source": source, "against": against, "key_file": key_file}
        given = {name: value for name, value in given.items() if value is not None}

        def check() -> Outcome:
            found = privsql.verify(release, **given, threads=1)
            return _told(found, 0 if found else 1)

        return _guarded(check)

    def query(self, release: Path, sql: str, *, confidence: float | None = None) -> Outcome:
        """Answer a question."""
        given = {} if confidence is None else {"confidence": confidence}
        return _guarded(lambda: _told(privsql.query(release, sql, **given)))

    def attack(self, release: Path, *, source: Any = None, key_file: Path | None = None) -> Outcome:
        """Let adversaries try."""
        given = {} if key_file is None else {"key_file": key_file}

        def try_it() -> Outcome:
            found = privsql.attack(release, source, **given, threads=1)
            return _told(found, 0 if found.ok else 1)

        return _guarded(try_it)

    def report(self, release: Path, *, to: Path) -> Outcome:
        """Write a page; its HTML is the ``text``."""

        def write() -> Outcome:
            found = privsql.report(release, to=to)
            return Outcome(0 if found.ok else 1, found.as_json(), to.read_text("utf-8"))

        return _guarded(write)

    def ledger(self, spec: Mapping[str, Any]) -> int:
        """Return how many releases of a source the ledger lists."""
        return len(privsql.ledger(spec))

    def fit(self, release: Path) -> Outcome:
        """Fit a model to a release, in the reader's cache."""
        return _guarded(lambda: _told(privsql.fit(release)))


def _told(outcome: Any, code: int = 0) -> Outcome:
    """Return an object as ``--json`` would print it, so that both ways give the same types."""
    return Outcome(code, json.loads(json.dumps(outcome.as_json(), default=str, allow_nan=False)))


def _guarded(verb: Callable[[], Outcome]) -> Outcome:
    try:
        return verb()
    except privsql.PrivsqlError as error:
        assert isinstance(error, ERRORS), type(error)
        return Outcome(error.exit_code, {"error": str(error), "exit_code": error.exit_code})


class Asker:
    """A release that is kept open for many questions."""

    def __init__(self, release: Path) -> None:
        self.release = privsql.open(release)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.release.close()

    def ask(self, sql: str) -> Answer:
        """Answer a question that is supported."""
        return Answer(_told(self.release.query(sql)).facts)


# Verbs at the command line --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commands:
    """The verbs as commands; ``run`` takes the arguments and returns exit code, stdout and stderr."""

    run: Callable[[list[str]], tuple[int, str, str]]

    def init(self, source: Path, *, kind: str | None = None, sensitive: str | None = None) -> Outcome:
        """Propose a specification; its TOML is the ``text``."""
        roles = [*(["--mechanism", kind] if kind else []), *(["--sensitive", sensitive] if sensitive else [])]
        code, out, err = self.run(["init", str(source), "--accept", *roles])
        return Outcome(code, {"error": err, "exit_code": code} if code else {}, out)

    def plan(self, spec: Mapping[str, Any]) -> Outcome:
        """Predict a release."""
        return self._do("plan", write_spec(spec))

    def publish(
        self, spec: Mapping[str, Any], *, seed: int | None = None, key_file: Path | None = None, replace: bool = False
    ) -> Outcome:
        """Publish a release."""
        key = ["--seed", seed] if key_file is None else ["--key-file", key_file]
        return self._do("publish", write_spec(spec), *key, *(["--replace"] if replace else []))

    def verify(self, release: Path, *, source: Any = None) -> Outcome:
        """Check a release."""
        return self._do("verify", release, *self._source(source))

    def query(self, release: Path, sql: str, *, confidence: float | None = None) -> Outcome:
        """Answer a question."""
        return self._do("query", release, sql, *([] if confidence is None else ["--confidence", confidence]))

    def attack(self, release: Path, *, source: Any = None) -> Outcome:
        """Let adversaries try."""
        return self._do("attack", release, *self._source(source))

    def report(self, release: Path, *, to: Path) -> Outcome:
        """Write a page; its HTML is the ``text``."""
        done = self._do("report", release, "--to", to)
        return Outcome(done.code, done.facts, to.read_text("utf-8") if to.exists() else "")

    @staticmethod
    def _source(source: Any) -> list[object]:
        return [] if source is None else ["--source", write_spec(source)]

    def _do(self, *arguments: object) -> Outcome:
        """Run a command; stdout is one object and nothing else, on errors too, and an error is one line on stderr."""
        code, out, err = self.run([*map(str, arguments), "--json"])
        facts = json.loads(out)
        assert isinstance(facts, dict)
        if code and "exit_code" in facts:  # (k,e)-anonymous releases have a fact that is called error, too
            assert facts["exit_code"] == code
            assert err.rstrip("\n") == f"privsql: {facts['error']}"
        return Outcome(code, facts)


def _run_here(arguments: list[str]) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.stdout, done.stderr


def _run_process(arguments: list[str]) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "privsql", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


PYTHON = Python()
COMMANDS = Commands(_run_here)
PROCESSES = Commands(_run_process)


def write_spec(spec: Mapping[str, Any]) -> Path:
    """Write a specification as TOML beside its release, and return the path."""
    path = Path(spec["release"]["to"]).with_suffix(".toml")
    lines = []
    for section, keys in spec.items():
        lines += [f"[{section}]", *(f"{key} = {_spell(value)}" for key, value in keys.items())]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _spell(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_spell(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_spell, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


# What outcomes say ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The object of a query."""

    facts: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, each by the names of its columns."""
        return list(self.facts["rows"])

    @property
    def rests_on(self) -> str:
        """The weakest thing that an interval of the answer rests on."""
        return str(self.facts["rests_on"])

    @property
    def estimator(self) -> str:
        """The name of the formula."""
        return str(self.facts["estimator"])

    @property
    def not_in_release(self) -> int:
        """How many records the release lacks, as far as the answer knows."""
        (number,) = {figure["not_in_release"] for figure in self.facts["figures"]}
        return int(number)

    def figure(self, row: Mapping[str, Any], name: str = "estimate") -> Figure:
        """One figure of a row."""
        kept = name if name != "estimate" else ""
        keys = [name, *(f"{kept}_{end}".lstrip("_") for end in ("std_error", "low", "high"))]
        return Figure(*(row[key] for key in keys))


@dataclass(frozen=True)
class Figure:
    """An estimate with its standard error, which is None where there are bounds alone, and its interval."""

    estimate: float
    std_error: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Bound:
    """A promised bound, and what ``verify`` found; ``least`` says that the promise is a lower bound."""

    bound: Fraction
    found: Fraction
    least: bool = False


def read_bounds(verified: Outcome) -> dict[str, Bound]:
    """Return the bounds that ``verify`` printed by the name of the value, group or property; others have none."""
    return {
        entry["value"]: Bound(
            Fraction(entry["bound"].removeprefix(">= ")),
            Fraction(entry["found"]),
            least=entry["bound"].startswith(">= "),
        )
        for entry in verified.facts["bounds"]
        if not entry["bound"].startswith("none")
    }


def read_failed(verified: Outcome) -> set[str]:
    """Return the names of the checks that do not hold."""
    return {check["name"] for check in verified.facts["checks"] if not check["ok"]}


@dataclass(frozen=True)
class Adversary:
    """One line of ``attack``: whether resistance is promised, the highest belief (None: has none), a broken promise."""

    promised: bool
    highest: float | None
    broken: bool
    right: float | None


def read_adversaries(attacked: Outcome) -> dict[str, Adversary]:
    """Return the adversaries of ``attack`` by name."""
    return {
        entry["adversary"]: Adversary(entry["promised"], entry["highest"], entry["exceeded"], entry["right"])
        for entry in attacked.facts["adversaries"]
    }


def read_promise(facts: Mapping[str, Any]) -> str:
    """Return the sentence that names the promise of a release, as ``publish``, ``attack`` and ``report`` print it."""
    return str(facts["summary"]["promise"]["text"])
