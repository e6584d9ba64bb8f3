"""A specification from TOML, numbers exactly as written, or from plain data; paths in a file are relative to it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from privsql.calls import PathLike, as_path, at_home, exactly
from privsql.engine.files import is_files, scheme
from privsql.errors import EngineError, UsageError
from privsql.source.frames import is_table
from privsql.source.places import WHEREVER, placed
from privsql.source.spec import Spec

HERE = Path()


def load(path: PathLike, *, source: object | None = None) -> Spec:
    """Read a specification from a TOML file; ``source``: what stands in place of the file that it names, such as a
    table in Python; what else ``[source]`` says of it (id, name, person, persons, query) stays.

    Raises ``EngineError`` if it can't be read and ``UsageError``, naming the key, if it is not valid.
    """
    path = as_path(path)
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "is no text in UTF-8, as the TOML of a specification is"
        )
        raise EngineError(f"{path}: {reason}") from error
    try:
        raw = tomllib.loads(content, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    return build(raw, base=path.parent, origin=str(path), source=source)


def build(
    raw: Mapping[str, Any],
    *,
    base: PathLike = HERE,
    origin: str = "specification",
    source: object | None = None,
) -> Spec:
    """A validated specification from plain data, as TOML gives it; relative paths are taken from ``base``, ``~`` is the
    home folder.

    A float means the decimal that it prints. ``source``, here or as the key of that name, may be a table in Python or
    the name of a file. Raises ``UsageError``, naming the key, for what is not valid.
    """
    if not isinstance(raw, Mapping):
        raise UsageError(f"{origin}: {type(raw).__name__} is no table of keys and values")
    given, base = dict(raw), as_path(base)
    stated = given.pop("source", None)
    if isinstance(source, str | os.PathLike) and not scheme(os.fspath(source)):
        source = os.path.abspath(at_home(Path(source)))  # noqa: PTH100 (a pattern) not from ``base``: a caller says it
    where = place(stated if source is None else source)
    if source is not None and isinstance(stated, Mapping) and isinstance(where, dict):
        where = {key: stated[key] for key in WHEREVER if key in stated} | where
    try:
        spec = Spec.model_validate(exactly(given) | ({"source": where} if where is not None else {}))
        if spec.source.frame is not None:
            spec.source.frame.refuse(spec.columns.names, queried=spec.source.query is not None)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from error
    there = spec.source.placed(base)
    release = spec.release.model_copy(update={"to": placed(base, spec.place)})
    ledger = spec.ledger
    if ledger is not None and ledger.database is not None:
        ledger = ledger.model_copy(update={"database": placed(base, ledger.database)})
    return spec.model_copy(update={"source": there, "release": release, "ledger": ledger})


def place(given: object) -> object:
    """The table ``[source]`` for a table in Python or the path of a file; anything else as it is.

    >>> place("people.parquet")
    {'file': 'people.parquet'}
    """
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        return {"file" if is_files(name) else "database": name}
    return {"frame": given} if is_table(given) else given
