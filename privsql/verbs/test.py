"""Compare a release's answers with the answers that test files expect."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql.calls import as_paths
from privsql.errors import EngineError, UsageError
from privsql.outcomes import JsonObject, Outcome, Part
from privsql.releases.opened import Release

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from privsql.answers.answer import Answer
    from privsql.calls import PathLike

# Records --------------------------------------------------------------------------------------------------------------
# A file in the format of sqllogictest: tests between blank lines, each a header, SQL, ---- and the expected answer.
#
#     query estimate | query within 5% | query covers [99%] | statement error
#
# Tabs separate the values of a row; blanks do so if a row has no tab. NULL stands for NULL, (empty) for an empty text.
# ``estimate`` compares six digits of the estimates. ``within`` compares estimates with expected numbers, and ``covers``
# checks that the intervals contain them.

HEADER = re.compile(r"query (estimate|within (?P<within>[0-9.]+) ?%|covers( (?P<covers>[0-9.]+) ?%)?)|statement error")
RULE, COMMENT = "----", "#"
DIGITS, CLOSE = ".6g", 1e-5
NULL, EMPTY = "NULL", "(empty)"


@dataclass(frozen=True)
class QueryRecord:
    """One test of a test file: a query and the answer that is expected.

    Attributes:
        file: The file.
        line: The line of the test's header, counted from 1.
        header: The line before the query, which says how answers are compared, such as "query within 5%".
        sql: The query.
        expected: The lines of the expected answer.
        place: The range of lines in the file that hold the expected answer.
    """

    file: Path
    line: int
    header: str
    sql: str
    expected: tuple[str, ...]
    place: tuple[int, int]

    @property
    def name(self) -> str:
        """Return where the test stands, as "file:line"."""
        return f"{self.file}:{self.line}"

    def find_share(self, key: str) -> float | None:
        """Return a percentage of the test's header as a share from 0 to 1; None if the header does not state it.

        Args:
            key: The word before the percentage: "within" (how far the answer may differ from the expected one) or
                "covers" (the confidence of the interval).
        """
        matched = HEADER.fullmatch(self.header)
        share = matched[key] if matched else None
        return None if share is None else float(share) / 100


def read_records(file: Path) -> Iterator[QueryRecord]:
    """Yield the tests of a test file.

    Raises:
        UsageError: The file does not have the format of test files.
        EngineError: The file can't be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EngineError(f"{file}: can't be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{file}: can't be read: {error}; save it as UTF-8") from error
    start = 0
    while start < len(lines):
        if not lines[start].strip() or lines[start].startswith(COMMENT):
            start += 1
            continue
        end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
        header, block = lines[start].strip(), lines[start + 1 : end]
        if not HEADER.fullmatch(header):
            forms = "query estimate, query within 5%, query covers or statement error"
            raise UsageError(f"{file}:{start + 1}: {header!r} is not a test record; write {forms}")
        rule = block.index(RULE) if RULE in block else len(block)
        sql = "\n".join(block[:rule])
        if not sql.strip():
            raise UsageError(f"{file}:{start + 1}: the record has no query; write it below the header")
        yield QueryRecord(file, start + 1, header, sql, tuple(block[rule + 1 :]), (start + 1 + rule, end))
        start = end


# Comparison -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryResult(JsonObject):
    """A test, and the release's answer to its query.

    Attributes:
        record: The test.
        answered: The lines of the answer.
        difference: The lines that differ: those with - were expected, those with + were answered. Empty if none differ.
    """

    record: QueryRecord
    answered: tuple[str, ...]
    difference: tuple[str, ...]

    json_keys = ("at=record.name", "sql=record.sql", "ok", "difference")

    @property
    def ok(self) -> bool:
        """Return whether the answer is as expected."""
        return not self.difference


def run_record(release: Release, record: QueryRecord) -> QueryResult:
    """Ask a release the query of a test, and compare its answer with the expected one."""
    try:
        answer = release.query(record.sql, confidence=record.find_share("covers") or 0.95)
    except UsageError as refusal:
        text = str(refusal)
        fine = record.header == "statement error" and all(one in text for one in record.expected)
        return QueryResult(record, (text,), () if fine else _compare_lines(record.expected, (f"refused: {refusal}",)))
    answered = tuple("\t".join(map(_as_text, row)) for row in answer.plain_rows)
    if record.header == "statement error":
        return QueryResult(record, answered, _compare_lines((*record.expected, "an error"), answered))
    rows = [line.split("\t") if "\t" in line else line.split() for line in record.expected]
    fine = len(rows) == len(answer.rows) and all(
        _matches_row(record, answer, *pair) for pair in zip(rows, answer.rows, strict=True)
    )
    if not fine and record.header.startswith("query covers"):
        interval_lines = tuple("\t".join(_describe_row(answer, row)) for row in answer.rows)
        return QueryResult(record, answered, _compare_lines(record.expected, interval_lines))
    return QueryResult(record, answered, () if fine else _compare_lines(record.expected, answered))


