"""Open a release for an analyst's SQL, join the analyst's own tables to it, and write releases into schemas."""

from __future__ import annotations

import itertools
import re
import threading
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sqlglot import exp

from privsql.calls import as_confidence, as_paths, pause_collection
from privsql.engine import sqlfiles
from privsql.engine.database import FUNCTIONS, LOOKUPS, IntervalFunctions, ViewDefinition, open_reporter
from privsql.engine.files import PACKED, fold_name, kind_of, private
from privsql.engine.open import open_locked, open_release_tables, open_scratch, unique_name
from privsql.engine.sqlfiles import DIALECT, all_rows, fill, table, temp_table
from privsql.errors import (
    EngineError,
    GuaranteeError,
    InfeasibleError,
    LateError,
    PrivsqlError,
    UsageError,
    suggest_name,
)
from privsql.model.checks import BROKEN
from privsql.model.estimates import BEST, MODEL
from privsql.model.manifest import MANIFEST
from privsql.outcomes import notebook_page, pairs
from privsql.releases.contents import ENDING, admit_release, complete_folder, locate_release, name_holders
from privsql.releases.draft import MAIN, Draft, digest_schema, is_occupied, sweep_drafts
from privsql.releases.statements import describe_manifest, examine_release
from privsql.source.targets import Target, as_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from privsql.answers.answer import Answer
    from privsql.answers.completed import CompletedTables
    from privsql.answers.evaluate_select import SelectEvaluation
    from privsql.answers.present import QuestionLimits
    from privsql.answers.sql.compiler import ItemGroups
    from privsql.answers.sql.question import Lookup, Statement
    from privsql.calls import PathLike
    from privsql.engine.database import Container, LockedSession, Options, Relations, Stage
    from privsql.engine.sqlfiles import Field
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.releases.contents import AttachedRelease

# Lookups --------------------------------------------------------------------------------------------------------------
# An analyst's own tables, which a query may join with a release; they are read when a query names them.
#
# An attached file may be a stranger's, too. It is opened after the lock, its tables are copied under privsql's names
# into a database of their own, and a view in it is limited in rows and seconds and can read no file.

ROWS = 10_000_000  # of one of the analyst's own tables
SESSION_DATABASES = {"memory", "temp", "system", "release", LOOKUPS}  # databases of the session


@dataclass(frozen=True)
class AttachedTable:
    """A table in a file of the analyst's own.

    Attributes:
        path: The file.
        names: The names of the file, the schema and the table.
        rows: The SELECT that reads the table.
    """

    path: Path
    names: tuple[str, str, str]
    rows: exp.Select

    def answers_to(self, names: tuple[str, ...]) -> bool:
        """Return whether a name in a query means this table.

        Args:
            names: The parts of the name: [[file,] schema,] table, or [file,] table if the schema is ``main``.
        """
        file, schema, table_name = map(fold_name, self.names)
        called = {(file, schema, table_name), (schema, table_name)}
        if schema == "main":
            called |= {(file, table_name), (table_name,)}
        return tuple(map(fold_name, names)) in called

    @property
    def label(self) -> str:
        """Return the name of the table for messages."""
        return ".".join(self.names[1:] if fold_name(self.names[1]) != "main" else self.names[2:])


