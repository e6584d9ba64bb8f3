"""privsql.answers.sql.sources: a name in a query means what it means to DuckDB, or the query is refused."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from privsql.answers.sql.compiler import parse_query
from privsql.answers.sql.grammar import parse_query_text
from privsql.engine.files import fold_name
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import Field, Roles
from privsql.errors import PrivsqlError, UsageError
from support.openly import answered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.engine.database import EngineSession

# Numbers alone, so that nothing is refused for its type; more than one table has age, sex and region.
TABLES = {
    "people": 'age INTEGER, sex INTEGER, "Zip Code" INTEGER, job INTEGER, Ä INTEGER',
    "lk": "Age INTEGER, region INTEGER, sex INTEGER",
    "areas": "zip INTEGER, region INTEGER, job INTEGER",
}
ROLES = Roles(
    tuple(Field(name, "INTEGER") for name in ("age", "sex", "Zip Code")),
    tuple(Field(name, "INTEGER") for name in ("job", "Ä")),
)


class Listed:
    """Lookups by what they are called, each in database ``lookups`` under its own name."""

    def __init__(self, **columns: tuple[str, ...]) -> None:
        self._columns = columns

    def find_table(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The table, and its columns."""
        found = [
            (name, own) for name, own in self._columns.items() if (fold_name(name),) == tuple(map(fold_name, names))
        ]
        if not found:
            raise UsageError(f"there is no lookup table {'.'.join(names)}")
        return found[0]


LOOKUPS = Listed(lk=("Age", "region", "sex"), areas=("zip", "region", "job"))


@pytest.fixture(scope="module")
def world() -> Iterator[EngineSession]:
    """The table that a release would hold exactly, and lookups beside it."""
    dice = random.Random(2)  # noqa: S311
    with open_scratch() as db:
        run = db.connection.run  # type: ignore[attr-defined]
        run("ATTACH ':memory:' AS lookups")
        for name, columns in TABLES.items():
            run(f"CREATE TABLE {'' if name == 'people' else 'lookups.main.'}{name} ({columns})")
            if name != "people":
                run(f"CREATE TEMP VIEW {name} AS FROM lookups.main.{name}")
        for _ in range(60):
            row = [dice.choice([None, *range(6)]), dice.randrange(3), *(dice.randrange(4) for _ in range(3))]
            run(f"INSERT INTO people VALUES ({', '.join('NULL' if v is None else str(v) for v in row)})")
        for i in range(5):
            run(f"INSERT INTO lookups.main.lk VALUES ({i}, {i % 2}, {(i + 1) % 3})")
            run(f"INSERT INTO lookups.main.areas VALUES ({i}, {3 - i % 2}, {i % 4})")
        yield db


def told(db: EngineSession, sql: str) -> tuple[list[str], list[tuple[Any, ...]]] | str:
    """DuckDB's own answer, or its refusal."""
    try:
        found = db.connection.arrow(sql)  # type: ignore[attr-defined]
        return found.column_names, db.connection.rows(sql)  # type: ignore[attr-defined]
    except PrivsqlError as error:
        return str(error)


def compared(db: EngineSession, sql: str) -> str:
    """Which of the two answer; fails where DuckDB refuses what is answered here, or answers otherwise."""
    expected = told(db, sql)
    try:
        query = parse_query(sql, ROLES, "people", LOOKUPS, ("sum", "avg"))
    except UsageError:
        return "neither" if isinstance(expected, str) else "DuckDB alone"
    assert not isinstance(expected, str), f"{sql[:300]}: answered, where DuckDB says {expected}"
    described = db.connection.rows(f"DESCRIBE {sql}")  # type: ignore[attr-defined]
    names, rows = answered(db, query, "people", [Field(row[0], row[1]) for row in described])
    assert rows == expected[1], sql
    for ours, theirs in zip(names, expected[0], strict=True):
        assert ours.lower() == theirs.lower() or "(" in theirs, sql
    return "both"


# Cases ----------------------------------------------------------------------------------------------------------------

