"""Where a publisher's records lie: in a database file, in Parquet or CSV, in Spark, in a server, or in Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from privsql.calls import at_home
from privsql.engine import files
from privsql.engine.database import FRAME, Origin, Scan
from privsql.source.csv import Csv
from privsql.source.frames import Frame
from privsql.source.frames import frame as as_frame

ENDINGS = f"{', '.join(files.FILE_KINDS)}, .csv.gz or .csv.zst"
WHEREVER = ("id", "id_space", "name", "person", "persons", "query")  # what is said of a source, wherever that lies
DATABASES = (".db", ".duckdb", ".ddb", ".sqlite", ".sqlite3")


class Part(BaseModel):
    """A part of a request to publish."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Relation(Part):
    """A table or view, or a query in its place."""

    table: str | None = Field(default=None, description="Table or view there.")
    query: str | None = Field(default=None, description="A SELECT in the SQL spoken there in place of a table.")

    @model_validator(mode="after")
    def _one(self) -> Relation:
        if (self.table is None) == (self.query is None):
            raise ValueError("give either table or query")
        return self

    @property
    def address(self) -> str | None:
        """Where it is; it may hold a password."""
        return None


class Spark(Relation):
    """A table, view or query of Spark's."""

    remote: str | None = Field(default=None, description="Spark Connect address. [default: Spark on this machine]")

    @property
    def address(self) -> str | None:
        """A Spark Connect address; None for Spark on this machine."""
        return self.remote


class Server(Relation):
    """A table, view or query of a server, or of a catalogue."""

    uri: SecretStr = Field(description="Address, such as postgresql://user@host/database; never written anywhere.")

    @property
    def address(self) -> str | None:
        """As it is given."""
        return self.uri.get_secret_value()