class AttachedLookups:
    """The tables in the analyst's own files, which queries may join. A table is copied when a query first names it."""

    def __init__(self, db: LockedSession, paths: Sequence[Path]) -> None:
        self._db = db
        self._known: list[AttachedTable] = []
        self._copied: dict[tuple[str, str, str], tuple[str, tuple[str, ...]]] = {}
        self._numbers = itertools.count()  # a new number for every table, even if it can't be read
        self.answer: Callable[[str], Answer]  # answers a query over the release
        for number, path in enumerate(paths):
            kind, database = kind_of(path.name) if path.suffix else None, f"attached{number}"
            if kind is not None:
                called = (Path(path.stem) if path.suffix.lower() in PACKED else path).stem
                self._known.append(AttachedTable(path, (called, "main", called), db.scan_files([path.resolve()], kind)))
                continue
            db.attach(path.resolve(), database, read_only=True)
            for _, schema, name, _ in db.list_relations(database):
                rows = all_rows(table(name, database, schema))
                self._known.append(AttachedTable(path, (path.stem, schema, name), rows))

    def find_table(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Copy a table if needed, and return the copy's name in database ``lookups`` with the names of its columns.

        Args:
            names: The parts of the name by which the query calls the table.

        Raises:
            UsageError: No table or several tables have that name, or the table has too many rows.
            EngineError: The table can't be read.
        """
        written = ".".join(names)
        matches = [one for one in self._known if one.answers_to(names)]
        if not matches:
            known = ", ".join(one.label for one in self._known) or "none is attached"
            near = suggest_name(names[-1], [one.names[-1] for one in self._known]) or ";"
            raise UsageError(f"JOIN: there is no lookup table {written!r} ({known}){near} attach the file that has it")
        if len(matches) > 1:
            files = ", ".join(str(one.path) for one in matches)
            raise UsageError(f"JOIN: {written!r} is in {files}; write the file's name before it")
        if len(names) == 3 and fold_name(names[0]) in SESSION_DATABASES:
            raise UsageError(f"JOIN: {names[0]!r} can't be used as a file name here; rename {matches[0].path}")
        one = matches[0]
        if one.names not in self._copied:
            self._copied[one.names] = self._copy_table(one, f"l{next(self._numbers)}")
        name, _ = copied = self._copied[one.names]
        self._db.stand_in(names, all_rows(table(name, LOOKUPS, "main")))
        return copied

    @property
    def labels(self) -> list[str]:
        """Return the names of the tables in the analyst's files, for messages."""
        return [one.label for one in self._known]

    def read_rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        """Return the rows of a subquery that reads only the analyst's own tables, at most 10,001.

        The caller refuses a subquery with more than 10,000 rows.

        Raises:
            UsageError: The engine refuses the SELECT.
        """
        from privsql.answers.sql.grammar import read_limits
        from privsql.answers.sql.sources import MOST_VALUES

        for source in list(query.find_all(exp.Table)):
            name, _ = self.find_table(tuple(part.name for part in source.parts))
            alias = source.alias_or_name
            source.replace(table(name, LOOKUPS, "main").as_(alias))
        with self._db.limit_time():
            return self._db.rows(query.limit(min(MOST_VALUES + 1, read_limits(query)["limit"] or MOST_VALUES + 1)))

    def answer_query(self, query: exp.Select) -> tuple[list[tuple[Any, ...]], bool]:
        """Answer a subquery of an analyst's query, if this subquery reads the release.

        Returns:
            The rows, without columns of errors and bounds, and whether every row is exact.
        """
        answer = self.answer(query.sql(DIALECT))
        return answer.plain_rows, answer.rests_on == "exact"

    def _copy_table(self, one: AttachedTable, name: str) -> tuple[str, tuple[str, ...]]:
        bounded = one.rows.copy().limit(ROWS + 1)
        try:
            with self._db.limit_time():
                self._db.create_table(name, bounded, into=LOOKUPS)
        except PrivsqlError as error:
            instead = "; store what it yields in a table" if isinstance(error, LateError) else ""
            raise EngineError(f"{one.path}: {one.label} can't be read: {error}{instead}") from error
        copied = table(name, LOOKUPS)
        if self._db.rows(fill("core/size", {"table": copied}))[0][0] > ROWS:
            raise UsageError(f"{one.path}: {one.label} has more than {ROWS:,} rows; a lookup table takes no more")
        return name, tuple(field.name for field in self._db.list_fields(copied))


# Opened ---------------------------------------------------------------------------------------------------------------
# A release opened alone, the only way in which an analyst's SQL reads one. A release is a stranger's file.
#
# It is attached read-only, under privsql's name, to a locked session that can reach nothing else, and refused unless it
# holds what its manifest states and no other table, view or metadata.

DESCRIBING = re.compile(
    r"\s*(SHOW\s+(ALL\s+)?TABLES|DESCRIBE|SHOW|(DESCRIBE|DESC|SHOW(\s+COLUMNS\s+(FROM|IN))?)\s+(TABLE\s+)?"
    r"((main|public)\.)?(?P<name>\"[^\"]+\"|\w+))\s*;?\s*",
    re.IGNORECASE,
)
RELEASE = "release"  # the name under which a release is attached


@contextmanager
def attach_release(
    target: Target, attach: Sequence[Path] = (), options: Options | None = None, *, in_place: bool = False
) -> Iterator[tuple[LockedSession, AttachedRelease]]:
    """Attach a release during a ``with``, and compare what it holds with its manifest.

    The results stand in ``checks`` of the release; a failed one raises no error.

    Args:
        target: Where the release lies.
        attach: Files of the analyst that may be read as well.
        options: How the engine runs; None for defaults.
        in_place: Whether the engine that holds the release, such as Spark, should also count its rows, if it can.
            Queries then run in ``db`` of the release, and the session that is yielded holds none of its rows. Otherwise
            the release is read in that session.
    """
    catalog = target.catalog if in_place else None
    if catalog is not None:
        target = replace(target, opened=catalog.without_rows())
    for path in attach:
        if not path.is_file():
            raise EngineError(f"{path}: no such file")
    stored, files = locate_release(target), [path.resolve() for path in attach]
    databases = {RELEASE: stored.database_file, LOOKUPS: None, **name_holders([stored])}
    with (
        open_locked(databases, [*stored.readable_files, *files], home=RELEASE, options=options) as db,
        nullcontext(None) if catalog is None else catalog.open_tables(target.schema or MAIN) as counted,
    ):
        yield db, admit_release(db, stored, RELEASE, counted and counted[0])


@contextmanager
def open_release(
    target: Target, attach: Sequence[Path] = (), options: Options | None = None, *, in_place: bool = False
) -> Iterator[tuple[LockedSession, AttachedRelease]]:
    """Attach a release during a ``with``, and require that it holds what its manifest states.

    Args:
        target: Where the release lies.
        attach: Files of the analyst that may be read as well.
        options: How the engine runs; None for defaults.
        in_place: Whether the engine that holds the release, such as Spark, should also count its rows, if it can.
            Otherwise the rows are read in the session that is yielded.

    Yields:
        The session and the release.

    Raises:
        GuaranteeError: The release does not hold what it states, or holds any other table, view or metadata.
    """
    with attach_release(target, attach, options, in_place=in_place) as (db, release):
        release.require_intact(target)
        yield db, release


@contextmanager
def explain_failures(*targets: Target) -> Iterator[None]:
    """Replace an arithmetic error in the body of a ``with`` by an error that names the damaged release.

    A damaged release may cause such an error, for example by a division by zero. So all checks of ``targets``, the
    releases that the body reads, are run. If they hold, the error is raised as it is.

    Raises:
        GuaranteeError: A check of a release fails, so the release is damaged.
    """
    try:
        yield
    except BROKEN as error:
        for target in targets:
            with open_release(target) as (_, release):
                failed = next((one for one in examine_release(release) if not one.ok), None)
            if failed is not None:
                raise GuaranteeError(f"{target}: {failed.name}: {failed.offending[0]}; verify it") from error
        raise


@contextmanager
def open_releases(
    targets: Sequence[Target], readable: Sequence[Path] = ()
) -> Iterator[tuple[LockedSession, list[AttachedRelease]]]:
    """Attach several releases during a ``with``; release i, counted from 0, becomes database ``r<i>``.

    Args:
        targets: Where the releases lie.
        readable: Other files that the session may read, such as a ledger.

    Raises:
        GuaranteeError: A release does not hold what it states, or holds any other table, view or metadata.
    """
    stored = [locate_release(target) for target in targets]
    databases = {f"r{i}": one.database_file for i, one in enumerate(stored)}
    files = [file for one in stored for file in one.readable_files]
    with open_locked(databases | name_holders(stored), [*files, *readable], home="r0") as db:
        releases = [admit_release(db, one, name) for one, name in zip(stored, databases, strict=True)]
        for target, release in zip(targets, releases, strict=True):
            release.require_intact(target)
        yield db, releases


class Release:
    """An open release, which answers an analyst's SQL; a context manager.

    ``release.sql("SELECT sex, COUNT(*) FROM people WHERE disease = 'flu' GROUP BY sex")`` gives a pandas DataFrame. The
    release is read-only, and no other file can be reached. Any number of releases may be open at once, even of one
    file. Threads may share a release; their questions are answered one after the other.

    Args:
        path: The file or folder of the release; with ``connection``, the name of a schema there.
        attach: Parquet, CSV or DuckDB files of the analyst's own, whose tables may be joined on quasi-identifiers.
        options: How the engine runs. With a session of Spark, Spark counts the rows of a release in Parquet, which its
            workers must be able to read; DuckDB still checks the files and parses the questions.
        connection: An open connection of DuckDB, such as a notebook's, or a session of Spark. The tables of the schema
            are copied as they are now; Spark counts tables of more than 5 million rows itself.
        fit: Whether the first query may fit a model to a release without one, and store it in the user's cache. It does
            so where that takes about 15 seconds at most. ``PRIVSQL_FIT=off`` in the environment forbids it.
    """

    def __init__(
        self,
        path: PathLike,
        attach: Sequence[PathLike] | PathLike = (),
        options: Options | None = None,
        *,
        connection: object | None = None,
        fit: bool = True,
    ) -> None:

        self.target = as_target(path, connection)
        self.path = self.target.path
        self._turn, self._closed, self._fits = threading.RLock(), False, fit
        self._files, self._options = as_paths(attach, "attach"), options
        with pause_collection():
            self._open_session()

    def _open_session(self) -> None:
        """Open the release in a session of its own, with its fitted model if the cache has one."""
        from privsql.releases.fitted import find_model, fits_by_itself, take_model

        files, options, catalog = self._files, self._options, self.target.catalog
        session = options and options.session
        large = catalog is not None and catalog.is_large(self.target.schema or MAIN)
        with ExitStack() as stack:
            self._db, attached = stack.enter_context(open_release(self.target, files, options, in_place=large))
            modelled = attached.mechanism.answers(self._db, attached.manifest).modelled
            modelled = modelled and not large and (catalog is not None or session is None)
            file = find_model(attached) if modelled else None
            if file is not None:  # the session may read no other one
                stack.close()
                self._db, attached = stack.enter_context(open_release(self.target, [*files, file], options))
            self.manifest, self.mechanism = attached.manifest, attached.mechanism
            self._lookups = AttachedLookups(self._db, files)
            self._counts: Relations = attached.db if catalog is not None else self._db
            if catalog is None and session is not None:
                stored = locate_release(self.target)
                if not stored.is_folder:
                    raise UsageError(
                        f"{self.path}: Spark reads releases in Parquet; publish with release.format = 'parquet'"
                    )
                self._counts = stack.enter_context(open_release_tables(session, stored.files))
            names = [sqlfiles.column(field.name) for field in self.manifest.roles.columns]
            described = exp.select(*names).from_(attached.views[0].query.subquery("described"))
            self._db.stand_in([self.manifest.name], described)
            with explain_failures(self.target):
                self.answers = self.mechanism.answers(self._counts, self.manifest)
                self.answers.model = None if file is None else take_model(attached, file)
                self._completed = self._complete_tables()
            self._fits = self._fits and modelled and fits_by_itself(self.answers.predict_fit())
            self._attached, self._open = attached, stack.pop_all()

    def _complete_tables(self) -> CompletedTables | None:
        """Return the completed tables, or None if the release has no fitted model and holds none itself.

        A completed table is a copy of the release in which each record has one drawn sensitive value.
        """
        if self.answers.model is None and not (self.answers.draws_tables and self._counts is self._db):
            return None
        from privsql.answers.completed import CompletedTables

        return CompletedTables(self._db, self.manifest, self.answers)

    def fit_once(self) -> bool:
        """Fit a model and store it in the cache, if the release has none yet and the fit is quick.

        Returns:
            Whether a model was fitted.
        """
        from privsql.releases.fitted import NumberedRecords, fit_model, store_model

        with self._take_turn():
            if not self._fits:
                return False
            self._fits = False
            try:
                digest = NumberedRecords.find(self._attached).digest()
                with open_reporter() if self._options is None else nullcontext(self._options.report) as report:
                    arrays, model, parameters = fit_model(self._attached, digest, report)
                    report.start_step("Drawing completed tables")
                    store_model(arrays, model.find_beliefs(), parameters)
            except (InfeasibleError, EngineError):  # there is no model, or no place for it
                return False
            self._open.close()
            self._open_session()
            return self.answers.model is not None

    def sql(self, sql: str, *, confidence: float = 0.95, estimator: str = BEST) -> pd.DataFrame:
        """Answer a query as a DataFrame with the groups, estimate, std_error, low and high.

        Warnings are in ``attrs["notes"]`` of the DataFrame.

        Args:
            sql: The query.
            confidence: The probability with which an interval is meant to hold the true answer.
            estimator: The name of an estimator; ``best`` means the most precise one.

        Raises:
            UsageError: The query is not supported.
        """
        return self.query(sql, confidence=confidence, estimator=estimator).frame()

    def query(
        self, sql: str, *, confidence: float = 0.95, estimator: str = BEST, limits: QuestionLimits | None = None
    ) -> Answer:
        """Answer a query.

        Args:
            sql: The query.
            confidence: The probability with which an interval is meant to hold the true answer.
            estimator: The name of an estimator; ``best`` means the most precise one.
            limits: Limits of time and rows; None for no limits.

        Raises:
            UsageError: The query is not supported, or has more rows than ``limits`` allow.
            EngineError: The query takes longer than ``limits`` allow.
        """
        sure = as_confidence(confidence)
        limited = nullcontext() if limits is None else self._db.limit_time(limits.seconds, limits.stop)
        with self._take_turn(), limited:
            return self._answer_query(sql, sure, estimator, limits)

    def list_values(self, name: str, most: int = 1_000) -> list[str | None]:
        """Return at most ``most`` texts of a column's values, in the order of its type; None stands for NULL."""
        with self._take_turn():
            return self.answers.list_values(name, most)

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
        """Let one thread use the release during a ``with``, after waiting for other threads.

        Raises:
            UsageError: The release is closed.
        """
        with self._turn:
            if self._closed:
                raise UsageError(f"{self.path} was closed; open it again")
            with explain_failures(self.target), pause_collection():
                yield

    def _answer_query(self, sql: str, confidence: float, estimator: str, limits: QuestionLimits | None) -> Answer:
        """Answer a query by estimates from the release, or else from its completed tables.

        Completed tables are copies of the release in which each record has one drawn sensitive value. They support
        queries for which there is no formula.
        """
        from privsql.answers.sql.compiler import count_persons

        described = self._describe(sql, confidence)
        if described is not None:
            return described
        if self.manifest.has_single_persons:
            sql = count_persons(sql, self.manifest.roles)
        if estimator == MODEL and limits is None:
            self.fit_once()
        chosen = self.answers.choose_estimator(estimator)
        try:
            answer = self._answer_compiled(sql, confidence, chosen, limits)
        except UsageError as refusal:
            if not self._could_complete(estimator):
                raise
            from privsql.answers.completed import StatementReader

            reader = StatementReader(self._db, self.manifest, self._lookups.find_table)
            try:
                statement = reader.read(sql)
            except UsageError as error:
                if estimator == BEST and chosen == MODEL and len(self.answers.estimators) > 1:
                    with suppress(UsageError):  # a formula may answer what completed tables can't
                        return self._answer_compiled(sql, confidence, self.answers.estimators[1], limits)
                raise refusal from error
            if self._completed is None:
                if limits is None and self.fit_once():
                    return self._answer_query(sql, confidence, estimator, limits)
                raise UsageError(f"{refusal}; 'privsql fit {self.path}' makes it answerable") from refusal
            return self._completed.answer(sql, statement, confidence, None if limits is None else limits.rows)
        if answer.certain or estimator != BEST or limits is not None or not self.fit_once():
            return answer
        return self._answer_query(sql, confidence, estimator, limits)

    def _describe(self, sql: str, confidence: float) -> Answer | None:
        """Return the answer to SHOW TABLES, or to DESCRIBE or SHOW of the release; None for any other statement."""
        from privsql.answers.answer import Answer

        match = DESCRIBING.fullmatch(sql) if isinstance(sql, str) else None
        if match is None:
            return None
        name = match["name"]
        if name is None:
            names = [(self.manifest.name,), *((label,) for label in self._lookups.labels)]
            return Answer(("name",), names, (), confidence, self.answers.estimators[0], ())
        if fold_name(name.strip('"')) != fold_name(self.manifest.name):
            near = suggest_name(name, [self.manifest.name]) or ";"
            raise UsageError(f"there is no table {name!r} here{near} the release is called {self.manifest.name}")
        roles = self.manifest.roles
        rows = [(one.name, one.type, "quasi-identifier") for one in roles.quasi_identifiers]
        rows += [(one.name, one.type, "sensitive") for one in roles.sensitive]
        columns = ("column_name", "column_type", "role")
        return Answer(columns, rows, (), confidence, self.answers.estimators[0], ())

    def _could_complete(self, estimator: str) -> bool:
        """Return whether queries with this estimator may be answered from completed tables.

        These may exist only once a model is fitted.
        """
        if self._completed is not None:
            return estimator in (BEST, MODEL) and self.answers.can_complete
        here = estimator == BEST and self._counts is self._db
        return here and bool(self.answers.explain_improvement(self.answers.choose_estimator(BEST)))

    def _answer_compiled(self, sql: str, confidence: float, estimator: str, limits: QuestionLimits | None) -> Answer:
        from privsql.answers.answer import Answer, explain_rounding, find_unknown
        from privsql.answers.evaluate_select import SelectEvaluation
        from privsql.answers.present import AnswerBuilder, join_answers
        from privsql.answers.sql.compiler import as_described, split_items, split_union

        parts = split_union(sql)
        if len(parts.queries) > 1:
            answers = [self._answer_compiled(one, confidence, estimator, limits) for one in parts.queries]
            return join_answers(parts, answers)
        if self.answers.item_labels:
            if self.manifest.record is not None:
                from privsql.answers.sql.item_rows import ItemRows

                sql = ItemRows(self.manifest.record, self.manifest.sensitive[0].name).translate(sql)
            items = split_items(sql, self.manifest.name, self.manifest.sensitive[0].name)
            if items is not None:
                return self._answer_items(sql, items, confidence, estimator, limits)
        self._lookups.answer = lambda inner: self._answer_compiled(inner, confidence, estimator, limits)
        statement = self.answers.parse_sql(sql, self._lookups)
        plain = as_described(sql, self.manifest.name)
        fields = self._db.describe_select(plain)  # the parser understands some things that the engine does not
        if statement.scope.lookups and self._counts is not self._db:
            raise UsageError("JOIN: Spark counts the rows of a release only; open it without a session")
        asking = SelectEvaluation(self._counts, self.answers, self.manifest, statement, estimator, confidence)
        if statement.previews:
            return self._preview(asking, fields, limits)
        if (
            statement.windows
            and estimator == MODEL
            and not all(map(self.answers.holds_exactly, asking.grouped_questions))
        ):
            raise UsageError("aggregates over estimates are those of the completed tables")
        if limits is not None:
            limits.refuse_large(asking)
        questions = asking.grouped_questions or [asking.typed_scope.make_question()]
        explained = tuple(self.answers.explain_query(question, estimator) for question in questions)
        self._require_unique_keys(statement.scope.lookups)
        presented = AnswerBuilder(asking, fields)
        columns, figures = presented.name_columns()
        return Answer(
            columns,
            presented.build_rows(),
            figures,
            confidence,
            estimator,
            explained,
            self.manifest.suppressed,
            self.manifest.records,
            presented.may_be_empty(),
            (
                *find_unknown(statement, self.answers, self.manifest.roles),
                *explain_rounding(statement, self.manifest.bins, presented.open_rounded, self._db),
                *self._explain_weights(statement),
                *self._note_records(statement),
            ),
            presented.bounds_rest_on(),
            presented.rows_rest_on(),
        )

    def _note_records(self, statement: Statement) -> Iterator[str]:
        """Yield a note on what COUNT(*) counts, if the source has one row for each item of a record."""
        if self.manifest.record is not None and statement.scope.where is None and not statement.calls[0].among:
            yield f"a record is all rows with the same {self.manifest.record}: COUNT(*) counts it once"

    def _explain_weights(self, statement: Statement) -> Iterator[str]:
        """Yield a note for each weighted sum in a query: how many records without weights would be as precise.

        For a weight w this number is (sum w)^2 / sum w^2 over the records that meet the conditions on
        quasi-identifiers. A column is taken for a weight if its name says so.
        """
        operands = [one.measure.operand for one in statement.calls if one.measure.kind in ("sum", "avg")]
        named = {item.name for one in operands if one is not None for item in one.find_all(exp.Column)}
        numbers = [one.name for one in self.manifest.quasi_identifiers if one.is_number and one.name in named]
        if not numbers:
            return
        from privsql.source.roles import is_weight_name

        question = replace(statement.scope, groups=()).make_question()
        for name in (one for one in numbers if is_weight_name(one)):
            amount = exp.cast(sqlfiles.column(name), "DOUBLE")
            holes: sqlfiles.Holes = {
                "qit": question.join_lookups(sqlfiles.table(self.answers.records)),
                "amount": amount,
                "terms": [],
                "keys": [],
                "filter": sqlfiles.all_of(question.filters["qi"]),
            }
            rows = self._counts.rows(sqlfiles.fill("query/moments", holes))
            for records, total, squares, least, _ in rows:
                if records and squares and least >= 0:
                    worth = float(total) ** 2 / float(squares)
                    yield f"{name} weighs records: weighted sums are worth those of {worth:,.0f} of {records:,} records"

    def _answer_items(
        self, sql: str, items: ItemGroups, confidence: float, estimator: str, limits: QuestionLimits | None
    ) -> Answer:
        """Answer a query that counts the records of each item, by one question for every item that the release lists.

        Args:
            sql: The query.
            items: The parsed query.
            confidence: The confidence of the intervals.
            estimator: The name of the estimator.
            limits: Limits of time and rows; None for no limits.
        """
        from privsql.answers.present import join_items
        from privsql.answers.sql.compiler import MOST_ASKED, as_described

        fields = self._db.describe_select(as_described(sql, self.manifest.name))
        held, labels = self.manifest.sensitive[0], self.answers.item_labels
        if items.among is not None:
            labels = tuple(one for one in labels if one in items.among)
            if strange := sorted(items.among - set(labels)):
                raise UsageError(f"item {strange[0]!r} is not in the universe of this release")
        if limits is not None and len(labels) > limits.rows:
            raise UsageError(
                f"the release has {len(labels):,} items, more than {limits.rows:,}; name some in conditions"
            )
        kind, answers = exp.DataType.build(held.type.removesuffix("[]"), dialect=DIALECT), []
        known = self.answers.count_items(labels, estimator, confidence) if items.where is None else None
        asked = labels if known is None else labels[:1]  # one question tells how all counts were made
        for start in range(0, len(asked), MOST_ASKED):
            values = [exp.cast(exp.Literal.string(one), kind) for one in asked[start : start + MOST_ASKED]]
            held_by = [exp.func("list_contains", sqlfiles.column(held.name), value) for value in values]
            counts = [exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=one)) for one in held_by]
            query = exp.select(*(sqlfiles.alias_as(one, f"c{k}") for k, one in enumerate(counts)))
            query = query.from_(sqlfiles.quoted_identifier(self.manifest.name))
            query = query.where(items.where.copy()) if items.where is not None else query
            answers.append(self._answer_compiled(query.sql(DIALECT), confidence, estimator, limits))
        named = [int(one) for one in labels] if kind.is_type(*exp.DataType.INTEGER_TYPES) else labels
        return join_items(items, fields, named, answers, known)

    def _preview(self, asking: SelectEvaluation, fields: list[Field], limits: QuestionLimits | None) -> Answer:
        """Return some records without their sensitive values, as the answer to a query that aggregates nothing."""
        from privsql.answers.answer import Answer
        from privsql.answers.present import list_records

        self._require_unique_keys(asking.statement.scope.lookups)
        if not self.manifest.quasi_identifiers and asking.statement.limit:
            raise UsageError("the release holds no records; count with COUNT(*) .. GROUP BY")
        if limits is not None and (asking.statement.limit or 0) > limits.rows:
            raise UsageError(f"at most {limits.rows:,} records are listed; lower LIMIT")
        rows = list_records(asking, fields)
        hidden = ", ".join(field.name for field in self.manifest.sensitive)
        note = f"records as published; which one has which value of {hidden} is not known, so it is NULL"
        names, missing, records = tuple(one.name for one in fields), self.manifest.suppressed, self.manifest.records
        return Answer(names, rows, (), asking.confidence, asking.estimator, (), missing, records, hints=(note,))

    def require_completed(self) -> CompletedTables:
        """Return the completed tables: copies of the release in which each record has one drawn sensitive value.

        Raises:
            UsageError: No model of the release is in the cache, or its mechanism has no completed tables.
        """
        if self._completed is None:
            if not self.answers.explain_improvement(self.answers.choose_estimator(BEST)):
                made_by = f"{self.manifest.mechanism}, {self.manifest.algorithm}"
                raise UsageError(f"no model draws completed tables of this release; it is made by {made_by}")
            raise UsageError(f"no model of this release is in the cache; run 'privsql fit {self.path}' first")
        return self._completed

    def structure(self) -> list[Structure]:
        """Return what the release consists of, such as its buckets or its noisy tree, for reports."""
        with self._take_turn():
            return self.mechanism.structure(self._counts, self.manifest)

    def _require_unique_keys(self, lookups: Sequence[Lookup]) -> None:
        """Refuse a table of the analyst with two rows of the same key, because the join would count records twice.

        Raises:
            UsageError: A table has such rows.
        """
        for lookup in lookups:
            ours = dict.fromkeys(name for _, name in lookup.keys)
            met = (sqlfiles.column(theirs, "l").eq(sqlfiles.column(name, "r")) for theirs, name in lookup.keys)
            holes: sqlfiles.Holes = {
                "records": table(self.answers.records),
                "table": table(lookup.table, LOOKUPS, "main"),
                "own": [sqlfiles.column(name) for name in ours],
                "columns": [sqlfiles.column(name, "r") for name in ours],
                "met": exp.and_(*met),
            }
            twice = self._db.rows(fill("query/duplicates", holes))
            if twice:
                raise UsageError(f"JOIN {lookup.alias}: it has {twice[0][-1]} rows with the key {twice[0][:-1]}")

    def __repr__(self) -> str:
        return f"<Release {str(self.path)!r}: {self.manifest.name}, {self.manifest.mechanism}>"

    def _repr_html_(self) -> str:
        question = f"release.sql answers counts over {self.manifest.name}"
        return notebook_page(f"Release {self.path}", (pairs(describe_manifest(self.manifest)), question))

    def __fspath__(self) -> str:
        """Return the path of the release, so that verbs accept an open release as a path."""
        return str(self.path)

    def close(self) -> None:
        """Close the release; a question that another thread has asked is answered first."""
        with self._turn:
            self._closed = True
            self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_manifest(release: PathLike, *, connection: object | None = None) -> Manifest:
    """Return the manifest of a release, in which it states its parameters, columns and facts."""
    return describe_release(as_target(release, connection)).manifest


