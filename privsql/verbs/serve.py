"""A page to ask releases at: for people who write no SQL."""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING, Unpack

from privsql.calls import as_paths, whole
from privsql.engine.progress import Running, running
from privsql.errors import GuaranteeError, UsageError
from privsql.extras import SERVING
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from privsql.calls import PathLike
    from privsql.engine.progress import Options

LONGEST, MOST_ROWS, MOST_AT_ONCE = 3_600, 1_000_000, 64
PORT, SECONDS, ROWS, AT_ONCE = 8317, 30, 20_000, 2


def serve(  # noqa: PLR0913 (a keyword for every flag)
    releases: Sequence[PathLike] | PathLike,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: bool = False,
    allow_host: Sequence[str] | str = (),
    attach: Sequence[PathLike] | PathLike = (),
    timeout: int = SECONDS,
    rows: int = ROWS,
    at_once: int = AT_ONCE,
    verify: bool = False,
    open: bool = False,  # noqa: A002 (as the flag is called)
    started: Callable[[str], None] | None = None,
    **how: Unpack[Running],
) -> None:
    """Serve a page to ask one or several releases at, until Ctrl-C.

    ``host``: this machine alone by default; at another address whoever asks needs a token, which stands in the address
    that ``started`` is called with (by default it is printed) once the page is there. ``token``: one is needed here,
    too; ``port`` 0: a free one; ``allow_host``: names under which browsers know the machine; ``attach``: files whose
    tables may be joined; ``timeout``: seconds of the engine's for a question; ``rows``: that an answer may have;
    ``at_once``: questions; ``verify``: check every release before, ``GuaranteeError`` for one that does not hold;
    ``open``: show it in a browser, which goes without a token alone. ``EngineError`` where the extra
    ``privsql[serve]`` is missing or the port is taken.
    """
    SERVING.need()
    from privsql.serving import running as server  # noqa: PLC0415 (an extra)
    from privsql.serving.shelf import opened  # noqa: PLC0415 (takes long to import)

    paths, files = as_paths(releases, "release"), as_paths(attach, "attach")
    manners = server.Manners(
        whole(at_once, "at_once", most=MOST_AT_ONCE),
        whole(timeout, "timeout", most=LONGEST),
        whole(rows, "rows", most=MOST_ROWS),
    )
    hosts = (allow_host,) if isinstance(allow_host, str) else tuple(allow_host)

    def begun(address: str) -> None:
        (started or _said)(address)
        if open:
            webbrowser.open(address)

    with running(how, serve) as options:
        if verify:
            _verified(paths, options)
        with opened(paths, files, options) as served:
            place = server.door(host, whole(port, "port", least=0, most=65_535), token=token, hosts=hosts)
            with place.socket:
                if open and place.token is not None:
                    raise UsageError(
                        "--open would show the token to whoever lists processes; open the address yourself"
                    )
                server.run(served, place, manners, begun, verified=verify)


def _said(address: str) -> None:
    sys.stdout.write(f"serving at {address} (Ctrl-C ends it)\n")
    sys.stdout.flush()


def _verified(paths: Sequence[Path], options: Options) -> None:
    for path in paths:
        if not verify(path, options=options).ok:
            raise GuaranteeError(f"{path}: does not hold what it promises; privsql verify tells more")
