"""A session of Spark that privsql can trust: ANSI mode, texts in UTC, and privsql's own errors, one line each.

Without ANSI mode a product that overflows is NULL, and a comparison with it holds nowhere: a check of the bound would
find nothing wrong with any table. The mode is set where the session is privsql's own, demanded where it is given, and
tried out in both cases.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import tempfile
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from py4j.protocol import Py4JError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
)
from pyspark.sql import SparkSession

from privsql import system
from privsql.engine.folders import ROOM, Folder
from privsql.errors import EngineError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.engine.progress import Options

MISTAKES = (AnalysisException, ArithmeticException, DateTimeException, NumberFormatException)
DEMANDED = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
LOG = Path(__file__).with_name("log4j2.properties")
STARTED = {
    "spark.ui.enabled": "false",  # it would show plans to whoever can reach the port
    "spark.ui.showConsoleProgress": "false",
    "spark.io.encryption.enabled": "true",  # what is shuffled or spilled, and what is broadcast where memory is short
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG.as_uri()}",
}
CALLED = re.compile(r'<_\w*RpcError.*?details = "([^"]*)"', re.DOTALL)
CALLS = 5  # until an address is taken to be dead: waits of 50 ms to 13 s, 17 s in all
PER_CORE = 8  # partitions of a shuffle: Spark's own 200 are for many machines
TALKER = "SQLQueryContextLogger"  # pyspark logs errors that it raises as well, with values of the data

warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # rows go through Arrow


def started(options: Options, settings: dict[str, str] | None = None) -> SparkSession:
    """A session of this machine's own; Java is started once per process and ends with it.

    ``settings`` hold for the first session of a process only, as do memory and threads of ``options``.
    Raises ``EngineError`` where Java 17 is missing.
    """
    cores = options.threads or os.cpu_count() or 1
    chosen = STARTED | DEMANDED
    half = f"{system.memory() // 2**21}m"  # of the machine's memory, where nobody says how much
    memory = (options.memory_limit or half).upper().removesuffix("IB").removesuffix("B")
    chosen |= {"spark.sql.shuffle.partitions": str(PER_CORE * cores), "spark.driver.memory": memory}
    chosen |= settings or {}
    with translated():
        first = SparkSession.getActiveSession()
        if first is None:
            chosen |= {"spark.local.dir": str(_room()), "spark.sql.warehouse.dir": str(_room() / "warehouse")}
            builder = SparkSession.builder.master(f"local[{options.threads or '*'}]").appName("privsql")
            first = builder.config(map=dict(chosen)).getOrCreate()
        return _own(first.newSession())


@cache
def _room() -> Path:
    """A private folder for what Java spills and shuffles, for as long as the process lives; who is killed leaves it.

    Spark makes a folder for tables of its own, too, which would stand wherever privsql is called. The room lies where
    other temporary folders of privsql's do, and is swept with them.
    """
    made = Folder(ROOM, Path(tempfile.gettempdir()), masked=False)
    atexit.register(made.remove)
    return made.path


@contextmanager
def connected(address: str) -> Iterator[SparkSession]:
    """A session of one's own at a Spark Connect address, ``sc://host:port``; what follows that may be secret.

    It is given back to the server: pyspark would try that when the process ends, for ten minutes if nobody answers.
    Raises ``EngineError`` where nobody answers for a quarter of a minute.
    """
    place = address.partition("/;")[0]
    try:
        with warnings.catch_warnings(), translated():
            warnings.simplefilter("ignore")  # of what is raised as well
            made = _called(address)
    except (ImportError, PrivsqlError) as error:
        why = "pyspark[connect] is not installed" if isinstance(error, ImportError) else str(error)
        raise EngineError(f"{place}: {why}") from error
    try:
        yield made
    finally:
        made.stop()


def _called(address: str) -> SparkSession:
    """The session, made by its own class: pyspark's common one would have every later session be at an address."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 (needs what few have installed)
    from pyspark.sql.connect.session import SparkSession as Distant  # noqa: PLC0415

    made = cast("SparkSession", Distant.builder.remote(address).create())
    made.client.set_retry_policies([DefaultPolicy(max_retries=CALLS)])
    try:
        return _own(made)
    except BaseException:
        made.client.close()
        raise


def given(session: object) -> SparkSession:
    """A session that somebody else has made, as it is; ``UsageError`` unless ANSI mode is on and texts are in UTC."""
    if not all(hasattr(session, name) for name in ("sql", "conf", "createDataFrame", "catalog")):
        raise UsageError(f"{type(session).__name__} is not a session of Spark")
    known = cast("SparkSession", session)  # Spark Connect's class is another one
    with translated():
        for name, wanted in DEMANDED.items():
            found = known.conf.get(name)
            if str(found).lower() not in {wanted.lower(), f"etc/{wanted.lower()}"}:
                raise UsageError(f"the session of Spark has {name} = {found}; privsql needs {wanted}")
        return asserted(known)


def asserted(session: SparkSession) -> SparkSession:
    """The session, if it raises an error where a value can't be cast; ``EngineError`` otherwise."""
    try:
        session.range(1).selectExpr("CAST('x' AS INT) AS number").toArrow()
    except NumberFormatException:
        return session
    raise EngineError("Spark's ANSI mode is off: what overflows would be NULL, and checks would see nothing")


def is_local(session: SparkSession) -> bool:
    """Whether the session's workers see the files of this machine."""
    try:
        return str(session.sparkContext.master).startswith("local")
    except (PySparkException, AttributeError):  # Spark Connect has no context
        return False


def _own(session: SparkSession) -> SparkSession:
    for name, value in DEMANDED.items():
        session.conf.set(name, value)
    return asserted(session)


@contextmanager
def translated() -> Iterator[None]:
    """Spark's errors as privsql's, one line each."""
    logging.getLogger(TALKER).disabled = True
    try:
        yield
    except MISTAKES as error:
        raise UsageError(_line(error)) from error
    except PySparkException as error:
        if "JAVA_GATEWAY_EXITED" in str(error) or "JAVA_HOME" in str(error):
            raise EngineError("Spark does not start: it needs Java 17 or later") from error
        raise EngineError(_line(error)) from error
    except Py4JError as error:
        raise EngineError(f"Spark: {_deepest(error)}") from error


def _line(error: BaseException) -> str:
    """The first line of an error, without the class that Spark puts before it and the state that it puts behind."""
    text = str(error).strip()
    called = CALLED.search(text)  # by another process
    first = called[1] if called else text.split("\n")[0]
    return first.split("] ", 1)[-1].split(" SQLSTATE:")[0]


def _deepest(error: Py4JError) -> str:
    """What made a job fail, memory that ran out for example: Java tells of it by causes of causes."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return _line(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).split("\n")[0]
