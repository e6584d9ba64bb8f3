"""Changes of a release after it was published, and what ``verify`` says of it then."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from privsql.engine.duck.container import BLOCK, STORAGE
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import table
from privsql.releases.contents import complete_folder
from privsql.releases.opened import attach_release
from privsql.source.targets import as_target
from support.commands import MANIFEST, Outcome, run

if TYPE_CHECKING:
    from collections.abc import Callable


def stating(key: str, change: Callable[[Any], Any]) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """A change of one entry of the manifest."""

    def apply(db: duckdb.DuckDBPyConnection) -> None:
        (text,) = db.execute(f"SELECT value FROM {MANIFEST} WHERE key = ?", [key]).fetchall()[0]
        db.execute(f"UPDATE {MANIFEST} SET value = ? WHERE key = ?", [json.dumps(change(json.loads(text))), key])

    return apply


def fact(key: str, change: Callable[[Any], Any]) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """A change of one of the manifest's facts."""
    return stating("facts", lambda facts: facts | {key: change(facts[key])})


def with_facts(**facts: Any) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """Facts of the manifest that state something else."""
    return stating("facts", lambda stated: stated | facts)


def parameter(key: str, value: Any) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """A change of one of the manifest's parameters."""
    return stating("parameters", lambda parameters: parameters | {key: value})


def changed(release: Path, folder: Path, change: str | Callable[[duckdb.DuckDBPyConnection], None]) -> Path:
    """A copy of a release after a change, which is SQL or is made by a function."""
    made = Path(shutil.copy(release, folder))
    with duckdb.connect(str(made)) as db:
        change(db) if callable(change) else db.execute(change)
    rewrite(made)
    return made


def rewrite(release: Path) -> None:
    """Write a database file anew, without the blocks and rows that a change left in it."""
    fresh = release.with_name(f"fresh-{release.name}")
    with duckdb.connect() as db:
        db.execute(f"ATTACH '{release}' AS old (READ_ONLY)")
        db.execute(f"ATTACH '{fresh}' AS fresh (BLOCK_SIZE {BLOCK}, STORAGE_VERSION '{STORAGE}')")
        db.execute("COPY FROM DATABASE old TO fresh")
    fresh.replace(release)


def not_verified(release: Path, *flags: str) -> Outcome:
    """What ``verify`` says of a release that it must refuse."""
    done = run("verify", release, *flags)
    assert done.crash is None, repr(done.crash)
    assert done.code in {1, 4}, done.out
    return done


def asked_without_a_traceback(release: Path, *commands: tuple[str, ...]) -> None:
    """Each command, a verb and what follows the release, ends with an answer or in one line."""
    for verb, *rest in commands:
        done = run(verb, release, *rest)
        assert done.crash is None, (verb, repr(done.crash))


def failed(done: Outcome) -> dict[str, list[str]]:
    """The checks that failed, with the offending rows that are shown."""
    assert done.crash is None, repr(done.crash)
    shown = done.json
    assert done.code == 1, done.err + done.out
    assert shown["ok"] is False
    found = {check["name"]: check.get("offending", []) for check in shown["checks"] if not check["ok"]}
    assert found
    assert all(check["violations"] > 0 for check in shown["checks"] if not check["ok"])
    return found


def as_folder(file: Path, folder: Path) -> Path:
    """The release of a file as a folder of Parquet files."""
    folder.mkdir()
    with attach_release(as_target(file)) as (_, release), open_scratch() as db:
        db.attach(file, "made", read_only=True)
        for name in release.tables:
            db.export_parquet(table(name, "made"), folder / f"{name}.parquet")
        complete_folder(db, release, folder)
    return folder


def seal(folder: Path) -> Path:
    """State the files of a folder anew, as whoever changes them can: then the other checks see the change."""
    place, files = folder / f"{MANIFEST}.parquet", {}
    for path in sorted(one for one in folder.rglob("*.parquet") if one.is_file() and one != place):
        content = path.read_bytes()
        stated = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        files[path.relative_to(folder).as_posix()] = stated
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE m AS FROM '{place}'")
        db.execute("UPDATE m SET value = ? WHERE key = 'files'", [json.dumps(files)])
        db.execute(f"COPY m TO '{place}' (COMPRESSION zstd, WRITE_BLOOM_FILTER false)")
    return name_manifest(folder)


def name_manifest(folder: Path) -> Path:
    """Name the manifest of a folder anew in its script."""
    script = folder / "views.sql"
    digest = hashlib.sha256((folder / f"{MANIFEST}.parquet").read_bytes()).hexdigest()
    text = re.sub("^-- [0-9a-f]{64}$", f"-- {digest}", script.read_text("utf-8"), flags=re.MULTILINE)
    for table_folder in (one for one in folder.glob("*.parquet") if one.is_dir()):
        text = text.replace(f"'{table_folder.name}'", f"'{table_folder.name}/*.parquet'")
    script.write_text(text, "utf-8", newline="\n")
    return folder
