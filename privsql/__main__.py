"""Start, interrupt and end the process of the ``privsql`` command and of ``python -m privsql``.

SIGINT (Ctrl-C), SIGTERM and SIGHUP raise ``KeyboardInterrupt`` in the running command, so that it cleans up. The
process then writes one line and ends with exit code 128 + n, where n is the number of the signal.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # not imported from typing, which is slow: until ``main`` runs, Ctrl-C gives a traceback
if TYPE_CHECKING:
    from signal import Signals
    from types import FrameType
    from typing import NoReturn

STOPS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
SAME = 1.0  # a second signal within so many seconds is ignored: timeout(1) and terminals may send it twice
AGAIN = 0.01  # seconds after which a lost interruption is repeated
ALARM = "SIGALRM"
GARBAGE = 500000  # new objects between two garbage collections; most objects of a command live to its end


class StopSignals:
    """Handles stop signals: interrupts the running command, and ends the process with a one-line message."""

    name = "SIGINT"
    asked_at = float("-inf")
    lost = False  # whether Python has dropped an interruption, which is then repeated

    def handle_signals(self) -> None:
        """Raise ``KeyboardInterrupt`` on stop signals from now on.

        Signals that the process was started to ignore (by nohup, or as a background job) stay ignored.
        """
        import signal

        for number in _known_signals(*STOPS):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._unwind)
        for number in _known_signals(ALARM):
            signal.signal(number, self._unwind)
        sys.unraisablehook = self._on_unraisable

    def _unwind(self, number: int, _: FrameType | None) -> None:
        import signal
        import time

        if number in _known_signals(ALARM) or self.lost:
            self.lost = False
        else:
            if time.monotonic() < self.asked_at + SAME:
                return  # cleaning up is under way
            self.name, self.asked_at = signal.Signals(number).name, time.monotonic()
        raise KeyboardInterrupt

    def _on_unraisable(self, what: sys.UnraisableHookArgs) -> None:
        """Repeat a ``KeyboardInterrupt`` that Python drops because it was raised in a destructor or a callback.

        Python calls this hook for every exception that it can't raise.
        """
        import signal

        if not issubclass(what.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(what)
        elif hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            self._interrupt_later()

    def _interrupt_later(self) -> None:
        """Interrupt the main thread again after an interruption was lost, on systems without alarm signals.

        A timer thread does it.
        """
        from _thread import interrupt_main
        from threading import Timer

        self.lost = True
        Timer(AGAIN, interrupt_main).start()

    @staticmethod
    def ignore_signals() -> None:
        """Ignore stop signals from now on, because the process is ending."""
        import signal

        for number in _known_signals(*STOPS, ALARM):
            signal.signal(number, signal.SIG_IGN)

    def end_process(self) -> NoReturn:
        """Write one line about the signal and exit at once, without waiting for the engine.

        With ``--json``, an object with the error and the exit code is also written to stdout.
        """
        import json
        import signal
        from contextlib import suppress

        self.ignore_signals()
        code, word = 128 + signal.Signals[self.name], STOPS[self.name]
        messages = [(2, f"privsql: {word}\n")]
        if "--json" in sys.argv:
            messages.append((1, json.dumps({"error": word, "exit_code": code}) + "\n"))
        for stream, text in messages:
            with suppress(OSError):  # nobody may be reading
                os.write(
                    stream, text.encode()
                )  # write past Python's buffers, as the signal may have come while they were written
        os._exit(code)


def _known_signals(*names: str) -> list[Signals]:
    """Return the signals with these names; names that this system does not have are left out."""
    import signal

    return [signal.Signals[name] for name in names if name in signal.Signals.__members__]


class WithoutPandas:
    """An import finder that hides pandas: pyarrow would import it with its first array, and no command uses it."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse to find pandas; return None for any other module, so that the usual finders look for it.

        Raises:
            ModuleNotFoundError: The module is pandas.
        """
        if name == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=name)


def main() -> None:
    """Run the command line, and end the process properly if a signal interrupts it, even during imports."""
    stop = StopSignals()
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = (
        "__all__"  # plugins of other packages must not see specifications and releases
    )
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small, so its threads would mostly wait
    gc.set_threshold(GARBAGE)
    try:
        stop.handle_signals()
        sys.meta_path.insert(0, WithoutPandas())
        from privsql.cli.app import app

        app()
    except KeyboardInterrupt:
        while True:
            try:
                stop.end_process()
            except KeyboardInterrupt:  # the same signal again, before or while it is listened to
                continue
    finally:
        stop.ignore_signals()


def run_process() -> None:
    """Run the command line and exit at once, which saves the 0.2 s that Python takes to clean up.

    The process ends the usual way if other threads are running or if stdout can't be flushed.
    """
    import atexit
    from contextlib import suppress

    try:
        main()
    except SystemExit as end:
        threading = sys.modules.get("threading")
        with suppress(Exception):
            if threading is None or threading.active_count() == 1:
                atexit._run_exitfuncs()
                sys.stdout.flush()
                with suppress(OSError):  # nobody may be reading; the exit code tells what went wrong
                    sys.stderr.flush()
                os._exit(end.code)  # type: ignore[arg-type]
        raise


if __name__ == "__main__":
    run_process()