def describe_release(target: Target) -> AttachedRelease:
    """Open a release, check its contents and close it again.

    Returns:
        The release, whose manifest can still be read. Its session is closed.
    """
    with open_release(target, in_place=True) as (_, release):
        return release


# Copies ---------------------------------------------------------------------------------------------------------------
# Copies of a release that are written from its tables, its view and its manifest alone.

ORIGINAL, COPY = "made", "copy"  # the names under which a release and its copy are attached


def list_relations(release: AttachedRelease) -> list[tuple[str, str]]:
    """Return (kind, name) of every table, view and function of a release."""
    tables = [("table", name) for name in release.stated_tables]
    views = [("view", one.name) for one in release.definitions if isinstance(one, ViewDefinition)]
    functions = FUNCTIONS if any(isinstance(one, IntervalFunctions) for one in release.definitions) else ()
    return [*tables, *views, *(("function", name) for name in functions)]


def copy_tables(
    db: Container,
    release: AttachedRelease,
    original: str,
    *,
    into: str,
    schema: str,
    former: Sequence[tuple[str, str]] = (),
) -> None:
    """Copy the release in database ``original`` into a schema, completely or not at all.

    Args:
        db: The session that has attached both databases.
        release: The release, which names its tables and views.
        original: The database that holds it.
        into: The database to copy to.
        schema: The schema to copy to.
        former: The objects (kind, name) of the schema that are dropped first.

    Raises:
        UsageError: The schema holds other objects.
        GuaranteeError: The copy has another digest.
    """
    tables = list(release.stated_tables)
    with db.replace_tables(original, tables, release.definitions, into=into, schema=schema, former=former):
        if digest_schema(db, into, schema) != digest_schema(db, original, MAIN):
            raise GuaranteeError("the copy differs from what was checked; nothing written")


