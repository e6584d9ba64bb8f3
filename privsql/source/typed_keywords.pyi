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
    connection: object | None
    spark: Value
    """A table of Spark, in place of a file."""
    reader: Literal["parquet", "csv", "delta", "iceberg"]
    """File format of the source. One of parquet, csv, delta, iceberg. [default: by the ending]"""
    options: Options | Value | None
    """Options of a CSV file: { encoding = 'latin-1' }."""
    union_by_name: bool
    """Allow files with different columns; missing columns become NULL."""
    hive_partitioning: bool
    """Read folders named column=value as columns of the files in them."""
    engine: Literal["duckdb", "spark"]
    """Engine that reads a Parquet file (duckdb) or also a folder of them (spark). [default: duckdb]"""
    table: str
    """Table or view of a database file."""
    query: str
    """A SELECT over the source, in place of a table."""
    id: str
    """Column with a unique record id, for the ledger."""
    person: str
    """Column of persons, who may have several records."""
    persons: Literal["refuse", "one", "some", "count"]
    """Persons with several records: refuse them, publish one record of each, or some (at most max_records), or count
    all (bounds then hold per record). [default: refuse]
    """
    population: str
    """Whom the table is about: the same population is the same people to the ledger. [default: folder and file without
    dates and endings, or catalog.schema.table]
    """
    quasi_identifiers: Names
    """Quasi-identifiers: columns an attacker may know."""
    qi: Names
    """Short for quasi_identifiers."""
    sensitive: Names
    """Sensitive column, or several as one compound."""
    items: str
    """Item sets: the column with lists of items."""
    record: str
    """Item sets with a row per item: the column of the record."""
    item: str
    """Item sets with a row per item: the column of the item."""
    categories: Names
    """Columns of a table of counts."""
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
    """Name of the release; its views begin with it."""
    to: PathLike
    """File or folder to write the release to; with a schema also a Postgres database, postgresql://user@host/database."""
    schema: str
    """Schema of the database that becomes the release. The rest of its file is no part of the release, so do not hand
    the file out. [default: the whole file]
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
    """Privacy budget of all differentially private releases of the population together. It can be lowered; only
    'privsql ledger cap' raises it.
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
    """bucketize: one of anatomy, one-size, two-size, multi-size, optimal, informative, setting. [default: informative
    for thresholds with f, else optimal]; randomize: one of up, pp, pp-paper, tables. [default: pp]; permute: one of
    nested, exact, reapply-last, reapply-all. [default: nested]; setvalued: one of views, diffpart, basic. [default:
    views]; contingency: one of marginals, diffpart. [default: marginals]
    """
    threshold: Value | Number
    """bucketize: highest allowed belief in a value: a constant, or linear in its frequency f: '8*f + 0.02'; randomize:
    with tables: the same, over declared frequencies
    """
    components: Mapping[str, Value]
    """Thresholds of single columns of a compound sensitive attribute."""
    groups: Mapping[str, Value]
    """Named groups of values with a common threshold."""
    min_bucket_size: int
    """Smallest bucket size. [default: 2]"""
    max_bucket_size: int
    """Largest bucket size. [default: 50]"""
    setting: str
    """Buckets to validate and publish, number x size: '9x4, 1x14'."""
    layout: Literal["blocks", "round-robin", "largest-first", "lumps"]
    """How values are distributed over buckets. One of blocks, round-robin, largest-first, lumps. [default: blocks]"""
    excess: Literal["refuse", "suppress"]
    """Values too frequent for the threshold: refuse, or leave some records out. [default: refuse]"""
    absence: Literal["observable", "unobservable"]
    """Can attackers know who is in the table (observable), and so who is left out? [default: observable]"""
    fake_values: int
    """Number of fake values in each bucket. [default: 0]"""
    uneven_fakes: Literal["refuse", "state"]
    """Values too frequent for fakes to hide: refuse, or state each certainty. [default: refuse]"""
    exclude_negative: bool
    """Use only fakes that no negative association excludes."""
    no_admissible_fake: Literal["refuse", "weaker"]
    """Too few fakes left by exclude_negative: refuse, or take weaker ones. [default: refuse]"""
    allow_certain: bool
    """Publish values that are certain (belief 1), although no threshold is 1."""
    max_learning: Number
    """Highest mean belief of the learning attacker."""
    rho1: Number
    """Values of at most this frequency are protected."""
    rho2: Number
    """Highest belief in a protected value."""
    epsilon: Number
    """randomize: with tables: budget. The odds of a record's value change by at most e^epsilon; setvalued,
    contingency: budget: one record changes a probability at most by the factor e^epsilon
    """
    values: Names
    """With tables: the public list of sensitive values; all else counts as 'other'."""
    null_is_value: bool
    """With tables: NULL is one more value; false: it is 'other', too. [default: True]"""
    frequencies: Mapping[str, Number]
    """With tables: declared shares of values; never compared with the records."""
    delta: Number
    """randomize: one minus the confidence of the error bound. [default: 1/20]; setvalued, contingency: 0: pure
    differential privacy. Above: (epsilon, delta) by zero-concentrated privacy, with discrete Gaussian noise. Choose
    it far below 1/records, such as 1e-9. [default: 0]
    """
    objective: Literal["error", "bound"]
    """Measure that the partition minimises. One of error, bound. [default: error]"""
    gamma_from: Literal["rho1"]
    """With up: compute gamma from rho1, not from the largest protected frequency."""
    k: int
    """Fewest different values in a group."""
    e: Number
    """Smallest range of a group: 5000, or '30 days'."""
    max_records: int
    """Most records of a person (source.person), which share the budget: noise grows in proportion. [default: 1]"""
    universe: Value
    """Possible items: a list, { query = .. } or data."""
    fan_out: int
    """Children of a node of the taxonomy. [default: 10]"""
    c1: Number
    """Factor of the paper's threshold of item sets; with c2."""
    c2: Number
    """Factor of the paper's threshold of other parts; with c1."""
    tau: Number
    """setvalued: with diffpart: expected empty parts that pass. [default: 4]; contingency: with diffpart: expected
    empty parts that pass. [default: 1/10]
    """
    tau_sets: Number
    """With diffpart: expected empty item sets that pass. [default: 36]"""
    workload: Sequence[Sequence[str]]
    """setvalued: item sets that matter most: [['a', 'b'], ['c']]; public; contingency: columns whose joint table
    should be precise: [['sex', 'job', 'age'], ..]
    """
    allow_empty: bool
    """Publish even if most is noise: uninformative tables, or a tree with more pruned than kept."""
    domains: Mapping[str, Value]
    """Possible values of a column: a list, { query = .. }, { taxonomy = .. }, { bins = .. } or data."""
    measures: Names
    """Columns in bins whose SUM and AVG are measured; values are clamped to the ends of the bins."""
    pairs: Literal["auto", "all", "chosen"]
    """Measured: all pairs, or pairs and triples that others predict worst. One of auto, all, chosen. [default: auto]"""
    max_cells: int
    """With marginals: most cells of all tables. [default: 2000000]"""
    choice: Number
    """With diffpart: share of budget for choosing columns. [default: 1/4]"""
    score: Literal["max", "gini", "gain"]
    """With diffpart: score of columns: largest count, Gini index, gain. One of max, gini, gain. [default: max]"""
    tau_cells: Number
    """With diffpart: expected empty cells that pass. [default: 1/4]"""

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
