"""How a CSV file is written, by the names that DuckDB has for it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

SAME = {"utf8": "utf-8", "utf16": "utf-16", "latin1": "latin-1", "iso-8859-1": "latin-1", "iso8859-1": "latin-1"}


class Csv(BaseModel):
    """What DuckDB need not guess of a CSV file. Nothing in it leaves out a line that can't be read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoding: str | None = Field(default=None, description="utf-8, utf-16 or latin-1. [default: utf-8]")
    delimiter: str | None = Field(default=None, min_length=1, max_length=4, description="What separates columns.")
    quote: str | None = Field(default=None, max_length=1, description="What encloses a value; empty: nothing does.")
    escape: str | None = Field(default=None, max_length=1, description="What stands before a quote in a value.")
    header: bool | None = Field(default=None, description="Whether the first line names the columns.")
    names: tuple[str, ...] | None = Field(default=None, description="Names of the columns, in their order.")
    skip: int | None = Field(default=None, ge=0, description="Lines before the header that are no part of the table.")
    comment: str | None = Field(default=None, max_length=1, description="What a line begins with that is none.")
    nullstr: tuple[str, ...] | None = Field(default=None, description="Texts that mean NULL. [default: the empty one]")
    allow_quoted_nulls: bool | None = Field(default=None, description="Whether such a text is NULL in quotes, too.")
    null_padding: bool | None = Field(default=None, description="Whether lines may lack columns, which are NULL then.")
    decimal_separator: Literal[".", ","] | None = Field(default=None, description="In numbers.")
    thousands: str | None = Field(default=None, min_length=1, max_length=1, description="In numbers, between digits.")
    dateformat: str | None = Field(default=None, description="As strftime writes it: %d.%m.%Y.")
    timestampformat: str | None = Field(default=None, description="As strftime writes it.")
    types: dict[str, str] | None = Field(default=None, description="Types of columns by DuckDB's names.")
    all_varchar: bool | None = Field(default=None, description="Whether every column is text.")
    sample_size: int | None = Field(default=None, ge=-1, description="Lines by which types are told; -1: all.")
    max_line_size: int | None = Field(default=None, gt=0, description="The longest line, in bytes. [default: 2000000]")
    compression: Literal["none", "gzip", "zstd"] | None = Field(default=None, description="[default: by the ending]")

    @field_validator("encoding")
    @classmethod
    def _known(cls, given: str | None) -> str | None:
        return SAME.get(given.lower(), given.lower()) if given is not None else None

    @field_validator("nullstr", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @field_validator("types")
    @classmethod
    def _types(cls, given: dict[str, str] | None) -> dict[str, str] | None:
        import sqlglot  # noqa: PLC0415 (who only reads a specification does not wait for it)
        from sqlglot import exp  # noqa: PLC0415
        from sqlglot.errors import SqlglotError  # noqa: PLC0415

        for name, kind in (given or {}).items():
            try:
                sqlglot.parse_one(kind, into=exp.DataType, dialect="duckdb")
            except SqlglotError as error:
                raise ValueError(f"{name}: {kind!r} is no type") from error
        return given

    @property
    def given(self) -> dict[str, Any]:
        """What is said, by DuckDB's names."""
        return self.model_dump(exclude_none=True)