@contextmanager
def attach_clean_file(db: Container, file: Path, release: AttachedRelease) -> Iterator[Path]:
    """Attach the file of a release during a ``with``, and yield the path of the attached file.

    Deleted rows may remain in the file; in that case a fresh copy is written beside it and attached in its place.
    """
    db.attach(file, RELEASE, read_only=True)
    if db.find_leftovers(RELEASE):
        db.detach(RELEASE)
        copy = file.with_name(f"afresh-{file.name}")
        _write_file(file, release, copy)
        db.attach(copy, RELEASE, read_only=True)
        file = copy
    yield file
    db.detach(RELEASE)


def _write_file(file: Path, release: AttachedRelease, to: Path) -> None:
    with open_scratch() as db:
        db.attach(file, ORIGINAL, read_only=True, strange=True)
        db.attach(to, COPY, read_only=False)
        copy_tables(db, release, ORIGINAL, into=COPY, schema=MAIN)
        db.detach(COPY)


def write_copy(target: Target, release: AttachedRelease, to: Path) -> None:
    """Write a copy of a release whose checks hold; it is a file or a folder, like the release.

    If an error is raised, nothing remains at the path.

    Args:
        target: Where the release lies.
        release: The release.
        to: The path of the copy.

    Raises:
        UsageError: The path exists, or the release is a schema.
        GuaranteeError: A check of the copy fails.
    """
    refuse_target(target, to)
    stored = locate_release(target)
    with Draft(Target(to), replace=False) as draft:
        draft_path = draft.parquet_folder if stored.is_folder else draft.database_file
        if stored.is_folder:
            with open_scratch() as db:
                db.distrust_statistics()
                for name in release.tables:
                    db.create_view(name, db.scan_files(stored.files[name], "parquet"))
                    db.export_parquet(temp_table(name), draft_path / f"{name}{ENDING}")
                complete_folder(db, release, draft_path)
        else:
            _write_file(stored.place, release, draft_path)
        with open_release(Target(draft_path)) as (_, copy):
            failed = next((one for one in examine_release(copy) if not one.ok), None)
        stated = release.manifest.model_copy(update={"files": copy.manifest.files})
        if failed is not None or copy.manifest != stated:
            raise GuaranteeError(f"{target}: the copy differs from what was checked; nothing written")
        draft.commit(draft_path)