ANSWERED = """
    SELECT COUNT(*) FROM people JOIN lk ON people.age = lk.age WHERE people.age > 2 AND lk.age < 4
    SELECT lk.age, COUNT(*) FROM people JOIN lk ON people.age = lk.age GROUP BY lk.age ORDER BY lk.age
    SELECT people.sex, lk.sex AS s, COUNT(*) FROM people JOIN lk USING (age) GROUP BY 1, lk.sex ORDER BY 1, 2
    SELECT AGE, COUNT(*) FROM people JOIN lk USING (age) WHERE age > 1 GROUP BY age ORDER BY age
    SELECT age, COUNT(*) FROM people JOIN lk USING (age) GROUP BY people.age ORDER BY people.age, 1
    SELECT COUNT(*) FROM people AS p JOIN lk AS l USING (age, sex) WHERE sex = 1 AND l.sex = p.sex
    SELECT age, COUNT(*) FROM people JOIN lk USING (age) JOIN lk AS l USING (age) GROUP BY age ORDER BY 1
    FROM people JOIN lk USING (age) SELECT COUNT(*)
    SELECT qit.region, COUNT(*) FROM people JOIN lk AS qit USING (age) WHERE qit.sex = people.sex GROUP BY 1 ORDER BY 1
    FROM people p JOIN lk ON p.age = lk.age JOIN areas ON zip = "zip code" SELECT COUNT(*) WHERE p.sex = lk.sex
    SELECT age AS a, COUNT(*) FROM people WHERE a > 1 GROUP BY A ORDER BY "a"
    SELECT sex AS age, COUNT(*) FROM people WHERE age > 1 GROUP BY sex ORDER BY age
    SELECT sex AS age, age AS sex, COUNT(*) FROM people GROUP BY age, sex ORDER BY age, sex
    SELECT COUNT(*) AS age FROM people GROUP BY sex HAVING age > 15 ORDER BY age
    SELECT COUNT(*) AS age FROM people JOIN lk USING (age) GROUP BY people.sex HAVING age > 15 ORDER BY age
    SELECT sex, SUM(people.AGE) AS age FROM people GROUP BY 1 HAVING age > 3 ORDER BY SUM("age") DESC, 1
    SELECT COUNT(*) AS age FROM people GROUP BY age HAVING age > 2 ORDER BY 1
    SELECT age, COUNT(*) AS n FROM people GROUP BY AGE HAVING n > 1 AND NOT "age" BETWEEN 2 AND 3 ORDER BY age
    SELECT sex AS s, age, COUNT(*) AS sex FROM people GROUP BY people.sex, age HAVING people.sex = 1 ORDER BY age
    SELECT lk.sex AS s, COUNT(*) FROM people JOIN lk USING (age) GROUP BY lk.sex HAVING lk.sex > 0 ORDER BY lk.sex
    SELECT COUNT(*) AS age FROM people JOIN lk USING (age) GROUP BY people.age HAVING age > 2 ORDER BY 1
    SELECT age AS "Ä", COUNT(*) FROM people WHERE Ä > 1 GROUP BY age ORDER BY "Ä"
    SELECT age AS "ä", COUNT(*) FROM people WHERE Ä > 1 AND ä > 2 GROUP BY "ä" ORDER BY "ä"
"""
REFUSED = {
    "SELECT age AS a, COUNT(*) AS Age FROM people GROUP BY a HAVING AGE > 2": "HAVING AGE",
    "SELECT COUNT(*) AS age FROM people JOIN lk USING (age) GROUP BY 1 HAVING age > 2": "1",
    "SELECT COUNT(*) AS n FROM people WHERE n > 2": "'n'",
    "SELECT age, COUNT(*) FROM people GROUP BY age HAVING count > 2": "'count'",
    "SELECT age, COUNT(*) FROM people GROUP BY age ORDER BY count": "'count'",
    "SELECT age AS a, a AS b, COUNT(*) FROM people GROUP BY b, age": "'a'",
    "SELECT sex AS people, COUNT(*) FROM people WHERE people = 1 GROUP BY sex": "'people'",
    "SELECT sex AS ä, COUNT(*) FROM people GROUP BY Ä": "'sex'",
    "SELECT COUNT(*) FROM people JOIN lk ON people.age = lk.age WHERE age > 2": "'age' is in several tables",
    "SELECT people.age AS age, COUNT(*) FROM people JOIN lk ON people.age = lk.age GROUP BY age": "several tables",
    "SELECT COUNT(*) AS sex FROM people JOIN lk USING (age) GROUP BY lk.sex HAVING sex > 1": "several tables",
    "SELECT COUNT(*) FROM people JOIN lk ON age = lk.age": "several tables",
    "SELECT COUNT(*) FROM people JOIN lk USING (age) JOIN lk AS l USING (sex)": "'sex' is in several tables",
    "SELECT COUNT(*) FROM people JOIN lk USING (zip)": "'zip' is not in the release",
    'SELECT COUNT(*) FROM people JOIN lk USING ("zip code")': "'zip code' is not in lk; it has Age",
    "SELECT COUNT(*) FROM people JOIN lk USING (age) WHERE lk.zip = 1": "'zip' is not in lk; it has Age",
    "SELECT COUNT(*) FROM people JOIN lk ON areas.zip = people.age JOIN areas ON zip = lk.age": "'areas.zip'",
    "SELECT COUNT(*) FROM people AS p JOIN lk USING (age) WHERE people.age = 1": "'people.age' is not of p",
    "SELECT age AS a, COUNT(*) FROM people JOIN lk ON a = lk.age GROUP BY people.age": "'a'",
    "SELECT COUNT(*) FROM people JOIN lk USING (region)": "'region' is not in the release",
    "SELECT COUNT(*) FROM people JOIN lk USING (age) JOIN areas USING (region)": "with a quasi-identifier",
    "SELECT COUNT(*) FROM people JOIN lk ON people.job = lk.age": "with a quasi-identifier",
    "SELECT COUNT(*) FROM people JOIN lk ON people.age = people.sex": "with a quasi-identifier",
    "SELECT COUNT(*) FROM people JOIN lk ON lk.age = people.age + 1": "use equality of columns",
    "SELECT COUNT(*) FROM people JOIN lk AS people USING (age)": "two tables are called 'people'",
    "SELECT COUNT(*) FROM people JOIN lk AS l (sex, age) USING (age)": "l(sex, age) is not supported",
    "SELECT COUNT(*) FROM people JOIN lk ON lk.age = people.age JOIN areas": "ON or USING",
    "SELECT COUNT(*) FROM people WHERE other.people.age = 1": "'other.people.age'",
}


