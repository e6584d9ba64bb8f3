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

class Planning(TypedDict, total=False):
    memory_limit: str | None
    threads: int | None
    progress: bool
    spark: Value
    """A table of Spark, in place of a file."""
    reader: Literal["parquet", "csv", "delta", "iceberg"]
    """File format of the source. [default: by the ending] parquet, csv, delta, iceberg."""
    options: Options | Value | None
    """Options of a CSV file: { encoding = 'latin-1' }."""
    union_by_name: bool
    """Allow files with different columns; missing columns become NULL."""
    hive_partitioning: bool
    """Read folders named column=value as columns of the files in them."""
    engine: Literal["duckdb", "spark"]
    """Engine that reads a Parquet file; spark reads a folder of such files, too. duckdb, spark. [default: duckdb]"""
    table: str
    """Table or view of a database file."""
    query: str
    """A SELECT over the source, in place of a table."""
    id: str
    """Column with a unique record id, for the ledger."""
    id_space: str
    """What the ids (or persons, without ids) belong to, such as "hospital admissions". The ledger does not compare
    them with ids of anything else.
    """
    person: str
    """Column that names persons, who may have several records."""
    persons: Literal["refuse", "one", "count"]
    """Persons with several records: refuse them, take one record of each, or count all (bounds are then of a record).
    [default: refuse]
    """
    source_name: str
    """Name of the source in the ledger. [default: its path, with its tables]"""
    quasi_identifiers: Names
    """Quasi-identifiers: columns that an attacker may know."""
    qi: Names
    """Short for quasi_identifiers."""
    sensitive: Names
    """Sensitive column; several form one compound attribute."""
    items: str
    """Item sets: the column with lists of items."""
    record: str
    """Item sets with a row per item: the column of the record."""
    item: str
    """Item sets with a row per item: the column of the item."""
    categories: Names
    """Columns of a table of categories."""
    nulls: Mapping[str, Literal["value", "suppress", "refuse"]]
    """Treatment of NULL in a column: value, suppress or refuse."""
    bins: Mapping[str, Value]
    """Bins of a quasi-identifier: width, { width, origin }, { edges }, { prefix }, or month, quarter, year."""
    levels: Mapping[str, str | Mapping[str, str]]
    """Map the values of a text quasi-identifier to groups, or name a CSV file of value and group."""
    others: Mapping[str, str]
    """Group of all values that levels do not map."""
    categorical: bool
    """Sensitive numbers are codes of categories, however many there are."""
    name: str
    """Name of the release; its views are called NAME_weighted and the like."""
    to: PathLike
    """File or folder to write the release to."""
    schema: str
    """Schema of database file ``to`` that becomes the release. The rest of that file is no part of the release, so do
    not hand the file out. [default: the whole file]
    """
    format: Literal["duckdb", "parquet"]
    """duckdb (one file) or parquet (a folder). [default: duckdb; for tables of Spark parquet]"""
    purpose: str
    """Purpose of the release, for its report."""
    recipient: str
    """Who receives the release, for its report."""
    contact: str
    """Whom to ask about the release, for its report."""
    order: Literal["stream", "portable"]
    """Order in which records are assigned: stream (fast) or portable (by keyed hashes: the same key gives the same
    release on every engine). [default: stream; for tables of Spark portable]
    """
    ledger_database: PathLike
    """File of the publisher's private ledger. [default: $PRIVSQL_LEDGER, or one per user]"""
    ledger_epsilon: Number
    """Privacy budget of all differentially private releases of the source together. It can be lowered; only 'privsql
    ledger cap' raises it.
    """
    ledger_off: bool
    """Write no ledger; the release says so."""
    mechanism: str | Mapping[str, Any]
    """A kind, an algorithm, or a table."""
    kind: Literal["bucketize", "randomize", "permute", "setvalued", "contingency"]
    """The mechanism: bucketize, randomize, permute, setvalued, contingency. [default: bucketize]"""
    algorithm: Literal[
        "anatomy",
        "one-size",
        "two-size",
        "multi-size",
        "optimal",
        "informative",
        "setting",
        "up",
        "pp",
        "pp-paper",
        "tables",
        "nested",
        "exact",
        "reapply-last",
        "reapply-all",
        "views",
        "diffpart",
        "basic",
        "marginals",
    ]
    """How buckets are chosen. [default: informative for thresholds that vary with f, else optimal] bucketize: anatomy,
    one-size, two-size, multi-size, optimal, informative, setting. [default: optimal]; randomize: up, pp, pp-paper,
    tables. [default: pp]; permute: nested, exact, reapply-last, reapply-all. [default: nested]; setvalued: views,
    diffpart, basic. [default: views]; contingency: marginals, diffpart. [default: marginals]
    """
    threshold: Value | Number
    """What belief in a value may reach: a constant, or linear in its frequency f: '8*f + 0.02'."""
    components: Mapping[str, Value]
    """Thresholds of single columns of a compound sensitive attribute."""
    groups: Mapping[str, Value]
    """Values that are bounded together, by name."""
    min_bucket_size: int
    """Smallest bucket size. [default: 2]"""
    max_bucket_size: int
    """Largest bucket size. [default: 50]"""
    setting: str
    """The buckets to validate and publish, number x size: '9x4, 1x14'."""
    layout: Literal["blocks", "round-robin", "largest-first", "lumps"]
    """How values are dealt to buckets. blocks, round-robin, largest-first, lumps."""
    excess: Literal["refuse", "suppress"]
    """What happens to records of values that are too frequent for the threshold. refuse, suppress. [default: refuse]"""
    absence: Literal["observable", "unobservable"]
    """Whether adversaries may know who is in the table, and so who is left out. observable, unobservable. [default:
    observable]
    """
    fake_values: int
    """Values that nobody in a bucket has, listed in each. [default: 0]"""
    uneven_fakes: Literal["refuse", "state"]
    """What happens where a value is too frequent for fakes to hide it as well as others. refuse, state. [default:
    refuse]
    """
    exclude_negative: bool
    """Fake values only that negative associations do not exclude."""
    no_admissible_fake: Literal["refuse", "weaker"]
    """What happens where too few fake values are left. refuse, weaker. [default: refuse]"""
    allow_certain: bool
    """Publish values that are certain (belief 1) although no threshold says 1."""
    max_learning: Number
    """Highest mean belief of who learns from the release; refused above."""
    proof_seconds: Number
    """How long optimal may search for a proof. [default: 1.0]"""
    rho1: Number
    """Values of at most this frequency are protected."""
    rho2: Number
    """What belief in a protected value may reach."""
    epsilon: Number
    """With tables: the odds of a value move by e^epsilon."""
    values: Names
    """With tables: the public list of sensitive values; all else counts as 'other'."""
    frequencies: Mapping[str, Number]
    """With tables: declared shares of values; never compared with the records."""
    delta: Number
    """1 - delta is the confidence of the error bound. randomize: [default: 1/20]; setvalued: [default: 0];
    contingency: [default: 0]
    """
    objective: Literal["error", "bound"]
    """What the partition makes small. error, bound. [default: error]"""
    gamma_from: Literal["rho1"]
    """With up: gamma follows from rho1, not from the largest protected frequency."""
    k: int
    """Least number of different sensitive values in a group."""
    e: Number
    """Least range of a group: in the column's unit, or a length of time such as '30 days'."""
    universe: Value
    """The items that there can be: a list, { query = 'SELECT ..' }, or data."""
    fan_out: int
    """Children of a node of the taxonomy. [default: 10]"""
    c1: Number
    """Factor of the literature's threshold of item sets; with c2."""
    c2: Number
    """Factor of the literature's threshold of other parts; with c1."""
    tau: Number
    """Empty parts of an expansion that pass, in expectation. setvalued: [default: 4]; contingency: [default: 1/10]"""
    tau_sets: Number
    """The same where they are item sets. [default: 36]"""
    workload: Sequence[Sequence[str]]
    """Sets of items that matter most: [['a', 'b'], ['c']]; public."""
    allow_empty: bool
    """Publish noise: tables without information, or a tree of which less was kept than pruned."""
    domains: Mapping[str, Value]
    """The values of a column: a list, { query = .. }, { taxonomy = .. }, { bins = .. }, or data."""
    pairs: Literal["auto", "all", "chosen"]
    """Whether all pairs of columns are measured, or those that the rest tells least of. auto, all, chosen. [default:
    auto]
    """
    max_cells: int
    """Cells of all tables together, of marginals. [default: 2000000]"""
    choice: Number
    """What choosing the next column takes of an expansion's budget. [default: 1/4]"""
    score: Literal["max", "gini", "gain"]
    """What the column that is divided next is chosen by: largest count, Gini index, gain. max, gini, gain. [default:
    max]
    """
    tau_cells: Number
    """The same where they are cells. [default: 1/4]"""

class Publishing(Planning, total=False):
    key: Key | None
    """The key that makes every random choice. [default: one that follows from the ledger's key]"""
    key_file: PathLike | None
    """A file that holds such a key; made, mode 0600, if it is not there."""
    seed: int | None
    """For tests only: a public seed; the release says so."""
    replace: bool
    """Replace a release that is there."""
    allow_composition: bool
    """Publish the same subjects again where no guarantee covers it."""
    fit: bool
    """Fit a model and store its parameters in the release."""