def refuse_target(release: Target, to: Path) -> None:
    """Check that a copy of a release may be written to the path ``to``.

    Raises:
        UsageError: The release is a schema, or the path exists or lies inside the release.
    """
    if release.schema is not None:
        raise UsageError(f"{release} is a schema of a database and can't be copied; publish to a file instead")
    if to.exists() or to.is_symlink():
        raise UsageError(f"{to} exists; choose another path for the copy")
    if to.resolve().is_relative_to(release.file.resolve()):
        raise UsageError(f"{to} lies inside the release; choose another path for the copy")


# Releases in a schema -------------------------------------------------------------------------------------------------
# A release becomes a schema of a database, which may hold anything else, in one transaction or not at all.
#
# It is made, and passes its checks, in a file of its own in a draft's folder. The copy is compared with that file
# before the transaction ends.


TRIED = ViewDefinition("privsql_tried", exp.select("1"), "")


class _TriedError(Exception):
    """The error by which ``require_rights`` rolls back its transaction, after it has tried that writing is allowed."""


def require_rights(target: Target) -> None:
    """Check that the target's schema can be written, by creating a view there and rolling that back.

    Raises:
        UsageError: The schema holds something else, or the user may not write it.
        EngineError: The database can't be opened for writing.
    """
    schema = target.schema or MAIN
    try:
        with target.sink.open_for_writing() as (db, database):
            schema = db.find_schema(database, schema) or schema
            with db.replace_tables(ORIGINAL, (), [TRIED], into=database, schema=schema):
                raise _TriedError
    except _TriedError:
        pass
    except UsageError as error:
        raise UsageError(f"{target}: {error}; nothing written") from error