def test_names_that_have_one_meaning(world: EngineSession) -> None:
    """Qualified, of USING, before and after FROM, aliases: the answers of DuckDB."""
    for sql in filter(None, map(str.strip, ANSWERED.splitlines())):
        assert compared(world, sql) == "both", sql


def test_names_that_have_none_or_several_are_refused_by_name() -> None:
    """In one line that says which."""
    for sql, named in REFUSED.items():
        with pytest.raises(UsageError) as caught:
            parse_query(sql, ROLES, "people", LOOKUPS)
        assert named in str(caught.value), (sql, str(caught.value))
        assert len(str(caught.value).splitlines()) == 1


def test_names_of_lookups_cannot_hide_others() -> None:
    """Inside, a lookup's column stands as alias.name, which the release or another lookup may have, too."""
    roles = Roles((Field("age", "INTEGER"), Field("LK.level", "INTEGER")), ())
    using = "SELECT COUNT(*) FROM people JOIN lk{} USING (age)"
    with pytest.raises(UsageError, match=r"'lk\.Level' could be two columns"):
        parse_query(using.format(""), roles, "people", Listed(lk=("age", "Level")))
    assert (
        parse_query(using.format(" AS l"), roles, "people", Listed(lk=("age", "Level"))).scope.lookups[0].alias == "l"
    )


@pytest.mark.parametrize("sql", [None, 3, b"SELECT 1"])
def test_what_is_no_text_is_refused(sql: object) -> None:
    """By what it is."""
    with pytest.raises(UsageError, match="must be text"):
        parse_query(sql, ROLES, "people")  # type: ignore[arg-type]


@pytest.mark.slow
def test_deep_expressions_are_refused_and_long_ones_read(world: EngineSession) -> None:
    """What is read can be written as SQL, though the stack is used by callers, too."""
    count = "SELECT COUNT(*) FROM people WHERE "
    for deep in (f"age = {'- ' * 400}3", f"age = 3{'::INT' * 400}", f"age{' BETWEEN 1 AND 2' * 400}"):
        with pytest.raises(UsageError, match="nested too deeply"):
            parse_query(count + deep, ROLES, "people")
    for long in (f"age = {'- ' * 50}3", f"age = 0{' + 1' * 500}", " OR ".join(["age = 3"] * 900), "age = 3::INT::INT"):
        assert compared(world, count + long) == "both"


# Any query ------------------------------------------------------------------------------------------------------------

COLUMNS = ["age", "AGE", '"Age"', "sex", "SeX", '"zip code"', "job", "Ä"]
OTHERS = ["region", "zip", "ä", "nothing", "people", "rowid"]
ALIASES = ["a", "A", '"B"', "b", "age", "sex", "region", "job", "people", "lk", "n", '"Ä"', '"ä"', "count", "_col_1"]
FROM = ["people", "People", '"PEOPLE"', "people AS p", "people P"]
JOINS = [
    "JOIN lk USING (age)", "JOIN lk USING (AGE, sex)", "JOIN lk USING (sex)",
    "INNER JOIN lk AS l ON {0}.age = l.age", "JOIN lk ON lk.age = {0}.Age", "JOIN lk ON lk.age = age",
    'JOIN lk AS L ON "zip code" = l."AGE" AND {0}.sex = l.sex',
    'JOIN areas ON zip = "Zip Code"', "JOIN areas ON zip = {0}.sex", "JOIN areas ON areas.zip = sex",
    "JOIN areas USING (region)", "JOIN lk USING (region)", "JOIN areas ON region = zip", "JOIN lk people USING (age)",
    "JOIN areas AS a ON a.zip = age", "JOIN lk AS l (sex, age) USING (age)", "JOIN lk AS qit USING (age)",
]  # fmt: skip


class Writer:
    """Draws queries in which names are written in every way, often with several meanings."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.tables: list[str] = []

    def name(self, names: list[str]) -> str:
        """One of the names, or another, sometimes of a table."""
        found = self.dice.choice(names if self.dice.random() < 0.95 else OTHERS)
        return f"{self.dice.choice(self.tables)}.{found}" if self.dice.random() < 0.2 else found

    def source(self) -> str:
        """FROM with its joins."""
        first = self.dice.choice(FROM)
        joins = self.dice.sample(JOINS, self.dice.choice([0, 0, 1, 1, 2]))
        self.tables = [first.split()[-1]] * 6 + [join.split()[join.split().index("JOIN") + 1] for join in joins]
        return " ".join([f"FROM {first}", *(join.format(self.tables[0]) for join in joins)])

    def query(self) -> str:
        """A count query, ordered by all that it shows."""
        dice, source = self.dice, self.source()
        shown = [(self.name(COLUMNS), dice.choice(["", "", *ALIASES])) for _ in range(dice.choice([0, 1, 1, 2]))]
        measure = dice.choice(["COUNT(*)", "count(*)", f"SUM({self.tables[0]}.AGE)"]), dice.choice(["", *ALIASES])
        items = [*shown, measure]
        dice.shuffle(items)
        select = "SELECT " + ", ".join(
            f"{name}{dice.choice([' ', ' AS ']) * bool(alias)}{alias}" for name, alias in items
        )
        named = [alias for _, alias in items if alias] * 3 + COLUMNS
        parts = [source, select] if dice.random() < 0.2 else [select, source]
        if dice.random() < 0.5:
            parts.append(f"WHERE {self.name(named)} > {dice.randrange(3)} OR {self.name(named)} = 1")
        keys = [dice.choice([name, alias or name, str(items.index((name, alias)) + 1)]) for name, alias in shown]
        keys += [self.name(named)] if dice.random() < 0.25 else []
        parts += [f"GROUP BY {', '.join(keys)}"] if keys else []
        if dice.random() < 0.4:
            parts.append(f"HAVING {dice.choice(['COUNT(*)', *([measure[1] or 'COUNT(*)'] * 4), self.name(named)])} > 2")
        order = [dice.choice([measure[0], *keys, self.name(named)]) for _ in range(dice.randrange(2))]
        order += [str(i + 1) for i in range(len(items))]
        return " ".join([*parts, "ORDER BY " + ", ".join(f"{key} {dice.choice(['', 'DESC'])}" for key in order)])


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "queries"), [(1, 300), pytest.param(2, 1_500, marks=pytest.mark.soak(part="cases"))])
def test_names_mean_what_they_mean_to_duckdb(world: EngineSession, seed: int, queries: int) -> None:
    """Both refuse or both answer the same, or it is refused here alone, which must be rare."""
    writer = Writer(random.Random(seed))  # noqa: S311
    found = Counter(compared(world, writer.query()) for _ in range(queries))
    print(found)
    assert found["both"] > 0.2 * queries


def test_a_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_query_text("SELECT COUNT(*) FROM t WHERE " + "(" * 1_000 + "1=1" + ")" * 1_000)
