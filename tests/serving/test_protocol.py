"""Releases over the Postgres protocol: answers, refusals, limits, tokens, and what somebody hostile may send."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import psutil
import pytest

import privsql
from privsql.errors import PrivsqlError, UsageError
from privsql.serving import postgres, wire
from support import wires
from support.commands import refused, run
from support.loops import slow_but

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"
QUESTIONS = [
    SEX,
    "SELECT COUNT(*) FROM people WHERE disease = 'flu'",
    "SELECT region, AVG(age) AS a, low(COUNT(*)) AS l, std_error(COUNT(*)) AS s FROM people GROUP BY region ORDER BY 1",
    "SELECT high(COUNT(*)) AS h FROM people WHERE disease = 'flu'",
    'SELECT DISTINCT "sex" FROM "public"."people" ORDER BY 1',
    "SELECT * FROM people ORDER BY age LIMIT 3",
    "SELECT MAX(age), MIN(sex), SUM(age) FROM people",
    "SELECT sex, COUNT(*) FROM people GROUP BY sex HAVING COUNT(*) > 10000",
]
REFUSED = {
    "SELECT FROM WHERE": "42601",
    "SELECT nosuch FROM people": "42703",
    "SELECT COUNT(*) FROM nobody": "42P01",
    "SELECT * FROM people": "0A000",
    "SELECT disease, age FROM people": "0A000",
    "SELECT STDDEV(disease) FROM people": "0A000",
}
HOSTILE = """
    SELECT pg_read_file('/etc/passwd')
    SELECT * FROM pg_read_file('/etc/passwd')
    SELECT pg_ls_dir('.')
    COPY people FROM STDIN
    COPY people TO '/x'
    COPY (SELECT 1) TO PROGRAM 'id'
    COPY pg_class FROM '/etc/passwd'
    ATTACH 'people.csv' AS x
    SELECT * FROM read_csv('{source}')
    SELECT * FROM '{source}'
    INSTALL httpfs
    SELECT * FROM read_text('{source}')
    SELECT * FROM glob('*')
    SELECT * FROM pg_class, read_csv('{source}')
    SELECT (SELECT content FROM read_text('{source}')) FROM pg_class
    SELECT getenv('HOME')
    LOAD x
    SELECT * FROM duckdb_settings()
    SELECT * FROM duckdb_databases()
    SELECT * FROM catalog.main.pg_class
    SELECT * FROM sqlite_master
    SELECT * FROM people, read_csv('{source}')
    CREATE TABLE t (i int)
    DROP TABLE people
    SELECT * FROM release.main.qit
    SELECT COUNT(*) FROM qit
    SELECT lo_import('/etc/passwd')
    CALL pragma_version()
    SELECT pg_sleep(100)
    SELECT query_to_xml('SELECT 1', true, true, '')
    SELECT * FROM dblink('x')
    PRAGMA database_list
    SELECT current_setting('temp_directory') FROM people
    EXPLAIN SELECT 1
    PREPARE p AS SELECT 1
    DO $$ BEGIN END $$
    SELECT relname FROM pg_class UNION SELECT content FROM read_text('{source}')
    SELECT * FROM query('SELECT 1')
    WITH x AS (SELECT * FROM read_blob('{source}')) SELECT * FROM x
    SELECT * FROM information_schema.nosuch
    SELECT nextval('x')
    VALUES (1), ((SELECT content FROM read_text('{source}')))
    TABLE pg_authid
    VACUUM
