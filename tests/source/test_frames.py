"""Tables in Python as sources: four libraries give one release, and what can't be one is refused in a line."""

from __future__ import annotations

import re
import tempfile
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import privsql
from privsql import UsageError
from privsql.releases.opened import read_manifest
from privsql.source import places
from privsql.source.places import as_frame
from support.commands import by_keys, tables
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 120
ASKED = {"sensitive": "disease", "threshold": 0.5, "seed": 1, "ledger.off": True, "algorithm": "two-size"}
BERLIN = "Europe/Berlin"
VALUES: dict[str, Callable[[int], Any]] = {
    "age": lambda i: 20 + i % 40,
    "mass": lambda i: None if i % 17 == 0 else 50.25 + i % 9,
    "town": lambda i: None if i % 11 == 0 else f"town {i % 7} \u00fc'\"",
    "band": lambda i: ("low", "high", "mid")[i % 3],
    "since": lambda i: None if i % 13 == 0 else date(2020, 1, 1 + i % 28),
    "paid": lambda i: Decimal(i % 50) / 4 + Decimal("0.25"),
    "seen": lambda i: datetime(2021, 3, 1 + i % 28, i % 24, tzinfo=UTC),
    "local": lambda i: datetime(2021, 3, 1 + i % 28, i % 24, 5),
    "hour": lambda i: None if i % 19 == 0 else time(i % 24, 30),
    "smokes": lambda i: i % 4 == 0,
    "visits": lambda i: None if i % 5 == 0 else i % 6,
    "disease": lambda i: ("flu", "cold", "HIV", "gout", "ulcer")[i % 5],
}
TYPES = {
    "age": pa.int64(), "mass": pa.float64(), "town": pa.string(), "band": pa.string(), "since": pa.date32(),
    "paid": pa.decimal128(4, 2), "seen": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
    "hour": pa.time64("us"), "smokes": pa.bool_(), "visits": pa.int64(), "disease": pa.string(),
}  # fmt: skip
COLUMNS = {
    "columns": {"quasi_identifiers": ["age"], "sensitive": "disease"}, "mechanism": {"threshold": "1/2"},
}  # fmt: skip
QI = [name for name in VALUES if name != "disease"]


def plain() -> dict[str, list[Any]]:
    return {name: [value(i) for i in range(ROWS)] for name, value in VALUES.items()}


def arrow() -> pa.Table:
    """As Arrow says it best, but for a column of categories, and one of nanoseconds."""
    made = pa.table({name: pa.array(values, TYPES[name]) for name, values in plain().items()})
    made = made.set_column(3, "band", made["band"].dictionary_encode())
    return made.set_column(7, "local", made["local"].cast(pa.timestamp("ns")))


def stream() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(arrow().schema, arrow().to_batches(max_chunksize=50))


def pandas() -> pd.DataFrame:
    """With what is missing as NaN, None and NA, categories, and times in a zone."""
    made = pd.DataFrame(plain())
    made["mass"] = made["mass"].astype("float64")
    made["band"] = pd.Categorical(made["band"], ["low", "mid", "high"], ordered=True)
    made["seen"] = pd.to_datetime(made["seen"]).dt.tz_convert(BERLIN)
    made["visits"] = made["visits"].astype("Int64")
    made["since"] = pd.Series([VALUES["since"](i) for i in range(ROWS)], dtype=object)
    return made.sample(frac=1, random_state=1)


def polars() -> Any:
    found = pytest.importorskip("polars")
    made = found.DataFrame(plain(), schema_overrides={"paid": found.Decimal(4, 2)})
    return made.with_columns(found.col("band").cast(found.Categorical), found.col("seen").dt.convert_time_zone(BERLIN))


def relation() -> Any:
    """A query of DuckDB's over the same, with an ENUM."""
    db = duckdb.connect()
    db.register("given", arrow())
    return db.sql("SELECT * REPLACE (band::ENUM('low', 'high', 'mid') AS band) FROM given ORDER BY age")


