"""Releases behind the page of ``serve``: asked without a socket, and by a browser."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from privsql.engine.database import Options
from privsql.serving import server
from privsql.serving.guard import Guard, QueryQueue, open_pools
from privsql.serving.site import make_site
from privsql.source.targets import as_targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = "http://127.0.0.1:8317"
HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class Client:
    """Asks an application, one request after the other or several at once; no redirection is followed."""

    def __init__(self, app: Any, runner: asyncio.Runner) -> None:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._own = httpx.AsyncClient(transport=transport, base_url=HERE)
        self._runner = runner

    def request(self, method: str, address: str, **more: Any) -> httpx.Response:
        """One request; ``address``: the path, and what follows it."""
        return self._runner.run(self._own.request(method, HERE + address, **more))

    def get(self, address: str, **more: Any) -> httpx.Response:
        """What a browser asks."""
        return self.request("GET", address, **more)

    def together(self, *addresses: str) -> list[httpx.Response]:
        """Several at once."""

        async def ask() -> list[httpx.Response]:
            return await asyncio.gather(*(self._own.get(HERE + one) for one in addresses))

        return self._runner.run(ask())


@contextmanager
def page(*paths: Path, token: str | None = None, **manners: Any) -> Iterator[Client]:
    """A client of the page over some releases."""
    settings: dict[str, Any] = {"at_once": 2, "seconds": 30.0, "rows": 20_000} | manners
    desk = QueryQueue(**settings)
    with open_pools(as_targets(paths, "releases"), (), Options(), fit=False) as served, asyncio.Runner() as runner:
        try:
            yield Client(Guard(make_site(served, desk, verified=False), HOSTS, token), runner)
        finally:
            desk.close()


@contextmanager
def served(*paths: Path, token: bool = False) -> Iterator[str]:
    """A server in a thread of its own; its address."""
    told: list[str] = []
    ready, servers = threading.Event(), []

    async def serve(shelf: Any) -> None:
        desk = QueryQueue(2, 30, 20_000)
        door = server.open_listener("127.0.0.1", 0, token=token)

        def started() -> None:
            told.append(door.address)
            ready.set()

        servers.append(server.QueryServer(server.make_app(shelf, door, desk, verified=False), desk, started))
        await servers[0].serve(sockets=[door.socket])
        desk.close()

    with open_pools(as_targets(paths, "releases"), (), Options(), fit=False) as shelf:
        thread = threading.Thread(target=lambda: asyncio.run(serve(shelf)))
        thread.start()
        try:
            assert ready.wait(30)
            yield told[0]
        finally:
            servers[0].should_exit = True
            thread.join(30)
            assert not thread.is_alive()
