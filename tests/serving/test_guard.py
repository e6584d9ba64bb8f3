"""Who gets in: the right name, no other page, the token where one is needed; and what every answer says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from privsql.serving.guard import COOKIE, LONGEST_ADDRESS, Guard
from support.loops import each
from support.serving import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.serving import Client

WORD = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def release(shelf: Path) -> Path:
    return shelf / "setvalued.duckdb"


@pytest.fixture(scope="module")
def client(release: Path) -> Iterator[Client]:
    with page(release) as made:
        yield made


@pytest.fixture
def closed(release: Path) -> Iterator[Client]:
    """A page that asks for a token."""
    with page(release, token=WORD) as made:
        yield made


@each("host", ["127.0.0.1", "127.0.0.1:8317", "localhost:9000", "LOCALHOST", "[::1]:8317", "localhost."], few=6)
def test_its_own_names_get_in(client: Client, host: str) -> None:
    assert client.get("/setvalued", headers={"host": host}).status_code == 200


@each(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "evil.example:8317", "10.0.0.1", "", "[::1",
     "localhost/x", "localhost:x", "localhost:8317 x", "localhost,evil.example", "127.1", "[::]"],
    few=13,
)  # fmt: skip
def test_other_names_do_not(client: Client, host: str) -> None:
    """A name that somebody turned towards this machine is none of its own."""
    answer = client.get("/setvalued", headers={"host": host})
    assert answer.status_code == 403
    assert answer.text.startswith("privsql: this page has another address")


@each(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://127.0.0.1:8317"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "http://localhost:8317"}, 403),
    ],
    few=9,
)
def test_no_other_page_asks(client: Client, headers: dict[str, str], status: int) -> None:
    assert client.get("/setvalued", headers=headers).status_code == status


@each("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"], few=8)
def test_only_reading_is_answered(client: Client, method: str) -> None:
    answer = client.request(method, "/setvalued")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_nothing_large_is_read(client: Client) -> None:
    assert client.request("GET", "/setvalued", content=b"x" * 100).status_code == 413
    assert client.request("GET", "/setvalued", headers={"transfer-encoding": "chunked"}).status_code == 413
    assert client.get("/setvalued?sql=" + "x" * LONGEST_ADDRESS).status_code == 414
    assert client.get("/" + "x" * LONGEST_ADDRESS).status_code == 414


@each("address", ["/setvalued", "/setvalued/answer.json", "/nosuch", "/", "/setvalued?c9=1", "/favicon.ico"], few=6)
def test_every_answer_is_locked_up(client: Client, address: str) -> None:
    headers = client.get(address).headers
    rules = headers["content-security-policy"]
    assert "default-src 'none'" in rules
    assert "frame-ancestors 'none'" in rules
    assert "script" not in rules
    assert "unsafe" not in rules
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "set-cookie" not in headers


def test_refusals_are_locked_up_as_well(closed: Client) -> None:
    for answer in (closed.get("/"), closed.get("/", headers={"host": "evil.example"}), closed.request("POST", "/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_shown(closed: Client) -> None:
    for address in ("/", "/setvalued", "/setvalued/answer.json?all=news", "/nosuch", "/?token=", "/?token=wrong"):
        answer = closed.get(address)
        assert answer.status_code == 401, address
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "set-cookie" not in answer.headers
        assert "news" not in answer.text


def test_the_token_leaves_the_address_for_a_cookie(closed: Client) -> None:
    answer = closed.get(f"/setvalued?all=news&token={WORD}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/setvalued?all=news")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={WORD};")
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word.lower() in cookie.lower()
    assert WORD not in answer.headers["location"]
    shown = closed.get("/setvalued?all=news")
    assert shown.status_code == 200
    assert WORD not in shown.text
    again = closed.get(f"/setvalued?token={WORD}")
    assert (again.status_code, again.headers["location"]) == (303, "/setvalued")


def test_a_program_sends_it_in_a_header(closed: Client) -> None:
    good, bad = {"authorization": f"Bearer {WORD}"}, {"authorization": "Bearer wrong"}
    assert closed.get("/setvalued/answer.json?all=news", headers=good).status_code == 200
    assert closed.get("/setvalued/answer.json?all=news", headers=bad).status_code == 401
    assert closed.get("/setvalued", headers={"authorization": f"Basic {WORD}"}).status_code == 401
    strange = {"cookie": f"{COOKIE}=wr\u00f6ng".encode("latin-1")}
    assert closed.get("/setvalued", headers=strange).status_code == 401


def test_no_redirection_leads_elsewhere(closed: Client) -> None:
    """A path of two slashes would be another machine's."""
    for path in ("//evil.example", "//evil.example/x", "///evil.example"):
        answer = closed.get(f"{path}?token={WORD}")
        assert answer.headers["location"].startswith("/evil.example")


def test_a_page_on_all_addresses_is_called_by_any_number() -> None:
    guard = Guard(None, frozenset({"box.lan"}), WORD, any_address=True)  # type: ignore[arg-type]
    for host, called in (("192.168.0.7:80", True), ("[fe80::1]", True), ("box.lan", True), ("evil.example", False)):
        assert guard._is_called([host]) is called
    assert not guard._is_called(["box.lan", "evil.example"])
    assert not guard._is_called([])
