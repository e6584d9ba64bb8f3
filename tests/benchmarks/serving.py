"""The page of ``serve`` under load, beside the same questions put to ``Release.query`` by as many threads.

Both answer the same questions, each once, in the same order, with so many asked at a time; a question's time is that
of whoever asks, waiting included. In-process the threads share one open release and take turns; the page is a process
of its own, whose answers are whole pages (form, SQL, table, bars), asked over connections that are kept.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import numpy as np

import privsql
from privsql.engine.sqlfiles import plain_sql
from privsql.serving.form import make_form, parse_parameters, read_question
from privsql.serving.site import build_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.serving.form import ReleaseForm

WARM = 200  # questions before anything is measured
PARTS = 5  # of the questions, after each of which memory is looked at


def questions(chosen: ReleaseForm, number: int, seed: int = 1) -> list[str]:
    """Different addresses: a value of the sensitive column, a range or a value of two others, and perhaps a group."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    others = [one for one in chosen.columns if not one.sensitive]
    while len(found) < number:
        pairs = [("measure", "count")]
        pairs += [(one.key, str(rng.choice(one.values))) for one in chosen.columns if one.sensitive and one.values]
        for place in sorted(rng.choice(len(others), 2, replace=False).tolist()):
            one = others[place]
            low, high = sorted(rng.choice(len(one.values), 2).tolist())
            both = [(f"{one.key}.from", one.values[low]), (f"{one.key}.to", one.values[high])]
            pairs += both if one.ranged else [(one.key, value) for value in {one.values[low], one.values[high]}]
        few = [one.number for one in others if one.listed]
        pairs += [("by", str(rng.choice(few)))] if few and rng.random() < 0.5 else []
        found[urlencode(pairs)] = None
    return list(found)


def asked(do: Callable[[str], None], addresses: Sequence[str], at_once: int) -> list[float]:
    """Seconds of every question."""

    def one(address: str) -> float:
        begun = time.perf_counter()
        do(address)
        return time.perf_counter() - begun

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, addresses))


class Page:
    """A page in a process of its own."""

    def __init__(self, release: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "privsql", "serve", str(release), "--port", "0", "--json", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._at = urlsplit(json.loads(self._process.stdout.readline())["address"])
        self._own = threading.local()
        self._slug = release.stem
        self.failed = 0

    def ask(self, address: str) -> None:
        """A page, read to its end, over the thread's own connection."""
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(str(self._at.hostname), self._at.port, timeout=120)
        self._own.connection.request("GET", f"/{self._slug}?{address}")
        answer = self._own.connection.getresponse()
        content = answer.read()
        if answer.status != 200 or b'<h2 id="said">The answer</h2>' not in content:
            self.failed += 1

    @property
    def megabytes(self) -> float:
        """What it holds of the machine's memory."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> int:
        """Its exit code on Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(60)


def row(what: str, took: Sequence[float], whole: float, *more: object) -> list[object]:
    """Median, 95th percentile, and questions a second."""
    return [what, len(took), *(float(one) for one in np.quantile(took, [0.5, 0.95])), len(took) / whole, *more]


def measured(release: Path, requests: int, at_once: int, flags: Sequence[str] = ()) -> list[list[object]]:
    """What, questions, median, p95, a second, failed, MB of memory by parts, and p95 over that of ``query``."""
    with privsql.open(release) as opened:
        chosen = make_form(opened)
        warm, addresses = np.split(np.array(questions(chosen, WARM + requests), object), [WARM])

        def query(address: str) -> None:
            pairs = parse_parameters(address.encode("ascii"))
            opened.query(plain_sql(build_statement(read_question(pairs, chosen), chosen)))

        asked(query, warm.tolist(), at_once)
        begun = time.perf_counter()
        own = asked(query, addresses.tolist(), at_once)
        inside = row("Release.query", own, time.perf_counter() - begun, 0, "", 1.0)
    page = Page(release, *flags)
    asked(page.ask, warm.tolist(), at_once)
    held, took, begun = [page.megabytes], [], time.perf_counter()
    for part in np.array_split(addresses, PARTS):
        took += asked(page.ask, part.tolist(), at_once)
        held.append(page.megabytes)
    whole = time.perf_counter() - begun
    code = page.close()
    ratio = float(np.quantile(took, 0.95) / np.quantile(own, 0.95))
    memory = " ".join(f"{one:.0f}" for one in held)
    return [inside, row(f"serve (exit {code})", took, whole, page.failed, memory, ratio)]