MADE: dict[str, Callable[[], Any]] = {
    "pandas": pandas, "relation": relation, "polars": polars, "stream": stream,
    "batch": lambda: pa.record_batch(plain()),
}  # fmt: skip


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    """The release of the Arrow table."""
    to = tmp_path_factory.mktemp("arrow") / "release.duckdb"
    privsql.publish(arrow(), qi=QI, to=to, **by_keys({**ASKED, "columns.nulls": {"visits": "suppress"}}))
    return tables(to)


@pytest.mark.slow
@each("library", list(MADE), few=1)
def test_every_library_gives_the_same_release(
    tmp_path: Path, expected: dict[str, list[tuple[Any, ...]]], library: str
) -> None:
    to = tmp_path / "release.duckdb"
    found = MADE[library]()
    if library == "batch":
        found = found.cast(arrow().cast(pa.schema(list(TYPES.items()))).schema)
    done = privsql.publish(found, qi=QI, to=to, **by_keys({**ASKED, "columns.nulls": {"visits": "suppress"}}))
    assert done.facts["suppressed"] == ROWS // 5
    assert [(one.name, one.type) for one in read_manifest(to).quasi_identifiers][4:7] == [
        ("since", "DATE"),
        ("paid", "DECIMAL(4,2)"),
        ("seen", "TIMESTAMP WITH TIME ZONE"),
    ]
    assert tables(to) == expected


@pytest.mark.slow
def test_a_release_is_verified_against_the_table_alone(tmp_path: Path) -> None:
    """Columns, policies and mechanism are those that the release states; one changed cell is found."""
    people = pandas()
    done = privsql.publish(people, qi=["age", "town"], to=tmp_path / "r.duckdb", **by_keys(ASKED))
    assert privsql.verify(done, source=people).ok
    people.loc[3, "disease"] = "HIV" if people.loc[3, "disease"] != "HIV" else "flu"
    assert not privsql.verify(done, source=people).ok
    with pytest.raises(UsageError, match="'town' is not in the source"):
        privsql.verify(done, source=people.drop(columns="town"))


@pytest.mark.soak(part="long")
def test_a_release_is_measured_against_the_table_alone(tmp_path: Path) -> None:
    people = pandas()
    done = privsql.publish(people, qi=["age", "smokes"], to=tmp_path / "r.duckdb", **by_keys(ASKED))
    by_table, by_spec = (privsql.attack(done, source=one).as_json()["adversaries"] for one in (people, done.spec))
    assert by_table == by_spec
    assert privsql.evaluate(done, people, queries=5).scores == privsql.evaluate(done, done.spec, queries=5).scores
    people.loc[3, "disease"] = "none"
    assert privsql.verify(done, source=done.spec).ok  # the table as it was published


def test_numbers_that_change_later_change_nothing() -> None:
    """Without a copy Arrow shares memory with pandas, which writes in place."""
    people = pd.DataFrame({"age": [1, 2, 3], "when": pd.to_datetime(["2020-01-01"] * 3)})
    found = as_frame(people)
    people.loc[0, "age"] = 99
    people["age"].to_numpy(copy=False)
    assert found.table["age"].to_pylist() == [1, 2, 3]


def test_a_stream_is_read_once() -> None:
    read = stream()
    assert as_frame(read).table.num_rows == ROWS
    with pytest.raises(UsageError, match="can be read once"):
        as_frame(read)


def test_what_pandas_does_with_missing_numbers_is_said() -> None:
    found = as_frame(pd.DataFrame({"age": [1, None, 3], "size": [1.5, None, 2.0], "name": ["a", None, float("nan")]}))
    assert found.table["age"].to_pylist() == [1.0, None, 3.0]
    assert found.table["name"].to_pylist() == ["a", None, None]
    (said,) = found.list_remarks(["AGE", "size"], queried=False)
    assert "'age': pandas holds whole numbers as float64" in said
    assert found.list_remarks(["size"], queried=False) == []
    assert found.list_remarks(["size"], queried=True) == [said]


