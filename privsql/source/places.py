"""Where a publisher's records lie: in a DuckDB file, in Parquet or CSV, in Spark, or in a Postgres server."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from privsql.engine.database import FILE_KINDS, Origin


class Part(BaseModel):
    """A part of a request to publish."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Spark(Part):
    """A table, view or query of Spark's."""

    table: str | None = Field(default=None, description="Table or view of Spark's.")
    query: str | None = Field(default=None, description="A SELECT in Spark's SQL in place of a table.")
    remote: str | None = Field(default=None, description="Spark Connect address. [default: Spark on this machine]")

    @model_validator(mode="after")
    def _one(self) -> Spark:
        if (self.table is None) == (self.query is None):
            raise ValueError("give either table or query")
        return self


class Postgres(Part):
    """A table, view or query of a Postgres server."""

    uri: SecretStr = Field(description="Address for libpq, postgresql://user@host/database; never written anywhere.")
    table: str | None = Field(default=None, description="Table or view there.")
    query: str | None = Field(default=None, description="A SELECT in Postgres' SQL in place of a table.")

    @model_validator(mode="after")
    def _one(self) -> Postgres:
        if (self.table is None) == (self.query is None):
            raise ValueError("give either table or query")
        return self


class Source(Part):
    """Where the records are: a table, view or query of a DuckDB file, or a Parquet or CSV file; Spark's or Postgres'.

    A ``query`` over a file calls the file ``source``.
    """

    database: Path | None = None
    file: Path | None = None
    spark: Spark | None = Field(default=None, description="A table of Spark's in place of a file.")
    postgres: Postgres | None = Field(default=None, description="A table of a Postgres server in place of a file.")
    engine: Literal["duckdb", "spark"] = Field(
        default="duckdb", description="What reads a Parquet file; spark reads a folder of such files too."
    )
    table: str | None = Field(default=None, description="Table or view of a DuckDB source.")
    query: str | None = Field(default=None, description="A SELECT over the source in place of a table.")
    id: str | None = Field(default=None, description="The column that names the records, for the ledger.")
    name: str | None = Field(
        default=None,
        min_length=1,
        description="What the ledger calls the source. [default: its path, with the tables that are read]",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Source:
        if sum(given is not None for given in (self.database, self.file, self.spark, self.postgres)) != 1:
            raise ValueError("give either database (a DuckDB file) or file (Parquet or CSV), or spark, or postgres")
        if self.elsewhere is None:
            return self._one_file()
        if self.table or self.query or self.engine != "duckdb":
            raise ValueError(f"{self.kind} has its own table and query, and no engine")
        if self.spark is not None and self.id:
            raise ValueError("records of spark have no id")
        return self

    def _one_file(self) -> Source:
        if self.engine == "spark":
            if self.file is None or self.suffix not in ("", ".parquet", ".pq") or self.id:
                raise ValueError("engine = 'spark' reads a Parquet file or a folder of them, without id")
            return self
        if self.database and (self.table is None) == (self.query is None):
            raise ValueError("a database needs either table or query")
        if self.file and self.table:
            raise ValueError("table belongs to a database; a file is a table by itself")
        if self.file and self.suffix not in FILE_KINDS:
            raise ValueError(f"{self.file.name}: the ending must be one of {', '.join(FILE_KINDS)}")
        return self

    @property
    def path(self) -> Path:
        """The file that holds the records."""
        return self.database or self.file or Path()

    @property
    def suffix(self) -> str:
        """The ending of the file."""
        return self.path.suffix.lower()

    @property
    def kind(self) -> str:
        """``duckdb``, ``parquet`` or ``csv``, or the engine that holds the records or reads them."""
        if self.spark is not None or self.engine == "spark":
            return "spark"
        if self.postgres is not None:
            return "postgres"
        return "duckdb" if self.database else FILE_KINDS[self.suffix]

    @property
    def relation(self) -> str | None:
        """The table or view, wherever it lies."""
        return (self.elsewhere or self).table

    @property
    def elsewhere(self) -> Spark | Postgres | None:
        """What is no file."""
        return self.spark or self.postgres

    @property
    def origin(self) -> Origin:
        """Where the records lie, for an engine."""
        there = self.spark
        if there is not None:
            return Origin(self.kind, None, there.table, there.query, there.remote)
        if self.postgres is not None:
            address = self.postgres.uri.get_secret_value()
            return Origin(self.kind, None, self.postgres.table, self.postgres.query, address)
        return Origin(self.kind, self.path, self.table, self.query)
