"""Ten questions that an analyst asks of each made table, and whether a release answers them well."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

import privsql
from first.tables import MADE

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

LARGEST, NEAR, INSIDE = 8, 0.2, 0.9  # cells that are to be within 20 %, and the share of all that intervals are to hold

# Of a table with people: {s} is the sensitive column, {v} and {w} two of its values.
OF_PEOPLE = (
    "SELECT {s}, COUNT(*) FROM t GROUP BY {s}",
    "SELECT region, COUNT(*) FROM t WHERE {s} = {v} GROUP BY region",
    "SELECT sex, {s}, COUNT(*) FROM t GROUP BY sex, {s}",
    "SELECT region, AVG(CASE WHEN {s} = {v} THEN 1 ELSE 0 END) FROM t GROUP BY region",
    "SELECT COUNT(*) FROM t WHERE {s} = {v} AND age >= 50",
    "SELECT sex, AVG(age) FROM t WHERE {s} = {v} GROUP BY sex",
    "SELECT region, sex, COUNT(*) FROM t GROUP BY region, sex",
    "SELECT sex, COUNT(*) FROM t WHERE {s} IN ({v}, {w}) AND age < 65 GROUP BY sex",
    "SELECT {s}, COUNT(*) FROM t WHERE sex = 'female' AND age BETWEEN 30 AND 59 GROUP BY {s}",
    "SELECT CASE WHEN age < 40 THEN 'young' WHEN age < 65 THEN 'middle' ELSE 'old' END AS g, COUNT(*) FROM t "
    "WHERE {s} = {v} GROUP BY g",
)
OF_ITEMS = (
    "SELECT COUNT(*) FROM t",
    "SELECT COUNT(*) FROM t WHERE list_contains({s}, {v})",
    "SELECT COUNT(*) FROM t WHERE list_contains({s}, {w})",
    "SELECT item, COUNT(*) FROM t, unnest({s}) AS u(item) GROUP BY item",
    "SELECT COUNT(*) FROM t WHERE list_has_all({s}, [{v}, {w}])",
    "SELECT COUNT(*) FROM t WHERE list_has_any({s}, [{v}, {w}])",
    "SELECT COUNT(*) FROM t WHERE NOT list_contains({s}, {v})",
    "SELECT COUNT(*) FROM t WHERE list_contains({s}, {v}) AND NOT list_contains({s}, {w})",
    "SELECT COUNT(*) FROM t WHERE len({s}) > 1",
    "SELECT COUNT(*) FROM t WHERE list_contains({s}, {v}) OR len({s}) > 2",
)
OF_NUMBERS = (
    "SELECT AVG({s}) FROM t",
    "SELECT sex, AVG({s}) FROM t GROUP BY sex",
    "SELECT region, AVG({s}) FROM t GROUP BY region",
    "SELECT region, SUM({s}) FROM t GROUP BY region",
    "SELECT COUNT(*) FROM t WHERE {s} > 2000",
    "SELECT sex, COUNT(*) FROM t WHERE {s} > 2000 GROUP BY sex",
    "SELECT MEDIAN({s}) FROM t",
    "SELECT AVG({s}) FROM t WHERE age >= 50",
    "SELECT region, sex, COUNT(*) FROM t GROUP BY region, sex",
    "SELECT sex, AVG({s}) FROM t WHERE age BETWEEN 30 AND 59 GROUP BY sex",
)
# Where a table has other columns, or more to ask for, these questions take the place of some.
OTHERS: dict[str, dict[str, str]] = {
    "loans": {"region": "home_ownership", "sex": "term", "age": "LENGTH(purpose)"},
    "without_names": {"region": "x3", "sex": "x1", "age": "x5"},
}
FEMALE = {"loans": "'36 months'", "without_names": "1"}
AGES = {"loans": (11, 10, 11, 10, 10, 11), "without_names": (4, 5, 2, 6, 3, 5)}
ADDED = {
    "visits": ("SELECT sex, AVG(visits) FROM t GROUP BY sex", "SELECT region, SUM(visits) FROM t GROUP BY region"),
    "double_ids": ("SELECT year(birth_date) AS g, COUNT(*) FROM t GROUP BY g",),
    "wages": ("SELECT occupation, AVG(wage) FROM t GROUP BY occupation",),
    "two_weights": ("SELECT sex, SUM(wtint2yr) FROM t WHERE diabetes = 'yes' GROUP BY sex",),
    "crashes": ("SELECT sex, SUM(ratwgt) FROM t WHERE injury = 'serious' GROUP BY sex",),
}


@dataclass(frozen=True)
class Asked:
    """A question, its answer in the source by group, and (estimate, low, high) of each group in the release."""

    sql: str
    truth: dict[tuple[Any, ...], float]
    answer: dict[tuple[Any, ...], tuple[float, float, float]]
    refused: str = ""

    @property
    def is_well_answered(self) -> bool:
        """Whether the eight largest cells are within 20 %, and intervals hold 90 % of all."""
        if self.refused:
            return False
        largest = sorted(self.truth, key=lambda key: -abs(self.truth[key]))[:LARGEST]
        inside = [low - 1e-6 <= self.truth[key] <= high + 1e-6 for key, (_, low, high) in self.known.items()]
        near = [abs(self.known[key][0] - self.truth[key]) <= NEAR * abs(self.truth[key]) for key in largest]
        return sum(inside) >= INSIDE * len(inside) and all(near)

    @property
    def known(self) -> dict[tuple[Any, ...], tuple[float, float, float]]:
        """The figures of each group of the source; a group that is missing has none of anything."""
        return {key: self.answer.get(key, (0.0, 0.0, 0.0)) for key in self.truth}


def list_questions(name: str, values: list[str]) -> list[str]:
    """Ten questions; ``values``: those of the sensitive column as SQL writes them, the most interesting first."""
    sensitive = MADE[name]().sensitive
    forms = OF_NUMBERS if name == "wages" else OF_ITEMS if name in ("hospital_tests", "adverse_events") else OF_PEOPLE
    questions = [*ADDED.get(name, ()), *forms][:10]
    written = [one.replace("{s}", sensitive).replace("{v}", values[0]).replace("{w}", values[1]) for one in questions]
    if name in OTHERS:
        low, middle, young, old, first, last = AGES[name]
        for old_text, new in (
            ("age >= 50", f"age >= {low}"), ("age < 65 THEN", f"age < {old} THEN"), ("age < 65", f"age < {middle}"),
            ("age < 40", f"age < {young}"), ("BETWEEN 30 AND 59", f"BETWEEN {first} AND {last}"),
            ("'female'", FEMALE[name]),
        ):  # fmt: skip
            written = [one.replace(old_text, new) for one in written]
        for column, other in OTHERS[name].items():
            written = [one.replace(f"GROUP BY {column}", f"GROUP BY {other}").replace(column, other) for one in written]
    return written


def reduce_table(name: str, spec: dict[str, Any], data: pa.Table) -> str:
    """The query for the records that the release is of: the first of each person, or each person's set."""
    columns = spec["columns"]
    if "record" in columns:
        item = columns["item"]
        return f"SELECT list(DISTINCT {item}) AS {item} FROM data GROUP BY {columns['record']}"
    source = spec.get("source", {})
    if source.get("persons") == "first":
        by = f"PARTITION BY {source['person']} ORDER BY {source['order']}"
        return f"SELECT * FROM data QUALIFY row_number() OVER ({by}) = 1"
    return "SELECT * FROM data"