""".strip().splitlines()


@pytest.fixture(scope="module")
def release(shelf: Path) -> Path:
    return shelf / "bucketize.duckdb"


@pytest.fixture(scope="module")
def port(release: Path) -> Iterator[int]:
    with wires.served(release) as there:
        yield there


@pytest.fixture
def client(port: int) -> Iterator[wires.Client]:
    one = wires.Client.connected(port)
    yield one
    one.close()


def is_close(text: str | None, value: object) -> bool:
    """Whether a text is a value of an answer."""
    if text is None or value is None:
        return text is value
    return (
        math.isclose(float(text), float(value), rel_tol=1e-12)
        if isinstance(value, int | float | Decimal)
        else text == str(value)
    )


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", QUESTIONS)
def test_every_answer_is_that_of_query_in_the_columns_asked_for(client: wires.Client, release: Path, sql: str) -> None:
    answer = privsql.query(release, sql)
    for reply in (client.query(sql), client.prepared(sql, describe=b"S"), client.prepared(sql, describe=b"S")):
        assert not reply.errors
        assert len(reply.rows) == len(answer.plain_rows)
        for found, expected in zip(reply.rows, answer.plain_rows, strict=True):
            assert all(map(is_close, found, expected)), (found, expected)
        assert len(reply.columns) == len(answer.plain_columns)
        assert reply.notices == answer.notes
    assert client.query("SET privsql.intervals = on").kinds == "C Z"
    wide = client.query(sql)
    assert wide.columns == list(answer.columns)
    for found, expected in zip(wide.rows, answer.rows, strict=True):
        assert all(map(is_close, found, expected)), (found, expected)


def test_confidence_is_a_setting(client: wires.Client, release: Path) -> None:
    sql = "SELECT high(COUNT(*)) AS h FROM people WHERE disease = 'flu'"
    for confidence in (0.8, 0.99):
        client.query(f"SET privsql.confidence = {confidence}")
        (row,) = client.query(sql).rows
        assert is_close(row[0], privsql.query(release, sql, confidence=confidence).rows[0][0])
    assert client.query("SET privsql.confidence = 2").errors[0]["C"] == "22023"
    assert client.query("SET privsql.no = 2").errors[0]["C"] == "22023"
    assert client.query("SHOW privsql.confidence").rows == [["0.99"]]
    assert client.query("RESET ALL; SHOW privsql.confidence").rows == [["0.95"]]


def test_columns_are_called_as_by_postgres(client: wires.Client) -> None:
    assert client.query("SELECT sex, COUNT(*), AVG(age) AS a FROM people GROUP BY sex").columns == ["sex", "count", "a"]
    assert client.query("SELECT version(), current_database(), 1").columns == [
        "version",
        "current_database",
        "?column?",
    ]


def test_parameters_as_text_and_in_binary(client: wires.Client, release: Path) -> None:
    sql = "SELECT COUNT(*) AS n FROM people WHERE age >= $1 AND sex = $2 AND '$1' <> $2"
    expected = privsql.query(release, "SELECT COUNT(*) AS n FROM people WHERE age >= 30 AND sex = 'f'").plain_rows[0][0]
    wired = {
        23: struct.pack("!i", 30),
        20: struct.pack("!q", 30),
        21: struct.pack("!h", 30),
        701: struct.pack("!d", 30),
    }
    replies = [
        client.prepared(sql, b"30", b"f"),
        *(client.prepared(sql, one, b"f", oids=(oid, 25), form=1) for oid, one in wired.items()),
    ]
    assert all(is_close(one.rows[0][0], expected) for one in replies)
    described = client.prepared(sql, b"30", b"f", describe=b"S")
    assert struct.unpack("!hII", described.bodies("t")[0]) == (2, 20, 25)  # as the columns beside them
    assert is_close(client.prepared(sql, b"30", b"x' OR '1' = '1").rows[0][0], 0)
    assert client.prepared(sql, b"30; SELECT 1", b"f", oids=(23, 25)).errors[0]["C"] == "22P02"
    assert client.prepared(sql, b"30").errors[0]["C"] == "08P01"
    assert client.prepared(sql, b"\0", b"f", oids=(23, 25), form=1).errors[0]["C"] == "22P03"
    assert client.query(SEX).kinds == "T D2 C Z"


def test_binary_results_and_copies_hold_the_same(client: wires.Client, release: Path) -> None:
    expected = privsql.query(release, SEX).plain_rows
    rows = [wires.cells(body) for body in client.prepared(SEX, results=1).bodies("D")]
    assert [(sex.decode(), struct.unpack("!d", n)[0]) for sex, n in rows] == expected  # type: ignore[union-attr, arg-type]
    copied = client.query(f"COPY ({SEX}) TO STDOUT (FORMAT binary)")
    data = b"".join(copied.bodies("d"))
    assert data.startswith(wire.COPY_HEADER)
    assert data.endswith(b"\xff\xff")
    assert [wires.cells(body.removeprefix(wire.COPY_HEADER)) for body in copied.bodies("d")[:-1]] == rows
    assert b"".join(client.query(f"COPY ({SEX}) TO STDOUT (FORMAT csv, HEADER)").bodies("d")) == b"sex,n\n" + b"".join(
        f"{sex},{n:g}\n".encode() for sex, n in expected
    )
    text = b"".join(f"{sex}\t{n:g}\n".encode() for sex, n in expected)
    assert b"".join(client.query(f"COPY ({SEX}) TO STDOUT").bodies("d")) == text
    preview = "COPY (SELECT sex, disease FROM people LIMIT 1) TO STDOUT"
    assert client.query(preview).bodies("d")[0].endswith(b"\t\\N\n")
    assert client.query(preview + " (FORMAT csv, NULL '-', DELIMITER ';')").bodies("d")[0].endswith(b";-\n")
    assert client.query(f"COPY ({SEX}) TO STDOUT (FORMAT parquet)").errors[0]["C"] == "22023"


def test_portals_and_cursors_hand_out_rows_in_parts(client: wires.Client, release: Path) -> None:
    assert client.prepared(SEX, most=1).kinds == "1 2 D s Z"
    both = [
        ["f", f"{privsql.query(release, SEX).plain_rows[0][1]:g}"],
        ["m", f"{privsql.query(release, SEX).plain_rows[1][1]:g}"],
    ]
    client.query(f'BEGIN; DECLARE "c 1" NO SCROLL CURSOR WITHOUT HOLD FOR {SEX}')
    assert client.query('FETCH FORWARD 1 FROM "c 1"').rows == both[:1]
    assert client.query('FETCH ALL IN "c 1"').rows == both[1:]
    assert client.query('FETCH NEXT FROM "c 1"').rows == []
    again = f"DECLARE again CURSOR FOR {SEX}"
    client.query(again)
    fetched = client.prepared("FETCH 1 FROM again", describe=b"S")
    assert (fetched.columns, fetched.rows) == (["sex", "n"], both[:1])
    assert client.query('CLOSE "c 1"; COMMIT').kinds == "C2 Z"
    assert client.query('FETCH 1 FROM "c 1"').errors[0]["C"] == "34000"


def test_transactions_are_as_clients_expect(client: wires.Client) -> None:
    assert client.query("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").bodies("Z") == [b"T"]
    assert client.query("SELECT nosuch FROM people").bodies("Z") == [b"E"]
    assert client.query(SEX).errors[0]["C"] == "25P02"
    assert client.query("ROLLBACK TO SAVEPOINT x").bodies("Z") == [b"T"]
    assert client.query(SEX).kinds == "T D2 C Z"
    assert client.query("COMMIT").bodies("Z") == [b"I"]
    assert client.query("; ;").kinds == "I Z"
    assert client.query("SELECT 1; SELECT nosuch FROM people; SELECT 2").kinds == "T D C E Z"
    assert client.query("INSERT INTO people VALUES (1)").errors[0]["C"] == "25006"


@pytest.mark.slow
def test_several_releases_are_several_tables(shelf: Path) -> None:
    with wires.served(shelf / "bucketize.duckdb", shelf / "setvalued.duckdb") as port:
        client = wires.Client.connected(port)
        listed = client.query(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'public'"
        )
        assert sorted(row[0] for row in listed.rows if row[0]) == ["people", "visits"]
        count = "SELECT COUNT(*) AS n FROM visits"
        assert is_close(
            client.query(count).rows[0][0], privsql.query(shelf / "setvalued.duckdb", count).plain_rows[0][0]
        )
        assert client.query("SELECT COUNT(*) FROM people, visits").errors
        client.close()
    refused(run("serve", shelf / "bucketize.duckdb", shelf / "permute.duckdb", "--postgres", 0), 2, "own port")


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", slow_but(REFUSED, *list(REFUSED)[:4]))
def test_refusals_are_those_of_query_with_hint_and_state(client: wires.Client, release: Path, sql: str) -> None:
    for reply in (client.query(sql), client.prepared(sql), client.prepared(sql, describe=b"S")):
        (error,) = reply.errors
        assert error["C"] == REFUSED[sql]
        assert error["S"] == "ERROR"
        if "nobody" not in sql:
            with pytest.raises(UsageError) as raised:
                privsql.query(release, sql)
            assert "; ".join(error[one] for one in "MH" if one in error) == str(raised.value)
    assert client.query(SEX).kinds == "T D2 C Z"


@pytest.mark.parametrize("sql", HOSTILE)
def test_nothing_but_releases_and_catalogs_can_be_reached(client: wires.Client, shelf: Path, sql: str) -> None:
    for reply in (client.query(sql.strip().replace("{source}", str(shelf / "people.csv"))), client.prepared(sql)):
        assert reply.errors
        assert "XX000" not in {one["C"] for one in reply.errors}
        assert not reply.bodies("D")
    assert client.query(SEX).kinds == "T D2 C Z"


@pytest.mark.slow
def test_catalogs_hold_no_records_and_no_paths(client: wires.Client, shelf: Path) -> None:
    names = client.query(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    ).rows
    assert len(names) > 90
    for schema, name in names:
        if schema == "public":
            continue
        reply = client.query(f"SELECT * FROM {schema}.{name}")
        assert not reply.errors, (schema, name, reply.errors)
        assert str(shelf) not in str(reply.rows)
        assert "flu" not in {cell for row in reply.rows for cell in row}


def test_random_bytes_end_no_session_but_their_own(port: int) -> None:
    """After what the protocol does not know a connection ends by an error; others go on, and no thread is left."""
    rng = random.Random(5)  # noqa: S311 (of a test)
    steady = wires.Client.connected(port)
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw, suppress(ConnectionError):
            raw.sendall(rng.randbytes(rng.randrange(1, 60)) + b"\0" * 8)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    for _ in range(60):
        client = wires.Client.connected(port)
        with suppress(ConnectionError):
            for _ in range(5):
                client.send(rng.choice("QPBDECHS"), rng.randbytes(rng.randrange(30)))
            client.send("S")
            client.until_ready()
        client.close()
    assert steady.query(SEX).kinds == "T D2 C Z"
    steady.close()


@pytest.mark.slow
def test_damaged_messages_are_errors_and_the_session_goes_on(port: int) -> None:
    """Every message of a question, cut short at each byte, or with a byte changed."""
    rng = random.Random(7)  # noqa: S311 (of a test)
    client = wires.Client.connected(port)
    sql = b"SELECT COUNT(*) FROM people WHERE age >= $1"
    whole = {"P": b"s\0" + sql + b"\0\0\1\0\0\0\x17", "B": b"\0s\0\0\1\0\1\0\1\0\0\0\4\0\0\0\x1e\0\1\0\1",
             "D": b"Ss\0", "E": b"\0\0\0\0\0", "C": b"Ss\0", "Q": SEX.encode() + b"\0"}  # fmt: skip
    damaged = [(kind, body[:end]) for kind, body in whole.items() for end in range(0, len(body), 3)]
    for kind, body in whole.items():
        for _ in range(8):
            at = rng.randrange(len(body))
            damaged.append((kind, body[:at] + rng.randbytes(1) + body[at + 1 :]))
    for kind, body in damaged:
        client.send("P", whole["P"])
        client.send(kind, body)
        client.send("S")
        found = client.until_ready()
        if kind == "Q":
            found += client.until_ready()
        assert "XX000" not in {wires.fields(part)["C"] for one, part in found if one == "E"}, (kind, body)
    assert client.query(SEX).kinds == "T D2 C Z"
    client.send("Q", b"x" * postgres.LONGEST)
    assert client.read()[0] == "E"
    with pytest.raises(ConnectionResetError):
        client.until_ready()
    client.close()


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_questions_are_limited_and_cancelled(shelf: Path) -> None:
    with wires.served(shelf / "bucketize.duckdb", rows=5, seconds=2.0) as port:
        client = wires.Client.connected(port)
        assert client.query("SELECT age, COUNT(*) FROM people GROUP BY age").errors[0]["C"] == "54000"
        assert client.query("SELECT * FROM pg_class").errors[0]["C"] == "54000"
        slow = "SELECT COUNT(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000) b"
        assert client.query(slow).errors[0]["C"] == "57014"
        client.close()
    with wires.served(shelf / "bucketize.duckdb", seconds=60.0) as port:
        client = wires.Client.connected(port)
        client.send("Q", wires.packed(slow))
        wrong = struct.pack("!ii", 80_877_102, struct.unpack("!i", client.key[:4])[0]) + b"none"
        for body in (wrong, struct.pack("!i", 80_877_102) + client.key):
            with socket.create_connection(("127.0.0.1", port)) as other:
                other.sendall(struct.pack("!i", 16) + body)
                assert other.recv(10) == b""
        reply = wires.Reply(client.until_ready())
        assert reply.errors[0] | {"M": "", "S": "", "V": ""} == {"C": "57014", "M": "", "S": "", "V": ""}
        assert "user request" in reply.errors[0]["M"]
        assert client.query(SEX).kinds == "T D2 C Z"
        client.close()


@pytest.mark.slow
def test_statements_and_connections_are_limited(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MOST_NAMED", 60)
    monkeypatch.setattr(postgres, "CONNECTIONS", 2)
    monkeypatch.setattr(postgres, "PATIENCE", 0.5)
    with wires.served(release) as port:
        clients = [wires.Client.connected(port) for _ in range(2)]
        with pytest.raises(ConnectionRefusedError, match="53300"):
            wires.Client.connected(port)
        for number in range(70):
            clients[0].send("P", f"s{number}".encode() + b"\0SELECT 1\0\0\0")
        clients[0].send("S")
        assert wires.Reply(clients[0].until_ready()).errors[0]["C"] == "53400"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            assert silent.recv(10) == b""  # nobody waits for it
        clients[1].query("BEGIN")
        opened = [clients[1].query(f"DECLARE c{number} CURSOR FOR SELECT 1") for number in range(40)]
        assert sum(not one.errors for one in opened) == postgres.MOST_OPEN
        for one in clients:
            one.close()


# Tokens and TLS -------------------------------------------------------------------------------------------------------


def test_the_token_is_the_password(release: Path) -> None:
    with wires.served(release, token="good") as port:  # noqa: S106 (no secret)
        client = wires.Client.connected(port, "good")
        assert client.query(SEX).kinds == "T D2 C Z"
        client.close()
        for wrong in ("", "bad", "good "):
            with pytest.raises(ConnectionRefusedError, match="28P01"):
                wires.Client.connected(port, wrong)
        with socket.create_connection(("127.0.0.1", port)) as raw:
            body = struct.pack("!i", 196_608) + b"user\0x\0\0"
            raw.sendall(struct.pack("!i", len(body) + 4) + body)
            raw.sendall(b"Q" + struct.pack("!i", 13) + b"SELECT 1\0")  # before it is let in
            assert b"SELECT" not in raw.recv(4096) + raw.recv(4096)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout key.pem -out cert.pem"
    try:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate")
    both = folder / "both.pem"
    both.write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    return both


@pytest.mark.slow
def test_other_machines_need_tls(release: Path, certificate: Path) -> None:
    refused(run("serve", release, "--postgres", 0, "--host", "0.0.0.0"), 2, "--certificate")  # noqa: S104
    refused(run("serve", release, "--postgres", 0, "--certificate", release), 2, "not a PEM file")
    refused(run("serve", release, "--port", 0, "--certificate", certificate), 2, "--certificate is for --postgres")
    refused(run("serve", release, "--postgres", 0, "--open"), 2, "--open and --allow-host are for the page")
    context = ssl.create_default_context(cafile=str(certificate))
    with wires.served(release, token="t", tls=postgres.load_certificate(certificate), required=True) as port:  # noqa: S106
        with pytest.raises(ConnectionRefusedError, match="28000"):
            wires.Client.connected(port, "t")
        raw = socket.create_connection(("127.0.0.1", port), timeout=60)
        raw.sendall(struct.pack("!ii", 8, wire.TLS_REQUEST))
        assert raw.recv(1) == b"S"
        client = wires.Client(context.wrap_socket(raw, server_hostname="localhost"))
        client.start("t")
        assert client.query(SEX).kinds == "T D2 C Z"
        client.close()
        with socket.create_connection(
            ("127.0.0.1", port), timeout=60
        ) as early:  # sent before TLS, by whoever is between
            early.sendall(struct.pack("!ii", 8, wire.TLS_REQUEST) + b"Q" + struct.pack("!i", 13) + b"SELECT 1\0")
            assert early.recv(1) == b"S"
            early.shutdown(socket.SHUT_WR)
            assert b"SELECT" not in early.recv(4096)


@pytest.mark.slow
def test_the_command_serves_clients(release: Path) -> None:
    command = [sys.executable, "-m", "privsql", "serve", str(release), "--postgres", "0", "--token", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        found = re.fullmatch(r"postgresql://privsql:(.+)@127\.0\.0\.1:(\d+)/privsql", address)
        assert found is not None
        client = wires.Client.connected(int(found[2]), found[1])
        assert client.query(SEX).kinds == "T D2 C Z"
        process.send_signal(2)
        assert process.wait(60) == 0
        client.close()


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name", "text", "binary"),
    [
        (True, "bool", "t", "01"), (-2, "int2", "-2", "fffe"), (7, "int4", "7", "00000007"),
        (1.5, "float8", "1.5", "3ff8000000000000"), (12.0, "float8", "12", "4028000000000000"),
        (math.inf, "float8", "Infinity", "7ff0000000000000"), (date(2000, 1, 2), "date", "2000-01-02", "00000001"),
        ("1999-12-31", "date", "1999-12-31", "ffffffff"),
        ("2000-01-01 00:00:01", "timestamp", "2000-01-01 00:00:01", "00000000000f4240"),
        (Decimal("-12345.678"), "numeric", "-12345.678", "000300014000000300010929" + "1a7c"),
        (Decimal(0), "numeric", "0", "0000000000000000"),
        (Decimal("0.0001"), "numeric", "0.0001", "0001ffff000000040001"),
        ("é", "text", "é", "c3a9"),
    ],
)  # fmt: skip
def test_values_have_the_forms_of_postgres(value: object, name: str, text: str, binary: str) -> None:
    """Known forms: those that a server of Postgres sends."""
    kind = wire.TYPES[name]
    assert wire.encode_value(value, kind, wire.TEXT) == text.encode()
    coded = wire.encode_value(value, kind, wire.BINARY)
    assert coded is not None
    assert coded.hex() == binary
    back = wire.read_parameter(coded, kind.oid, wire.BINARY)
    plain = wire.read_parameter(text.encode(), kind.oid, wire.TEXT)
    assert back.replace(".0)", ")").removesuffix(".0") == plain or math.isinf(float(text.replace("é", "inf")))


def test_lists_are_read_in_both_forms() -> None:
    assert wire.read_parameter(b'{a,"b,\\"c",NULL}', 1009, wire.TEXT) == "['a', 'b,\"c', NULL]"
    items = struct.pack("!iiiii", 1, 0, 23, 2, 1) + struct.pack("!iiii", 4, 5, 4, -6)
    assert wire.read_parameter(items, 1007, wire.BINARY) == "[5, (-6)]"
    assert wire.encode_value([5, -6], wire.TYPES["int4"], wire.BINARY, is_list=True) == items
    for damaged in (items[:-1], b"", struct.pack("!iii", 9, 0, 23)):
        with pytest.raises(PrivsqlError):
            wire.read_parameter(damaged, 1007, wire.BINARY)


# Many clients ---------------------------------------------------------------------------------------------------------

CLIENTS, ASKED = 64, 5_000


@pytest.mark.soak(part="clients")
def test_many_clients_are_answered_without_growth(release: Path) -> None:
    """64 clients, 5,000 questions; memory after the first thousand is that at the end, but for a tenth."""
    values = {
        age: privsql.query(release, f"SELECT COUNT(*) AS n FROM people WHERE age >= {age}").plain_rows[0][0]
        for age in range(20, 60)
    }
    numbers, sizes, turn = itertools.count(), [], threading.Lock()
    with wires.served(release) as port:

        def ask(_: int) -> int:
            client, done = wires.Client.connected(port), 0
            while (number := next(numbers)) < ASKED:
                age = 20 + number % 40
                sql = f"SELECT COUNT(*) AS n FROM people WHERE age >= {age} AND {number} = {number}"
                reply = client.query(sql) if number % 2 else client.prepared(sql, describe=b"S")
                assert not reply.errors, reply.errors
                assert is_close(reply.rows[0][0], values[age])
                done += 1
                if number % 500 == 0:
                    with turn:
                        sizes.append(psutil.Process().memory_info().rss)
            client.close()
            return done

        with ThreadPoolExecutor(CLIENTS) as pool:
            assert sum(pool.map(ask, range(CLIENTS))) == ASKED
    print(f"{CLIENTS} clients, {ASKED:,} questions; MB: {[size // 2**20 for size in sizes]}")
    assert sizes[-1] < 1.1 * sizes[2]