def _matches_row(record: QueryRecord, answer: Answer, expected: Sequence[str], row: Sequence[Any]) -> bool:
    """Return whether a row of an answer is as expected.

    Groups must be equal. Estimates may differ as far as the test's header allows.

    Args:
        record: The test.
        answer: The answer.
        expected: The expected texts of the row.
        row: The row of the answer.
    """
    figures = {one.at for one in answer.figures}
    if len(expected) != len(answer.plain_columns):
        return False
    for text, at in zip(expected, answer.plain_columns, strict=True):
        value, number = row[at], _as_number(text)
        if at not in figures or number is None or value is None:
            if not _is_same_text(text, value):
                return False
        elif record.header.startswith("query covers"):
            low, high = row[at + 2], row[at + 3]
            if (low is not None and number < low) or (high is not None and number > high):
                return False
        elif not math.isclose(float(value), number, rel_tol=record.find_share("within") or CLOSE):
            return False
    return True


def _is_same_text(text: str, value: object) -> bool:
    answered = _as_text(value)
    numbers = _as_number(text), _as_number(answered)
    if isinstance(value, int | float) and None not in numbers:
        return math.isclose(float(numbers[0] or 0), float(numbers[1] or 0), rel_tol=CLOSE)
    return text == answered


def _describe_row(answer: Answer, row: Sequence[Any]) -> Iterator[str]:
    """Yield the values of a row as texts; an estimate is shown as its interval."""
    figures = {one.at for one in answer.figures}
    for at in answer.plain_columns:
        yield f"{_as_text(row[at + 2])} to {_as_text(row[at + 3])}" if at in figures else _as_text(row[at])


def _as_text(value: object) -> str:
    if value is None:
        return NULL
    text = format(value, DIGITS) if isinstance(value, float) else str(value)
    return " ".join(text.split()) or EMPTY


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compare_lines(expected: Sequence[str], answered: Sequence[str]) -> tuple[str, ...]:
    lines = difflib.ndiff(list(expected), list(answered))
    return tuple(line for line in lines if not line.startswith("?")) or ("+ another number of rows",)


# Test -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tested(Outcome):
    """The outcome of ``test``: a result for each test. It is true if all answers are as expected."""

    title = "Tested queries"

    results: list[QueryResult]
    json_keys = ("ok", "results")

    def __bool__(self) -> bool:
        return all(one.ok for one in self.results)

    @property
    def ok(self) -> bool:
        """Return whether all answers are as expected."""
        return bool(self)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: the differences, and then how many queries are answered as expected."""
        failed = [one for one in self.results if not one.ok]
        for one in failed:
            yield "\n".join((one.record.name, one.record.sql, *one.difference, ""))
        yield f"{len(self.results) - len(failed)} of {len(self.results)} queries are answered as expected"


def run_tests(
    release: PathLike,
    files: Sequence[PathLike] | PathLike,
    *,
    record: bool = False,
    attach: Sequence[PathLike] | PathLike = (),
    connection: object | None = None,
) -> Tested:
    """Ask a release the queries of test files, and compare its answers with the expected ones.

    Args:
        release: The release, or with ``connection`` the name of its schema.
        files: The test files.
        record: Whether to write answers that differ into the files. A query that is refused remains a difference.
        attach: Files whose tables the queries may join.
        connection: An open connection of DuckDB, or a session of Spark.

    Raises:
        UsageError: A file does not have the format of test files.
    """
    paths = as_paths(files, "files")
    records = [(path, list(read_records(path))) for path in paths]
    if not any(listed for _, listed in records):
        raise UsageError("the files have no query; write one below a line 'query estimate'")
    with Release(release, attach, connection=connection) as opened:
        results = [[run_record(opened, one) for one in listed] for _, listed in records]
    if record:
        results = [_record_results(path, listed) for path, listed in zip(paths, results, strict=True)]
    return Tested([one for listed in results for one in listed])


def _record_results(path: Path, results: Sequence[QueryResult]) -> list[QueryResult]:
    """Write the answers that differ from the expected ones into a test file.

    Returns:
        The results; where an answer was written, nothing differs any more.
    """
    lines, recorded = path.read_text(encoding="utf-8").splitlines(), []
    for one in reversed(results):
        refused = any(line.startswith("+ refused: ") for line in one.difference)
        if one.ok or refused or one.record.header == "statement error":
            recorded.append(one)
            continue
        start, end = one.record.place
        lines[start:end] = [RULE, *one.answered]
        recorded.append(QueryResult(one.record, one.answered, ()))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return recorded[::-1]
