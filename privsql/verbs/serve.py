"""Run a local web page on which people query releases without SQL."""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING, Unpack

from privsql.calls import as_paths, as_whole_number
from privsql.engine.database import RunKeywords, options_from
from privsql.errors import GuaranteeError, UsageError
from privsql.source.targets import as_targets
from privsql.system import SERVING
from privsql.verbs.verify import verify as check_release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.calls import PathLike


LONGEST, MOST_ROWS, MOST_AT_ONCE = 3_600, 1_000_000, 64
PORT, SECONDS, PAGE_ROWS, AT_ONCE = 8317, 30, 20_000, 2


def serve(
    releases: Sequence[PathLike] | PathLike,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: bool = False,
    allow_host: Sequence[str] | str = (),
    attach: Sequence[PathLike] | PathLike = (),
    timeout: int = SECONDS,
    rows: int = PAGE_ROWS,
    at_once: int = AT_ONCE,
    verify: bool = False,
    fit: bool = True,
    open: bool = False,  # noqa: A002 (as the flag is called)
    started: Callable[[str], None] | None = None,
    **how: Unpack[RunKeywords],
) -> None:
    """Serve a web page on which people ask one or several releases questions. It runs until Ctrl-C.

    Args:
        releases: The releases.
        host: The address to listen at; by default only this machine can connect. At any other address a client needs a
            token.
        port: The port; 0 for any free one.
        token: Whether a token is needed on this machine, too.
        allow_host: Host names under which browsers may reach this machine.
        attach: Files whose tables questions may join.
        timeout: The most seconds that the engine may take for a question.
        rows: The most rows of an answer.
        at_once: The most questions that are answered at the same time.
        verify: Whether to check every release first.
        fit: Whether to fit a model first to a release without one, if that takes at most about 15 seconds.
        open: Whether to open the page in a browser, which is possible only without a token.
        started: A function that is called with the page's address, including the token, once the page can be reached.
            By default the address is printed.
        **how: How the engine runs (``RunKeywords``).

    Raises:
        GuaranteeError: With ``verify``, a check of a release does not hold.
        EngineError: The extra ``privsql[serve]`` is missing, or the port is taken.
    """
    SERVING.require_installed()
    from privsql.serving import server
    from privsql.serving.guard import QueryQueue, open_pools

    targets, files = as_targets(releases, "release", how.get("connection")), as_paths(attach, "attach")
    queue = QueryQueue(
        as_whole_number(at_once, "at_once", most=MOST_AT_ONCE),
        as_whole_number(timeout, "timeout", most=LONGEST),
        as_whole_number(rows, "rows", most=MOST_ROWS),
    )
    hosts = (allow_host,) if isinstance(allow_host, str) else tuple(allow_host)

    def begun(address: str) -> None:
        (started or _print_address)(address)
        if open:
            webbrowser.open(address)

    with options_from(how, serve) as options:
        for target in targets if verify else ():
            if not check_release(target, options=options).ok:
                raise GuaranteeError(f"{target}: does not keep its promise; run privsql verify for details")
        with open_pools(targets, files, options, fit=fit) as served:
            number = as_whole_number(port, "port", least=0, most=65_535)
            listener = server.open_listener(host, number, token=token, hosts=hosts)
            with listener.socket:
                if open and listener.token is not None:
                    raise UsageError("option open would show the token in the process list; open the address yourself")
                server.run_server(served, listener, queue, begun, verified=verify)


def _print_address(address: str) -> None:
    sys.stdout.write(f"serving at {address} (Ctrl-C ends it)\n")
    sys.stdout.flush()
