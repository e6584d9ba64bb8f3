"""Where questions are answered: so many at once, so many waiting, each with an end; the last answers are kept."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from privsql.answers.base import OURS
from privsql.answers.limits import Limits
from privsql.errors import EngineError, LateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from privsql.answers.answer import Answer
    from privsql.serving.shelf import Served

    Found = TypeVar("Found")

WAITING = 64  # questions that may wait
GRACE = 2.0  # seconds after which nobody waits for what the engine has no part in
KEPT, ROWS = 16, 2_000  # answers that are kept, and the rows that one of them may have
LOOK = 0.5  # seconds between two looks whether somebody is still there


class BusyError(EngineError):
    """More is asked than can be answered; it may be asked again."""


class Desk:
    """Answers questions in threads of its own. Used within one event loop."""

    def __init__(self, at_once: int, seconds: float, rows: int) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="privsql")
        self._places = asyncio.Semaphore(at_once)
        self._seconds, self._rows = seconds, rows
        self._waiting = 0
        self._running: set[threading.Event] = set()
        self._kept: OrderedDict[tuple[str, str, float, str], Answer] = OrderedDict()

    async def ask(
        self, served: Served, sql: str, confidence: float, gone: Callable[[], Awaitable[bool]], estimator: str = OURS
    ) -> Answer:
        """The answer of a release to a query.

        ``BusyError`` where too many ask, ``LateError`` for what takes too long or whose asker is ``gone``; else as
        ``Release.query``.
        """
        key = (served.slug, sql, confidence, estimator)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        stop = threading.Event()
        limits = Limits(self._seconds, self._rows, stop)
        answer = await self.work(lambda: served.ask(sql, confidence, limits, estimator), stop, gone)
        if len(answer.rows) <= ROWS:
            self._kept[key] = answer
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return answer

    async def work(self, do: Callable[[], Found], stop: threading.Event, gone: Callable[[], Awaitable[bool]]) -> Found:
        """What a function gives, in a thread, when it is its turn."""
        await self._turn()
        loop = asyncio.get_running_loop()
        self._running.add(stop)
        try:
            doing = loop.run_in_executor(self._pool, do)
        except RuntimeError as error:  # the pool is closed
            self._places.release()
            raise BusyError("the page is being closed") from error
        doing.add_done_callback(lambda _: self._ended(stop))
        end = loop.time() + self._seconds + GRACE
        try:
            while not doing.done():
                await asyncio.wait({doing}, timeout=LOOK)
                if not doing.done() and (loop.time() > end or await gone()):
                    raise LateError(f"the question takes longer than {self._seconds:g} s")
            return doing.result()
        finally:
            if not doing.done():
                stop.set()
                doing.add_done_callback(_forget)

    async def _turn(self) -> None:
        """Wait for a place."""
        if not self._places.locked():
            await self._places.acquire()
            return
        if self._waiting >= WAITING:
            raise BusyError(f"{WAITING} questions are waiting already; ask again in a moment")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._places.acquire(), self._seconds)
        except TimeoutError as error:
            raise BusyError(f"no answer was begun within {self._seconds:g} s; ask again in a moment") from error
        finally:
            self._waiting -= 1

    def _ended(self, stop: threading.Event) -> None:
        self._running.discard(stop)
        self._places.release()

    def end(self) -> None:
        """End what is being answered; from a signal's handler, too."""
        for stop in list(self._running):
            stop.set()

    def close(self) -> None:
        """Answer no more, and wait for what is being answered."""
        self.end()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _forget(doing: asyncio.Future[Any]) -> None:
    """Take note of what nobody waited for, or Python would complain of an error that nobody saw."""
    if not doing.cancelled():
        doing.exception()
