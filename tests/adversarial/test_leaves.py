"""Every leaf of every manifest, changed: verify finds it, or it is the publisher's word and listed here."""

from __future__ import annotations

import copy
import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from privsql import PrivsqlError, load, verify
from support.commands import MANIFEST, manifest
from support.places import ROOT
from support.tampering import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    Leaf = tuple[Any, ...]
    Change = Callable[[Any, Any], None]

# What neither the release nor its source can tell; SECURITY.md says the same.
WORD = {
    "privsql": "the version that made the release; another one's releases are told so in a note",
    "duckdb": "the version of the engine that made it",
    "randomness": "where the random numbers came from",
    "composition": "what else was published of the same people",
    "parameters.allow_certain": "that certain values are meant; checked where there are some",
    "parameters.allow_empty": "that a release of which little was kept is meant; what was kept is recomputed",
    "facts.errors": "how far estimates err; a mean factor of two beside a rehearsal here is refused",
    "facts.opendp": "the version of OpenDP that drew the noise; newer than the installed one is refused",
}
WORDS = ("certificate", "solver", "none", "suppress", "value", "seed", "system", "key-file", "exact", "bound")
MADE = {
    "ward": ("ill.duckdb", "spec.toml"),
    "hospital": ("pp.duckdb", "pp.toml"),
    "firm": ("ill.duckdb", "spec.toml"),
    "shop": ("shop.duckdb", "spec.toml"),
    "town": ("people.duckdb", "spec.toml"),
    "census": ("people.duckdb", "spec.toml"),
}


def leaves(value: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """Every number, text, flag and nothing in an object, with the way to it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, part in inner for leaf in leaves(part, (*path, key))]
    yield from found or [(path, value)]


def setting(value: Any) -> Change:
    def change(holder: Any, key: Any) -> None:
        holder[key] = value

    return change


def deleting(holder: Any, key: Any) -> None:
    del holder[key]


def changes(value: Any) -> Iterator[Change]:
    """Numbers and texts that stand for something else, and nothing."""
    if isinstance(value, bool):
        yield setting(not value)
    elif isinstance(value, int | float):
        yield from (setting(value + 1), setting(value - 1), setting(value * 2 + type(value)(1)))
    elif isinstance(value, str):
        yield from (setting(value + "1"), *(setting(word) for word in WORDS if word != value))
    else:
        yield from (setting(1), setting("a"), setting(["a"]), setting({"a": 1}))
    yield deleting


def changed(stated: dict[str, Any], path: Leaf, change: Change) -> dict[str, Any]:
    """A manifest with one leaf changed."""
    made = copy.deepcopy(stated)
    holder: Any = made
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return made


def written(release: Path, copy_: Path, stated: dict[str, Any]) -> Path:
    """A copy of a release with another manifest."""
    shutil.copy(release, copy_)
    with duckdb.connect(str(copy_)) as db:
        db.execute(f"DELETE FROM {MANIFEST}")
        db.executemany(f"INSERT INTO {MANIFEST} VALUES (?, ?)", [[key, json.dumps(v)] for key, v in stated.items()])
    rewrite(copy_)
    return copy_


def passes(release: Path, spec: Path) -> bool:
    """Whether a release is verified, alone and against its source."""
    for source in (None, load(spec)):
        try:
            if not verify(release, source).ok:
                return False
        except PrivsqlError:
            return False
    return True


def cases(stated: dict[str, Any], seed: int) -> list[tuple[Leaf, Change]]:
    """One change of every leaf."""
    draw = random.Random(seed)  # noqa: S311 (no secret)
    return [(path, draw.choice(list(changes(value)))) for path, value in leaves(stated)]


def beyond_words(found: Iterable[str]) -> list[str]:
    """The leaves, as dotted ways, that are not the publisher's word."""
    return [name for name in found if not any(name == word or name.startswith(f"{word}.") for word in WORD)]


def undetected(folder: Path, made: str, tmp_path: Path, chosen: slice, seed: int = 1) -> list[str]:
    """Leaves of which a change passes, of some of the changes."""
    release, spec = (folder / name for name in MADE[made])
    stated, found = manifest(release), set()
    assert passes(written(release, tmp_path / "same.duckdb", stated), spec)
    for path, change in cases(stated, seed)[chosen]:
        other = changed(stated, path, change)
        if other != stated and passes(written(release, tmp_path / "other.duckdb", other), spec):
            found.add(".".join(map(str, path)))
    return sorted(found)


@pytest.mark.parametrize(
    "step", [pytest.param(24, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak(part="mutations"))]
)
@pytest.mark.parametrize("made", MADE)
def test_a_change_of_every_leaf_is_found(request: pytest.FixtureRequest, tmp_path: Path, made: str, step: int) -> None:
    assert beyond_words(undetected(request.getfixturevalue(made), made, tmp_path, slice(None, None, step))) == []


@pytest.mark.slow
def test_the_walk_sees_what_passes(ward: Path, tmp_path: Path) -> None:
    other = manifest(ward / "ill.duckdb") | {"duckdb": "99.0.0"}
    assert passes(written(ward / "ill.duckdb", tmp_path / "other.duckdb", other), ward / "spec.toml")


def test_what_is_the_publishers_word_is_said() -> None:
    said = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert [name for name in WORD if f"`{name.split('.')[-1]}`" not in said] == []