def ask_table(name: str, folder: Path, seed: int = 1) -> list[Asked]:
    """Publish what ``init`` proposes, and put ten questions to the release and to its source."""
    made = MADE[name]()
    spec = tomllib.loads(privsql.init(made.data, sensitive=made.sensitive, accept=name != "without_names"))
    decided = spec.pop("decide", {})  # who knows the columns x1, x2, .. publishes them
    spec["columns"].setdefault("quasi_identifiers", []).extend(decided.pop("unknown", []))
    spec["mechanism"] |= decided
    spec |= {"ledger": {"off": True}, "release": {"name": "t", "to": str(folder / f"{name}.duckdb")}}
    release = privsql.publish(privsql.build(spec, source=made.data), seed=seed, allow_useless=True)
    values = [one for one in made.data[made.sensitive].value_counts().to_pylist() if one["values"] is not None]
    values.sort(key=lambda one: -one["counts"])
    texts = [str(one["values"]) if isinstance(one["values"], int) else f"'{one['values']}'" for one in values]
    first = texts[1:3] if len(texts) > 2 else [*reversed(texts), *texts][:2]
    asked = []
    with duckdb.connect() as db:
        db.register("data", made.data)
        db.execute(f"CREATE TABLE t AS {reduce_table(name, spec, made.data)}")
        for sql in list_questions(name, first):
            rows = db.execute(sql).fetchall()
            truth = {row[:-1]: float(row[-1]) for row in rows if row[-1] is not None}
            try:
                answer = privsql.query(release, sql)
            except privsql.PrivsqlError as error:
                asked.append(Asked(sql, truth, {}, str(error)))
                continue
            figures = {}
            for row in answer.rows:
                estimate, low, high = row[-4], row[-2], row[-1]
                if estimate is not None:
                    ends = (-float("inf") if low is None else float(low), float("inf") if high is None else float(high))
                    figures[tuple(row[:-4])] = (float(estimate), *ends)
            asked.append(Asked(sql, truth, figures))
    return asked
