"""The keywords of ``publish`` and ``plan``, typed: one for every flag of the command line that makes a specification.

A test compares them with the models that both follow from (``privsql.source.flags``), where each of them is described.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from privsql.calls import PathLike
    from privsql.engine.progress import Options
    from privsql.noise import Key

Number = int | float | Decimal | Fraction | str
"""An exact number: a float means the decimal that it prints, a text may be a fraction such as "1/50"."""
Names = str | Sequence[str]
Nulls = Mapping[str, Literal["value", "suppress", "refuse"]]


class Planning(TypedDict, total=False):
    """What makes a specification of a source, and how it runs (``privsql.engine.progress.Running``).

    ``mechanism``: a kind, an algorithm, or the table of that name; ``options``: how the verb runs, or how a CSV file is
    written, ``{"encoding": "latin-1"}``.
    """

    options: Options | Mapping[str, Any] | None
    memory_limit: str | None
    threads: int | None
    progress: bool
    spark: Mapping[str, str]
    reader: Literal["parquet", "csv", "delta", "iceberg"]
    union_by_name: bool
    hive_partitioning: bool
    engine: Literal["duckdb", "spark"]
    table: str
    query: str
    id: str
    id_space: str
    person: str
    persons: Literal["refuse", "one", "count"]
    source_name: str
    quasi_identifiers: Names
    qi: Names
    sensitive: Names
    items: str
    record: str
    item: str
    categories: Names
    nulls: Nulls
    bins: Mapping[str, Number | Mapping[str, Any]]
    levels: Mapping[str, Mapping[str, str]]
    others: Mapping[str, str]
    categorical: bool
    name: str
    to: PathLike
    schema: str
    format: Literal["duckdb", "parquet"]
    order: Literal["stream", "portable"]
    ledger_database: PathLike
    ledger_epsilon: Number
    ledger_off: bool
    mechanism: str | Mapping[str, Any]
    kind: str
    algorithm: str
    threshold: Number | Mapping[str, Any]
    components: Mapping[str, Any]
    groups: Mapping[str, Any]
    min_bucket_size: int
    max_bucket_size: int
    layout: str
    excess: Literal["refuse", "suppress"]
    absence: Literal["observable", "unobservable"]
    fake_values: int
    uneven_fakes: Literal["refuse", "state"]
    exclude_negative: bool
    no_admissible_fake: Literal["refuse", "weaker"]
    allow_certain: bool
    prune: str
    proof_seconds: float
    rho1: Number
    rho2: Number
    delta: Number
    objective: Literal["error", "bound"]
    k: int
    e: Number
    epsilon: Number
    universe: Any
    fan_out: int
    c1: Number
    c2: Number
    tau: Number
    tau_sets: Number
    workload: Sequence[Sequence[str]]
    allow_empty: bool
    domains: Mapping[str, Any]
    pairs: Literal["auto", "all", "chosen"]
    max_cells: int
    choice: Number
    tau_cells: Number


class Publishing(Planning, total=False):
    """The same, and what makes a release of it."""

    key: Key | None
    key_file: PathLike | None
    seed: int | None
    replace: bool
    allow_composition: bool
