"""Types of the keywords of ``publish`` and ``plan``, for editors and type checkers; no module has this name.

Made from the models of a specification: ``pytest tests/test_python.py --regenerate`` writes this file anew.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeAlias, TypedDict

from privsql.calls import PathLike
from privsql.engine.database import Options
from privsql.keyed_random import Key

Number: TypeAlias = int | float | Decimal | Fraction | str  # exact: a float is the decimal that it prints
Names: TypeAlias = str | Sequence[str]
Value: TypeAlias = Number | Sequence[Any] | Mapping[str, Any]  # a table, or its short form
Algorithm: TypeAlias = Literal[
    "anatomy",
    "one-size",
    "two-size",
    "multi-size",
    "optimal",
    "informative",
    "setting",
    "marginals",
    "diffpart",
    "nested",
    "exact",
    "reapply-last",
    "reapply-all",
    "cells",
    "up",
    "pp",
    "pp-paper",
    "tables",
    "views",
    "basic",
]

class SourceKeys(TypedDict, total=False):
    database: PathLike
    file: str | Names
    spark: Value
    postgres: Value
    mysql: Value
    ducklake: Value
    reader: Literal["parquet", "csv", "delta", "iceberg"]
    options: Value
    union_by_name: bool
    hive_partitioning: bool
    engine: Literal["duckdb", "spark"]
    table: str
    query: str
    id: str
    person: str
    persons: Literal["refuse", "one", "first", "some", "count"]
    order: str
    population: str

class ColumnsKeys(TypedDict, total=False):
    quasi_identifiers: Names
    sensitive: Names
    items: str
    record: str
    item: str
    categories: Names
    nulls: Mapping[str, Literal["value", "suppress", "refuse"]]
    bins: Mapping[str, Value]
    levels: Mapping[str, str | Mapping[str, str]]
    others: Mapping[str, str]
    categorical: bool

class ReleaseKeys(TypedDict, total=False):
    name: str
    to: PathLike
    schema: str
    format: Literal["duckdb", "parquet"]
    purpose: str
    recipient: str
    recipient_controls: str
    contact: str
    expert: str
    qualification: str
    valid_until: str
    date_of_review: str
    sampling_rate: Number
    order: Literal["stream", "portable"]

class LedgerKeys(TypedDict, total=False):
    database: PathLike
    epsilon: Number
    off: bool

class MechanismKeys(TypedDict, total=False):
    kind: Literal["bucketize", "contingency", "permute", "randomize", "setvalued"]
    algorithm: Algorithm
    threshold: Value | Number
    components: Mapping[str, Value]
    groups: Mapping[str, Value]
    min_bucket_size: int
    max_bucket_size: int
    setting: str
    layout: Literal["blocks", "round-robin", "largest-first", "lumps"]
    excess: Literal["refuse", "suppress"]
    absence: Literal["observable", "unobservable"]
    fake_values: int
    uneven_fakes: Literal["refuse", "state"]
    exclude_negative: bool
    no_admissible_fake: Literal["refuse", "weaker"]
    allow_certain: bool
    max_learning: Number
    epsilon: Number
    delta: Number
    max_records: int
    domains: Mapping[str, Value]
    workload: Sequence[Sequence[str]]
    measures: Names
    noise: Literal["auto", "laplace", "gaussian"]
    pairs: Literal["auto", "all", "chosen"]
    max_cells: int
    fan_out: int
    choice: Number
    score: Literal["max", "gini", "gain"]
    tau: Number
    tau_cells: Number
    allow_empty: bool
    k: int
    e: Number
    rho1: Number
    rho2: Number
    values: Names
    null_is_value: bool
    frequencies: Mapping[str, Number]
    objective: Literal["error", "bound"]
    gamma_from: Literal["rho1"]
    universe: Value
    c1: Number
    c2: Number
    tau_sets: Number

class Settings(TypedDict, total=False):
    source: SourceKeys
    columns: ColumnsKeys
    release: ReleaseKeys
    ledger: LedgerKeys
    mechanism: MechanismKeys

class Planning(TypedDict, total=False):
    options: Options | None
    memory_limit: str | None
    threads: int | None
    progress: bool
    connection: object | None
    sensitive: Names
    qi: Names
    bins: Mapping[str, Value]
    mechanism: Literal["bucketize", "contingency", "permute", "randomize", "setvalued"]
    algorithm: Algorithm
    threshold: Value | Number
    epsilon: Number
    delta: Number
    k: int
    e: Number
    id: str
    person: str
    persons: Literal["refuse", "one", "first", "some", "count"]
    to: PathLike
    format: Literal["duckdb", "parquet"]
    ledger: PathLike
    set: Settings

class Publishing(Planning, total=False):
    key: Key | None
    """The key that makes every random choice. [default: one that follows from the ledger's key]"""
    key_file: PathLike | None
    """A file that holds such a key; made, mode 0600, if it is not there."""
    seed: int | None
    """For tests only: a public seed; the release says so."""
    replace: bool
    """Replace an existing release."""
    repeat: bool
    """Replace an existing release only by the same again."""
    nobody_has_it: bool
    """With replace: nobody has received the release that is there."""
    allow_composition: bool
    """Publish the same subjects again where no guarantee covers it."""
    allow_useless: bool
    """Publish although a count of 500 is off by more than a fifth."""
    trace: bool
    """List the SQL statements that ran, with their files, rows and seconds."""