@each("index", [pd.Index([5, 6], name="person"), pd.Index(["a", "b"]), pd.MultiIndex.from_product([[1], [2, 3]])])
def test_an_index_is_no_column_and_that_is_said(index: Any) -> None:
    found = as_frame(pd.DataFrame({"age": [1, 2]}, index=index))
    assert found.table.column_names == ["age"]
    assert "is no column and is left out" in found.list_remarks([], queried=False)[0]


def test_an_index_that_says_nothing_is_not_spoken_of() -> None:
    assert as_frame(pd.DataFrame({"age": [1, 2]}, index=[7, 3])).remarks == ()


def levels() -> pd.DataFrame:
    return pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))


@each(
    ("given", "words"),
    [
        (pd.DataFrame([[1, 2]]), "column 0 has a name that is not text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' appears twice"),
        (pd.DataFrame([[1, 2]], columns=["a", "A"]), "'a' and 'A' differ only in case"),
        (pd.DataFrame([[1, 2]], columns=["a", ""]), "has a name that is not text"),
        (levels(), "has a name with several levels"),
        (pd.DataFrame(), "has no columns"),
        (pd.Series([1, 2]), "a pandas Series is one column"),
        (pa.table({"a": [1]}).select([]), "has no columns"),
        (pa.Table.from_arrays([[1], [2]], ["a", "a"]), "'a' appears twice"),
        ([1, 2], "list is not a table"),
        (iter([1]), "is not a table"),
        (7, "int is not a table"),
        (None, "publish needs a source"),
        (pd.DataFrame, "DataFrame is a class, not a table"),
    ],
)
def test_what_is_no_table_is_refused(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        privsql.publish(given, qi="b", **by_keys(ASKED))


@pytest.mark.slow
def test_a_column_that_can_not_be_read_is_left_out_or_refused_by_its_name(tmp_path: Path) -> None:
    """Others are published all the same; a period is not taken for the number that stands for it."""
    people = pandas().assign(mixed=[1, "a"] * (ROWS // 2), day=pd.period_range("2020", periods=ROWS))
    done = privsql.publish(people, qi=["age"], to=tmp_path / "r.duckdb", **by_keys(ASKED))
    assert privsql.verify(done, source=people).ok
    assert [one.split(";")[-1] for one in done.warnings] == [" it is left out"] * 2
    for name, words in (
        ("mixed", r"can't be read \(object\)"),
        ("DAY", "has the type .*period.* of Arrow, which can't be read"),
    ):
        with pytest.raises(UsageError, match=f"column '{name}' {words}"):
            privsql.plan(people, qi=["age", name], sensitive="disease", threshold=0.5)


def test_intervals_are_their_labels_and_what_else_arrow_can_not_hold_is_no_traceback() -> None:
    bands = pd.cut(pd.Series([21, 37, None]), [20, 30, 40])
    months = pd.Categorical(pd.period_range("2020-01", periods=3, freq="M"))
    found = as_frame(pd.DataFrame({"age": bands, "month": months}))
    assert found.table["age"].to_pylist() == ["(20, 30]", "(30, 40]", None]
    assert "period" in found.left_out["month"]


def test_a_column_that_pandas_made_an_index_is_not_found_and_that_is_said() -> None:
    people = pandas().set_index("age")
    for name in ("age", "AGE"):
        with pytest.raises(UsageError, match=r"is of the index, which is no column; df\.reset_index"):
            privsql.publish(people, qi=[name], **by_keys(ASKED))
    as_frame(people).refuse_unreadable(["age"], queried=True)
    as_frame(people.rename_axis("SMOKES")).refuse_unreadable(["smokes"], queried=False)


def test_a_stream_whose_maker_fails_is_a_line() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield arrow().to_batches()[0]
        raise ValueError("upstream broke")

    with pytest.raises(UsageError, match=r"upstream broke\.?$"):
        as_frame(pa.RecordBatchReader.from_batches(arrow().schema, batches()))
    unbound = type(
        "Unbound", (Expression,), {"to_pyarrow_batches": lambda _: {}["backend"]}
    )  # errors of a library's own
    with pytest.raises(UsageError, match="Unbound can't be read as a table: 'backend'"):
        as_frame(unbound(1, 1))


def test_types_of_arrow_that_the_engine_lacks_are_read() -> None:
    given = pa.table(
        {"half": pa.array([1.5], pa.float16()), "none": pa.nulls(1), "code": pa.array([7]).dictionary_encode()}
    )
    found = as_frame(given).table
    assert found.schema.types == [pa.float32(), pa.string(), pa.int64()]
    named = as_frame(pd.DataFrame({"id": [uuid.UUID(int=1)]}))
    assert named.table.schema.types == [pa.uuid()]


def test_a_relation_that_fails_is_a_line() -> None:
    with duckdb.connect() as db:
        fails, closed = db.sql("SELECT error('no such ward') AS a"), db.sql("SELECT 1 AS a")
        with pytest.raises(UsageError, match="no such ward"):
            as_frame(fails)
    with pytest.raises(UsageError, match="closed"):
        as_frame(closed)


def test_a_specification_has_one_source() -> None:
    people = pandas()
    given = {"source": {"frame": people, "file": "x.csv"}, "columns": {"quasi_identifiers": ["age"]}}
    with pytest.raises(UsageError, match="can't be combined"):
        privsql.build(given | {"mechanism": {"threshold": 0.5}})


@each("rows", [0, 1])
def test_too_few_rows_are_refused(rows: int) -> None:
    with pytest.raises(privsql.PrivsqlError, match=r"no record|frequency 1 above"):
        privsql.plan(pandas().head(rows), qi=["age"], sensitive="disease", threshold=0.5)


@pytest.mark.slow
def test_names_are_quoted_and_long_texts_kept(tmp_path: Path) -> None:
    people = pandas().assign(**{"select": "x" * 20_000, 'a"b; --': 1, "order": 2.5})
    names = ["select", 'a"b; --', "order"]
    done = privsql.publish(people, qi=names, to=tmp_path / "r.duckdb", **by_keys(ASKED))
    assert privsql.verify(done, source=people).ok
    with privsql.open(done) as release:
        assert release.query('SELECT "select", COUNT(*) FROM data GROUP BY "select"').rows[0][1] == ROWS


@pytest.mark.slow
def test_three_hundred_columns(tmp_path: Path) -> None:
    wide = pd.concat([pandas(), pd.DataFrame({f"c{i}": range(ROWS) for i in range(300)})], axis=1)
    done = privsql.publish(wide, qi=["age", "c7"], to=tmp_path / "r.duckdb", **by_keys(ASKED))
    assert read_manifest(done).records == ROWS


@pytest.mark.slow
def test_nothing_says_whom_a_table_is_about_but_its_publisher(tmp_path: Path) -> None:
    people = pandas()[["age", "disease"]]
    asked = {"qi": ["age"], "sensitive": "disease", "threshold": 0.5}
    with pytest.raises(UsageError, match=r"source.population is missing: a table in Python .* = 'clinic'"):
        privsql.publish(people, to=tmp_path / "a.duckdb", **by_keys(asked))
    planned = privsql.plan(people, **by_keys(asked))
    assert planned.ledger["population"] == []
    assert "publish needs source.population" in planned.warnings[-1]
    privsql.publish(people, to=tmp_path / "off.duckdb", **by_keys({**asked, "ledger.off": True}))
    done = privsql.publish(people, to=tmp_path / "a.duckdb", **by_keys({**asked, "source.population": "clinic"}))
    assert done.ledger["population"] == ["clinic"]
    assert ("population", "clinic") in done.lines
    part = people[["disease"]].assign(AGE=people["age"] // 10)
    with pytest.raises(privsql.GuaranteeError, match=r"release 1 .* is of this population, .* of their own"):
        privsql.publish(part, to=tmp_path / "b.duckdb", **by_keys({**asked, "source.population": "Clinic"}))
    others = people.assign(age=people["age"] * 7 % 31, disease=people["disease"].to_numpy()[::-1])
    privsql.publish(others, to=tmp_path / "c.duckdb", **by_keys({**asked, "source.population": "others"}))
    with pytest.raises(privsql.GuaranteeError, match="another population"):  # the same people once more
        privsql.publish(
            people.assign(more=1), to=tmp_path / "b.duckdb", **by_keys({**asked, "source.population": "third"})
        )


def test_init_proposes_for_a_table_and_load_takes_one(tmp_path: Path) -> None:
    people = pandas()[["age", "band", "disease"]].assign(person=range(ROWS))
    path = tmp_path / "spec.toml"
    with pytest.raises(UsageError, match="nothing is left to publish beside 'disease'; outsiders may know: band"):
        privsql.init(people, sensitive="disease", accept=True)
    text = privsql.init(people, sensitive="disease", promise="bucketize")
    decided = re.sub(r"\[decide\].*?\n\n", "", text, flags=re.DOTALL)
    path.write_text(decided.replace("identifiers = []", 'identifiers = ["band"]'), encoding="utf-8")
    spec = privsql.load(path, source=people)
    assert privsql.load(path, source="other.csv").source.path == Path("other.csv").absolute()
    assert (spec.columns.sensitive, spec.source.id) == (("disease",), "person")
    assert privsql.plan(spec).facts["loss"] > 0


# Streams --------------------------------------------------------------------------------------------------------------


class Lazy:
    """What any library may hand over: batches that are made as they are read."""

    def __init__(self, batches: int, rows: int) -> None:
        self.made, self._batches, self._rows = 0, batches, rows

    def reader(self) -> pa.RecordBatchReader:
        schema = pa.schema({"age": pa.int64(), "disease": pa.string()})
        return pa.RecordBatchReader.from_batches(schema, self._make())

    def _make(self) -> Iterator[pa.RecordBatch]:
        for batch in range(self._batches):
            self.made += 1
            numbers = range(batch * self._rows, (batch + 1) * self._rows)
            values = {"age": [i % 60 for i in numbers], "disease": [f"d{i % 7}" for i in numbers]}
            yield pa.record_batch(values)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)


class Expression(Lazy):
    """As a table of Ibis, whose stream would be a whole table."""

    def to_pyarrow_batches(self) -> pa.RecordBatchReader:
        return self.reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        pytest.fail("the whole table was asked for")


@pytest.mark.parametrize("library", [Lazy, Expression])
def test_a_long_stream_is_read_once_and_does_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: type[Lazy]
) -> None:
    """It lies in a file without a name, and holds the same rows."""
    monkeypatch.setattr(places, "HELD", 2**14)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lazy, before = library(50, 200), pa.total_allocated_bytes()
    frame = as_frame(lazy)
    assert lazy.made == 50
    assert frame.table.nbytes > 10**5 > pa.total_allocated_bytes() - before
    assert list(tmp_path.iterdir()) == []
    assert frame.table.equals(library(50, 200).reader().read_all())


def test_numeric_of_postgres_has_the_digits_of_its_column() -> None:
    """ADBC brings texts; no record decides the type. Without digits, or with NaN, the column is refused by name."""
    kind = pa.opaque(pa.string(), "numeric", "PostgreSQL")

    def column(digits: int, *values: str | None) -> Any:
        field = pa.field("pay", kind, metadata={"POSTGRESQL:type": "numeric", "POSTGRESQL:typmod": str(digits)})
        schema = pa.schema([field, pa.field("disease", pa.string())])
        stored = pa.ExtensionArray.from_storage(kind, pa.array(values, pa.string()))
        return pa.table([stored, pa.array(["flu"] * len(values))], schema=schema).to_reader()

    fits = (9 << 16) + 2 + 4
    frame = as_frame(column(fits, "1.50", "-1234567.89", None))
    assert frame.table["pay"].type == pa.decimal128(9, 2)
    assert frame.table["pay"].to_pylist() == [Decimal("1.50"), Decimal("-1234567.89"), None]
    for digits, value in ((-1, "1.5"), (fits, "NaN"), ((60 << 16) + 2 + 4, "1.50")):
        with pytest.raises(UsageError, match=r"column 'pay' is numeric without digits.*pay|x::numeric\(9, 2\)"):
            privsql.publish(column(digits, value), qi="pay", to="r.duckdb", **by_keys(ASKED))
