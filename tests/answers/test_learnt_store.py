"""What was learnt, kept for the next time: read back exactly, never believed where it could not have been learnt."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from privsql.answers import learned_prior
from privsql.answers.learned_prior import STRENGTHS
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

NAME, COLUMNS = "a" * 40, ["age", "sex"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv(learned_prior.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def learnt(values: int = 3) -> tuple[NDArray[np.float64], learned_prior.Weights]:
    """Something that could have been learnt."""
    rng = np.random.default_rng(values)
    root = rng.standard_normal((values, values))
    whole = root @ root.T
    names = ("", *COLUMNS)
    weights = {name: (rng.dirichlet(np.ones(len(STRENGTHS))), rng.dirichlet(np.ones(len(STRENGTHS)))) for name in names}
    return (whole + whole.T) / 2, weights


def kept(values: int = 3) -> tuple[NDArray[np.float64], learned_prior.Weights]:
    """It is kept, and there."""
    given = learnt(values)
    learned_prior.store_weights(NAME, *given)
    found = learned_prior.read_weights(NAME, values, COLUMNS)
    assert found is not None
    return found


def file(folder: Path) -> Path:
    """The one file."""
    (only,) = folder.iterdir()
    return only


@each("values", [1, 3, 40])
def test_what_is_kept_is_read_back(values: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bit by bit; private to the user, whatever the umask."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("kept") / "deep" / "cache"
        patch.setenv(learned_prior.VARIABLE, str(folder))
        before = os.umask(0)
        try:
            found, given = kept(values), learnt(values)
        finally:
            os.umask(before)
        np.testing.assert_array_equal(found[0], given[0])
        assert found[1].keys() == given[1].keys()
        for name, pair in given[1].items():
            np.testing.assert_array_equal(found[1][name], pair)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert file(folder).stat().st_mode & 0o777 == 0o600


def rewritten(path: Path, change: Callable[[bytearray], object]) -> None:
    """Change what is after the digest, and put the right digest before it."""
    content = bytearray(path.read_bytes()[learned_prior.DIGEST :])
    change(content)
    path.write_bytes(hashlib.blake2b(content, digest_size=learned_prior.DIGEST).digest() + bytes(content))


def number(content: bytearray, at: int, value: float) -> None:
    """Put another number at place ``at``."""
    content[8 * at : 8 * at + 8] = np.array([value], dtype="<f8").tobytes()


FORGED: dict[str, Callable[[bytearray], object]] = {
    "not symmetric": lambda content: number(content, 1, 7.5),
    "not positive": lambda content: number(content, 0, -9.0),
    "not finite": lambda content: number(content, 4, np.nan),
    "absurd": lambda content: number(content, 4, 1e300),
    "infinite": lambda content: number(content, 4, np.inf),
    "a weight below 0": lambda content: (number(content, 9, -0.5), number(content, 10, 1.5)),
    "weights of 2": lambda content: [number(content, 9 + i, 2 / len(STRENGTHS)) for i in range(len(STRENGTHS))],
    "a weight that is none": lambda content: number(content, 9, np.nan),
    "one number more": lambda content: content.extend(b"\0" * 8),
    "one number less": lambda content: content.__delitem__(slice(-8, None)),
    "nothing": lambda content: content.clear(),
}


@each("forgery", FORGED)
def test_what_can_not_have_been_learnt_is_not_believed(forgery: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Even with the right digest."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("forged")
        patch.setenv(learned_prior.VARIABLE, str(folder))
        kept()
        rewritten(file(folder), lambda content: None)
        assert learned_prior.read_weights(NAME, 3, COLUMNS) is not None
        rewritten(file(folder), FORGED[forgery])
        assert learned_prior.read_weights(NAME, 3, COLUMNS) is None


@each("at", [0, 31, 32, 60, -1])
def test_a_flipped_bit_is_seen(at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Wherever it is."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("flipped")
        patch.setenv(learned_prior.VARIABLE, str(folder))
        kept()
        content = bytearray(file(folder).read_bytes())
        content[at] ^= 1
        file(folder).write_bytes(content)
        assert learned_prior.read_weights(NAME, 3, COLUMNS) is None


@pytest.mark.parametrize("left", [0, 5, 32, 100])
def test_a_torn_file_is_seen(left: int, folder: Path) -> None:
    """And written anew."""
    kept()
    file(folder).write_bytes(file(folder).read_bytes()[:left])
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None
    kept()


def test_of_another_release_nothing_is_read(folder: Path) -> None:
    """Another name, another number of values or of columns."""
    kept()
    assert learned_prior.read_weights("b" * 40, 3, COLUMNS) is None
    assert learned_prior.read_weights(NAME, 4, COLUMNS) is None
    assert learned_prior.read_weights(NAME, 3, COLUMNS[:1]) is None
    assert file(folder).name.startswith(NAME)


def test_links_and_what_is_no_file_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """Not read; a link is replaced, and what it points to stays as it is."""
    kept()
    path, elsewhere = file(folder), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    content = elsewhere.read_bytes()
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None
    kept()
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == content
    path.unlink()
    path.mkdir()
    learned_prior.store_weights(NAME, *learnt())
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None
    path.rmdir()
    os.mkfifo(path)
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None  # and nobody waits for a writer


def test_where_nothing_can_be_written_nothing_happens(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the folder's place, or in that of one above it."""
    folder.write_text("a file")
    learned_prior.store_weights(NAME, *learnt())
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None
    assert folder.read_text() == "a file"
    monkeypatch.setenv(learned_prior.VARIABLE, str(folder / "below"))
    learned_prior.store_weights(NAME, *learnt())
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_nothing_is_left_of_a_write_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No draft beside it."""
    folder.mkdir()
    (folder / f"{NAME}{learned_prior.ENDING}").mkdir()
    learned_prior.store_weights(NAME, *learnt())
    assert [path.name for path in folder.iterdir()] == [f"{NAME}{learned_prior.ENDING}"]


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable; the home folder stays as it is."""
    monkeypatch.setenv(learned_prior.VARIABLE, learned_prior.OFF)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    learned_prior.store_weights(NAME, *learnt())
    assert learned_prior.read_weights(NAME, 3, COLUMNS) is None
    assert not list(tmp_path.iterdir())


def test_the_systems_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG's folder, where it is an absolute path; else the one in the home folder."""
    monkeypatch.delenv(learned_prior.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert learned_prior.cache_folder() == tmp_path / "xdg" / "privsql"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr("sys.platform", "linux")
    assert learned_prior.cache_folder() == tmp_path / ".cache" / "privsql"
    monkeypatch.setattr("sys.platform", "darwin")
    assert learned_prior.cache_folder() == tmp_path / "Library" / "Caches" / "privsql"


def test_old_files_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ones stay; what else lies there does too."""
    monkeypatch.setattr(learned_prior, "MOST_FILES", 2)
    for i, name in enumerate("dcba"):
        learned_prior.store_weights(name * 40, *learnt())
        os.utime(folder / f"{name * 40}{learned_prior.ENDING}", (i, i))
    (folder / "note.txt").write_text("mine")
    learned_prior.store_weights(NAME, *learnt())
    assert sorted(path.name[0] for path in folder.iterdir()) == ["a", "b", "n"]
