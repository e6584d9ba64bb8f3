"""The releases that are served: each open as often as it is asked at once, each with a name for addresses."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from privsql.errors import UsageError
from privsql.releases.opened import Release
from privsql.serving.form import form

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from privsql.answers.answer import Answer
    from privsql.answers.limits import Limits
    from privsql.engine.progress import Options

LONGEST = 40  # characters of a name in an address


class Served:
    """A release that is served as ``slug``. Whoever asks takes one of its openings, or makes a further one."""

    def __init__(self, path: Path, slug: str, attach: Sequence[Path], options: Options) -> None:
        self.path, self.slug = path, slug
        self._attach, self._options = tuple(attach), options
        self._turn, self._closed = threading.Lock(), False
        first = self._open()
        self._idle = [first]
        self.manifest, self.form = first.manifest, form(first)

    def _open(self) -> Release:
        return Release(self.path, self._attach, self._options)

    def ask(self, sql: str, confidence: float, limits: Limits, estimator: str) -> Answer:
        """The answer to a query, as ``privsql query`` gives it."""
        with self._opening() as release:
            return release.query(sql, confidence=confidence, estimator=estimator, limits=limits)

    @contextmanager
    def _opening(self) -> Iterator[Release]:
        with self._turn:
            release = self._idle.pop() if self._idle else None
        if release is None:
            release = self._open()
            if release.manifest != self.manifest:
                release.close()
                raise UsageError(f"{self.path.name} is another release than at the beginning; serve it anew")
        try:
            yield release
        finally:
            with self._turn:
                if not self._closed:
                    self._idle.append(release)
            if self._closed:
                release.close()

    def close(self) -> None:
        """Close it; what is being asked closes its opening itself."""
        with self._turn:
            self._closed = True
            idle, self._idle = self._idle, []
        for release in idle:
            release.close()


@contextmanager
def opened(paths: Sequence[Path], attach: Sequence[Path], options: Options) -> Iterator[dict[str, Served]]:
    """Several releases by their names in addresses; ``UsageError`` for none."""
    if not paths:
        raise UsageError("name at least one release to serve")
    with ExitStack() as stack:
        found: dict[str, Served] = {}
        for path in paths:
            slug = _slug(path, found)
            found[slug] = Served(path, slug, attach, options)
            stack.callback(found[slug].close)
        yield found


def _slug(path: Path, taken: dict[str, Served]) -> str:
    """A name of letters and digits after that of the file (and its schema), beside others."""
    own = re.sub(r"[^a-z0-9]+", "-", path.name.lower().replace(".duckdb", "")).strip("-")[:LONGEST] or "release"
    beside = (own if k == 1 else f"{own}-{k}" for k in range(1, len(taken) + 2))
    return next(one for one in beside if one not in taken)