class Source(Part):
    """Where the records are: a table, view or query of a DuckDB or SQLite file, or Parquet or CSV files, or elsewhere.

    A ``query`` over files calls them ``source``.
    """

    database: Path | None = Field(default=None, description="A DuckDB or SQLite file.")
    file: str | tuple[str, ...] | None = Field(
        default=None,
        description="A Parquet or CSV file, a list of them, a pattern (data/*.parquet), a folder, or an address "
        "(s3://.., https://..).",
    )
    spark: Spark | None = Field(default=None, description="A table of Spark's in place of a file.")
    postgres: Server | None = Field(default=None, description="A table of a Postgres server in place of a file.")
    mysql: Server | None = Field(default=None, description="A table of a MySQL server, by DuckDB's extension mysql.")
    ducklake: Server | None = Field(default=None, description="A table of a DuckLake, by DuckDB's extension ducklake.")
    frame: SkipJsonSchema[Annotated[InstanceOf[Frame], BeforeValidator(as_frame)] | None] = Field(
        default=None, exclude=True, repr=False, description="A table in Python, in place of a file."
    )
    reader: Literal["parquet", "csv", "delta", "iceberg"] | None = Field(
        default=None, description="What the files are. [default: as their ending says]"
    )
    options: Csv | None = Field(default=None, description="How a CSV file is written: { encoding = 'latin-1' }.")
    union_by_name: bool = Field(
        default=False, description="Several files may have other columns; what a file lacks is NULL in its records."
    )
    hive_partitioning: bool = Field(
        default=False, description="Folders that are called column=value are columns of the files in them."
    )
    engine: Literal["duckdb", "spark"] = Field(
        default="duckdb", description="What reads a Parquet file; spark reads a folder of such files too."
    )
    table: str | None = Field(default=None, description="Table or view of a database file.")
    query: str | None = Field(default=None, description="A SELECT over the source in place of a table.")
    id: str | None = Field(default=None, description="The column that names the records, for the ledger.")
    id_space: str | None = Field(
        default=None,
        min_length=1,
        description='What the ids belong to ("hospital admissions"), or the persons where records have no id: the '
        "ledger does not compare them with those of anything else.",
    )
    person: str | None = Field(default=None, description="The column that names persons, who may have several records.")
    persons: Literal["refuse", "one", "count"] | None = Field(
        default=None,
        description="Persons with several records: refuse, one record of each, or count (all; bounds are of a record). "
        "[default: refuse]",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        description="What the ledger calls the source. [default: its path, with the tables that are read]",
    )

    @field_validator("file", mode="before")
    @classmethod
    def _names(cls, given: Any) -> Any:
        """Paths as texts."""
        listed = given if isinstance(given, list | tuple) else (given,)
        texts = tuple(os.fspath(one) if isinstance(one, Path) else one for one in listed)
        if given is not None and not (texts and all(isinstance(one, str) and one for one in texts)):
            raise ValueError("must be a path, a pattern or an address, or a list of them")
        return texts if isinstance(given, list | tuple) else texts[0]

    @model_validator(mode="after")
    def _one_source(self) -> Source:
        if self.persons is not None and self.person is None:
            raise ValueError("persons goes with person, the column that names them")
        if self.id_space is not None and self.id is None and self.person is None:
            raise ValueError("id_space goes with id or person, the columns whose names it is of")
        if self.frame is not None:
            return self._one_frame()
        given = (self.database, self.file, self.elsewhere)
        several = sum(one is not None for one in (self.spark, self.postgres, self.mysql, self.ducklake)) > 1
        if sum(one is not None for one in given) != 1 or several:
            raise ValueError(
                "give either database (a DuckDB or SQLite file) or file (Parquet or CSV), or one of spark, postgres, "
                "mysql and ducklake"
            )
        if self.file is None and (self.reader or self.options or self.union_by_name or self.hive_partitioning):
            raise ValueError("reader, options, union_by_name and hive_partitioning say how file is read")
        if self.elsewhere is None:
            return self._one_file()
        if self.table or self.query or self.engine != "duckdb":
            raise ValueError(f"{self.kind} has its own table and query, and no engine")
        if self.spark is not None and self.id:
            raise ValueError("records of spark have no id")
        return self

    def _one_frame(self) -> Source:
        others = {name for name in self.model_fields_set if getattr(self, name)} - {"frame", *WHEREVER}
        if others - ({"engine"} if self.engine == "duckdb" else set()):
            raise ValueError(f"a table in Python stands alone, without {', '.join(sorted(others))}")
        return self

    def _one_file(self) -> Source:
        if self.engine == "spark":
            if len(self.files) != 1 or self.kind != "spark" or not self._of_spark() or self.id:
                raise ValueError("engine = 'spark' reads a Parquet file or a folder of them, without id")
            return self
        if self.database is not None and (self.table is None) == (self.query is None):
            raise ValueError("a database needs either table or query")
        if self.files and self.table:
            raise ValueError("table belongs to a database; a file is a table by itself")
        if self.files:
            self._one_kind()
        return self

    def _of_spark(self) -> bool:
        alone = self.reader in (None, "parquet") and not (self.options or self.union_by_name or self.hive_partitioning)
        return alone and files.kind_of(self.files[0]) == "parquet"

    def _one_kind(self) -> None:
        """``ValueError`` unless all files are of one kind, and what says how they are read goes with that."""
        for name in self.files:
            told = files.shown(name)
            start = files.scheme(name)
            if start and start not in files.REMOTE:
                raise ValueError(f"{told}: nothing reads {start}:// here; it may be {', '.join(files.REMOTE)}")
            if self.reader is None and files.kind_of(name) is None:
                raise ValueError(f"{Path(told).name}: {_unknown(told)}")
        kinds = dict.fromkeys(self.reader or files.kind_of(name) for name in self.files)
        if len(kinds) > 1:
            raise ValueError(f"files of one source are of one kind, not {' and '.join(map(str, kinds))}")
        if self.options is not None and self.kind != "csv":
            raise ValueError("options say how a CSV file is written; these files are none, or say reader = 'csv'")
        if self.reader in ("delta", "iceberg") and (
            len(self.files) > 1 or self.union_by_name or self.hive_partitioning
        ):
            raise ValueError(f"a table of {self.reader} is one folder or address, which knows its own files")

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files, as they are given."""
        return (self.file,) if isinstance(self.file, str) else self.file or ()

    @property
    def path(self) -> Path:
        """The one file that holds the records; an empty path where they lie elsewhere, or in several."""
        if self.database is not None:
            return self.database
        alone = len(self.files) == 1 and not files.scheme(self.files[0])
        return Path(self.files[0]) if alone else Path()

    @property
    def kind(self) -> str:
        """``duckdb`` (a database file), ``parquet``, ``csv``, .. or the engine that holds the records or reads them."""
        if self.spark is not None or self.engine == "spark":
            return "spark"
        for kind in ("postgres", "mysql", "ducklake"):
            if getattr(self, kind) is not None:
                return kind
        if self.frame is not None:
            return FRAME
        return "duckdb" if self.database is not None else self.reader or files.kind_of(self.files[0]) or "csv"

    @property
    def counted_there(self) -> bool:
        """Whether another engine than DuckDB counts the records, where they lie."""
        return self.kind in ("spark", "postgres")

    @property
    def relation(self) -> str | None:
        """The table or view, wherever it lies."""
        return (self.elsewhere or self).table

    @property
    def called(self) -> str:
        """What a release is called if its publisher does not say: after the table, or the file."""
        if self.relation:
            return self.relation.split(".")[-1].strip('"`')
        if self.frame is not None:
            return self.name if self.name and self.name.isidentifier() else "data"
        return files.called(self.files[0]) if self.files else self.path.stem or "release"

    @property
    def elsewhere(self) -> Relation | None:
        """What is no file."""
        return self.spark or self.postgres or self.mysql or self.ducklake

    @property
    def origin(self) -> Origin:
        """Where the records lie, for an engine."""
        there = self.elsewhere
        if there is not None:
            return Origin(self.kind, None, there.table, there.query, there.address)
        if self.frame is not None:
            return Origin(FRAME, None, None, self.query, data=self.frame.table)
        if self.database is not None:
            return Origin(self.kind, self.database, self.table, self.query)
        options = self.options.given if self.options is not None else {}
        scan = Scan(self.files, self.union_by_name, self.hive_partitioning, options)
        return Origin(self.kind, Path(self.files[0]), None, self.query, scan=scan)

    def placed(self, base: Path) -> Source:
        """The same with paths taken from folder ``base``; ``~`` is the home folder."""
        texts = tuple(name if files.scheme(name) else str(placed(base, Path(name))) for name in self.files)
        return self.model_copy(
            update={
                "database": placed(base, self.database) if self.database is not None else None,
                "file": None if self.file is None else texts[0] if isinstance(self.file, str) else texts,
            }
        )


def placed(base: Path, path: Path) -> Path:
    """A path of a specification, taken from the specification's folder; ``~`` is the home folder, if there is one."""
    return base / at_home(path)


def _unknown(name: str) -> str:
    """What to do with a file of an unknown ending."""
    if Path(name).suffix.lower() in DATABASES:
        return "is a database by its ending; give database = .., with a table"
    return f"the ending must be one of {ENDINGS}; or say reader = 'csv' or 'parquet'"
