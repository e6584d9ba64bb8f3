"""Questions at the desk: so many at once, so many waiting, an end for each, and answers that are kept."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from privsql.errors import LateError, UsageError
from privsql.serving import guard
from privsql.serving.guard import BusyError, QueryQueue

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from privsql.answers.present import QuestionLimits


class Answered:
    """What stands for an answer."""

    rows: tuple[int, ...] = (1,)


class Slow:
    """A release that answers when it is let, or when it is stopped."""

    slug = "slow"

    def __init__(self) -> None:
        self.let, self.asked, self.at_once, self.most = threading.Event(), 0, 0, 0
        self.lock = threading.Lock()

    def ask(self, sql: str, confidence: float, limits: QuestionLimits, estimator: str) -> Answered:
        assert estimator in ("best", "baseline")
        with self.lock:
            self.asked += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            while not self.let.wait(0.005):
                if limits.stop is not None and limits.stop.is_set():
                    raise LateError("stopped")
            if sql == "wrong":
                raise UsageError("wrong")
            return Answered()
        finally:
            with self.lock:
                self.at_once -= 1


async def here() -> bool:
    return False


async def gone() -> bool:
    return True


def asked(at_once: int, seconds: float, do: Any) -> Any:
    """What a coroutine over a desk and a slow release gives."""
    served, own = Slow(), QueryQueue(at_once, seconds, 100)
    try:
        work: Coroutine[Any, Any, Any] = do(own, served)
        return asyncio.run(work)
    finally:
        served.let.set()
        own.close()
        assert served.at_once == 0


def test_so_many_at_once_and_all_are_answered() -> None:
    async def do(own: QueryQueue, served: Any) -> Slow:
        asking = [asyncio.ensure_future(own.ask(served, str(k), 0.95, here)) for k in range(20)]
        await asyncio.sleep(0.1)
        assert served.asked == 3
        served.let.set()
        assert len(await asyncio.gather(*asking)) == 20
        return served

    assert asked(3, 30, do).most == 3


def test_who_comes_too_late_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAITING", 2)

    async def do(own: QueryQueue, served: Any) -> None:
        asking = [asyncio.ensure_future(own.ask(served, str(k), 0.95, here)) for k in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(BusyError, match="2 queries are waiting"):
            await own.ask(served, "4", 0.95, here)
        served.let.set()
        assert len(await asyncio.gather(*asking)) == 3
        assert await own.ask(served, "5", 0.95, here)

    asked(1, 30, do)


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a place nor for an answer; a place is free again when its question has ended, not before."""
    monkeypatch.setattr(guard, "GRACE", 0.0)
    monkeypatch.setattr(guard, "LOOK", 0.01)

    async def do(own: QueryQueue, served: Any) -> None:
        first = asyncio.ensure_future(own.ask(served, "1", 0.95, here))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="the query was not started within"):
            await own.ask(served, "2", 0.95, here)
        with pytest.raises(LateError, match="takes longer than"):
            await first
        served.let.set()
        assert await own.ask(served, "3", 0.95, here)

    asked(1, 0.2, do)


def test_who_leaves_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LOOK", 0.01)

    async def do(own: QueryQueue, served: Any) -> None:
        with pytest.raises(LateError):
            await own.ask(served, "1", 0.95, gone)
        for _ in range(200):
            if not served.at_once:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the question goes on")

    asked(1, 30, do)


def test_closing_ends_what_is_being_answered() -> None:
    async def do(own: QueryQueue, served: Any) -> None:
        asking = asyncio.ensure_future(own.ask(served, "1", 0.95, here))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        own.stop_running()
        with pytest.raises(LateError, match="stopped"):
            await asking
        assert time.monotonic() - begun < 20

    asked(1, 30, do)


def test_a_closed_desk_answers_nothing() -> None:
    async def do(own: QueryQueue, served: Any) -> None:
        own.close()
        with pytest.raises(BusyError, match="server is stopping"):
            await own.ask(served, "1", 0.95, here)

    asked(1, 30, do)


def test_errors_come_through_and_free_the_place() -> None:
    async def do(own: QueryQueue, served: Any) -> None:
        served.let.set()
        for _ in range(3):
            with pytest.raises(UsageError, match="wrong"):
                await own.ask(served, "wrong", 0.95, here)
        assert await own.ask(served, "right", 0.95, here)

    asked(1, 30, do)


def test_the_last_answers_are_kept_and_no_more() -> None:
    async def do(own: QueryQueue, served: Any) -> int:
        served.let.set()
        for k in (*range(guard.MOST_CACHED), *range(guard.MOST_CACHED)):
            await own.ask(served, str(k), 0.95, here)
        assert served.asked == guard.MOST_CACHED
        await own.ask(served, "0", 0.9, here)
        await own.ask(served, "0", 0.9, here, "baseline")
        assert served.asked == guard.MOST_CACHED + 2
        for k in range(100):
            await own.ask(served, f"x{k}", 0.95, here)
        return len(own._cached)

    assert asked(2, 30, do) == guard.MOST_CACHED


def test_large_answers_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ROWS", 0)

    async def do(own: QueryQueue, served: Any) -> int:
        served.let.set()
        await own.ask(served, "1", 0.95, here)
        return len(own._cached)

    assert asked(1, 30, do) == 0