class SchemaDraft(Draft):
    """A release in the making that will become a schema of a database.

    It is made and checked in a file of its own, and then copied into the schema.
    """

    def commit(self, content: Path) -> None:
        """Copy the release from database file ``content`` into its schema; a failure leaves the old schema in place.

        Raises:
            UsageError: Meanwhile something else has appeared in the schema.
            GuaranteeError: The copy differs from the release that was checked.
            EngineError: The database can't be written.
        """
        target, schema = self.target, self.target.schema or MAIN
        release = describe_release(Target(content))
        former = list_relations(describe_release(target)) if self._replace and is_occupied(target) else []
        new = target.opened is None and not target.file.exists()
        with target.sink.open_for_writing() as (db, database):
            original = unique_name(ORIGINAL)
            db.attach(content, original, read_only=True)
            try:
                there = db.find_schema(database, schema) or schema
                copy_tables(db, release, original, into=database, schema=there, former=former)
            except UsageError as error:
                raise UsageError(f"{target}: {error}; nothing written") from error
        if new:
            target.file.chmod(private.spare_rights(0o644))


class StagedDraft(Draft):
    """A release in the making in a temporary schema, the staging schema, of the database that will hold it.

    The engine of that database, such as Spark, creates and checks the tables in this schema.

    Attributes:
        stage: The staging schema.
        release: The release in it.
    """

    stage: Stage
    release: AttachedRelease

    def __enter__(self) -> Self:
        target, self._held = self.target, ExitStack()
        if target.catalog is not None:
            try:
                opened = target.catalog.open_stage(target.schema or MAIN, MANIFEST, self.folder)
                self.stage = self._held.enter_context(opened)
            except PrivsqlError as error:
                super().__exit__()
                raise type(error)(f"{target}: {error}") from error
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self._held.close()
        super().__exit__(*error)

    def commit(self, content: Path) -> None:
        """Move the staged tables into the target's schema. If this fails, the release that they replace may be lost."""
        target = self.target
        former = list_relations(describe_release(target)) if self._replace and is_occupied(target) else []
        try:
            self.stage.commit(self.release.definitions, former)
        except UsageError as error:
            raise UsageError(f"{target}: {error}; nothing written") from error


def replay_target_wal(target: Target) -> None:
    """Complete what a killed process left in the write-ahead log of the target's database.

    In a catalog of Spark, staging schemas that were left behind are removed.

    Raises:
        EngineError: Another process has the database open, or the file is not a database.
    """
    if target.catalog is not None and target.schema is not None:
        sweep_drafts(target)
        target.catalog.sweep_stage(target.schema, MANIFEST)
    if target.schema is None or target.opened is not None or not target.file.exists():
        return
    try:
        with target.sink.open_for_writing():
            pass
    except UsageError as error:
        raise EngineError(f"{target.file}: {error}") from error
