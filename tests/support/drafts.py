"""Two publications that take the same schema at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from privsql.errors import PrivsqlError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from privsql.releases.opened import SchemaDraft


def commit_at_once(open_draft: Callable[[], AbstractContextManager[SchemaDraft]], file: Path) -> list[PrivsqlError]:
    """Commit a file by two drafts that are open at the same time; return the errors of those that are refused."""
    errors: list[PrivsqlError] = []
    barrier = threading.Barrier(2, timeout=20)

    def commit() -> None:
        with open_draft() as draft:
            barrier.wait()
            try:
                draft.commit(file)
            except PrivsqlError as error:
                errors.append(error)

    threads = [threading.Thread(target=commit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors
