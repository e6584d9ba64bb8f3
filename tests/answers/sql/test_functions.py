"""privsql.answers.sql.grammar: what is let through means the same once it has been read and written again."""

from __future__ import annotations

import re

import duckdb
import pytest
import sqlglot

from privsql.answers.sql import grammar
from privsql.errors import UsageError

TABLE = """
CREATE TABLE t AS SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE (i * 37) % 101 - 50 END AS a,
  (i % 13) * 1.25::DOUBLE AS f,
  CASE WHEN i % 5 = 0 THEN NULL ELSE ['Ab c', 'xAé', '  q-r ', 'a%b', ''][i % 5 + 1] END AS s,
  DATE '2019-12-25' + i::INT * 11 AS d, TIMESTAMP '2019-12-25 10:11:12' + to_hours(i::INT * 7) AS e,
  (i * 1.25)::DECIMAL(8, 2) AS n FROM range(60) t(i)
"""
PURE = """
date_trunc('month', CAST(d AS DATE))
a // 10 ; a % 10 ; a ^ 2 ; a ** 2 ; pow(a, 2) ; -a ^ 2 ; a ^ 2 * -1 ; a - (a - 1) ; (a + 1) % 3 ; mod(a + 1, 3)
a // 3 * 2 ; a < 3 ; a <= 3 ; a >= 3 ; a IS DISTINCT FROM 3 ; a / 3 ; a * 100 / 7 ; n / 3 ; n * n ; abs(a) ; ceil(f)
ceiling(f) ; floor(f) ; round(f) ; round(f, 1) ; round(n, 1) ; trunc(f) ; sign(a) ; sqrt(f) ; ln(f + 1) ; exp(f)
greatest(a, 0, NULL) ; least(f, a) ; isnan(f) ; isfinite(f) ; even(a) ; 1e2 * a ; a % 3 = 0 OR a % 5 = 0 AND a > 0
a <> 3 ; a != 3 ; a == 3 ; a IS NOT DISTINCT FROM NULL ; a IS NULL = true ; NOT a = 3 ; a IN (1, NULL)
a NOT IN (1, NULL) ; a BETWEEN -10 AND 10 AND NOT s IS NULL ; a NOTNULL ; a > 0 IS NOT FALSE ; coalesce(a, 0)
ifnull(a, 0) ; nullif(s, '') ; CASE WHEN a > 0 THEN 'p' WHEN a IS NULL THEN 'n' END ; if(a > 1, 'x', 'y')
CASE s WHEN 'Ab c' THEN 1 ELSE 2 END ; a::VARCHAR || 'x' ; CAST(f AS INTEGER) ; n::INT ; TRY_CAST(s AS INT)
a::BOOLEAN ; upper(s) ; lower(s) ; length(s) ; len(s) ; trim(s) ; trim(s, 'a') ; trim(LEADING 'a' FROM s)
ltrim(s, 'a') ; rtrim(s, ' -') ; substring(s, 1, 2) ; substr(s, -2, 1) ; substring(s FROM 2 FOR 2) ; left(s, 2)
right(s, 2) ; left(s, -1) ; s || a ; starts_with(s, 'a') ; ends_with(s, 'b') ; prefix(s, 'a') ; suffix(s, 'b')
contains(s, 'b') ; position('b' IN s) ; strpos(s, 'b') ; instr(s, 'b') ; concat(s, a, NULL) ; split_part(s, '-', 2)
split_part(s, '-', -1) ; strip_accents(s) ; regexp_matches(s, 'b') ; regexp_matches(s, '^a', 'i') ; s ~ 'b' ; s !~ 'b'
regexp_full_match(s, 'a.b') ; s GLOB 'a*' ; regexp_extract(s, '(A)(b)', 2) ; s SIMILAR TO '.*b.*'
s LIKE 'a!%%' ESCAPE '!' ; s NOT LIKE 'a%' ; s ILIKE 'A%' ; year(d) ; quarter(d) ; month(e) ; week(d) ; weekofyear(d)
day(d) ; dayofweek(d) ; isodow(d) ; weekday(d) ; dayofyear(d) ; hour(e) ; minute(e) ; second(e) ; decade(d)
century(d) ; monthname(d) ; dayname(d) ; last_day(d) ; date_trunc('month', d) ; date_trunc('hour', e)
date_part('week', e) ; extract(dow FROM e) ; extract(epoch FROM e) ; strftime(e, '%H %M') ; strftime(d, '%Y-%m')
date_diff('day', d, DATE '2020-01-01') ; datediff('hour', e, TIMESTAMP '2020-01-01') ; e::DATE ; d + INTERVAL 3 MONTH
d - INTERVAL 1 DAY ; e + INTERVAL '1 day' ; d - DATE '2020-01-01' ; date_add(d, INTERVAL 1 MONTH) ; d > '2020-01-01'
e::TIME ; d::TIMESTAMP ; replace(s, 'a', 'bb') ; lpad(s, 9, 'x') ; rpad(s, 9, 'xy')
"""
OTHERS = """
random() ; now() ; CURRENT_DATE ; current_timestamp ; today() ; getenv('HOME') ; current_setting('threads') ; uuid()
version() ; nextval('s') ; txid_current() ; repeat(s, 9) ; lpad(s, 1000000, 'x') ; rpad(s, a, 'x')
replace(s, 'a', s) ; replace(replace(s, 'a', 'aa'), 'a', 'aa') ; lpad(replace(s, 'a', 'aa'), 9, 'x')
regexp_replace(s, 'a', 'b') ; format('{}', s) ; printf('%s', s) ; md5(s) ; hash(s) ; error('x') ; list_sum([a]) ; [a]
{'a': a} ; range(9) ; unnest([a]) ; s[1:2] ; a::VARCHAR[] ; s COLLATE nocase ; (SELECT 1) ; a IN (SELECT 1)
EXISTS (SELECT 1) ; SUM(a) ; a OVER () ; * ; COLUMNS('a') ; age(d) ; log10(a) ; a & 3 ; a << 40 ; current_user
list_transform([1], x -> x) ; (a, f) ; a > ALL (SELECT 1) ; getvariable('x') ; string_split(s, '-') ; array_agg(a)
to_json(s) ; ? ; $1 ; bar(a, 0, 9, 1000000) ; translate(s, 'a', 'b') ; factorial(a)
"""


def listed(text: str) -> list[str]:
    """Expressions, each between semicolons or ends of lines."""
    return [part.strip() for part in re.split(r" ; |\n", text) if part.strip()]


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    """An engine with numbers, texts and points in time."""
    made = duckdb.connect()
    made.execute(TABLE)
    return made


def test_pure_functions_are_written_as_they_were_read(engine: duckdb.DuckDBPyConnection) -> None:
    """The engine makes the same of both texts, for every record."""
    for written in listed(PURE):
        (tree,) = sqlglot.parse_one(f"SELECT {written} FROM t", dialect="duckdb").expressions
        grammar.check_kinds("SELECT", tree)
        pairs = ", ".join(f"({text})::VARCHAR, typeof({text})" for text in (written, grammar.as_written(tree)))
        for before, kind, after, other in engine.execute(f"SELECT {pairs} FROM t ORDER BY i").fetchall():
            assert (before, kind) == (after, other), written


@pytest.mark.parametrize("written", listed(OTHERS))
def test_what_is_not_pure_or_not_bounded_is_refused_by_name(written: str) -> None:
    """Time, randomness, settings, files, lists, subqueries, and texts that grow."""
    try:
        (tree,) = sqlglot.parse_one(f"SELECT {written} FROM t", dialect="duckdb").expressions
    except sqlglot.errors.SqlglotError:
        return
    with pytest.raises(UsageError, match=r"not supported|can be cast|constants of at most"):
        grammar.check_kinds("WHERE", tree)


def test_every_function_of_the_list_is_tried() -> None:
    """No node is let through that no test writes."""
    tried = {
        type(node)
        for written in listed(PURE)
        for node in sqlglot.parse_one(f"SELECT {written} FROM t", dialect="duckdb").walk()
    }
    extra = "SELECT x FROM t WHERE x = 1.5::DECIMAL(3, 1)"
    tried |= {type(node) for node in sqlglot.parse_one(extra, dialect="duckdb").walk()}
    assert {kind.__name__ for kind in grammar.SCALAR - tried} == set()
