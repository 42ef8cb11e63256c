"""Pages that the broker serves: they come from its own origin, so that they may connect by WebSocket."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from stompy.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("not for you")
    pages = tmp_path / "pages"
    (pages / "sub").mkdir(parents=True)
    (pages / "index.html").write_text("<title>ü</title>", encoding="utf-8")
    (pages / "sub" / "a b.js").write_text("1")
    (pages / "picture").write_bytes(bytes(5_000_000))
    (pages / "link").symlink_to(tmp_path / "secret")
    (pages / "linked").mkdir()
    (pages / "linked" / "index.html").symlink_to(tmp_path / "secret")
    return pages


@pytest.fixture(params=["the same port", "a port of its own"])
def broker(request: pytest.FixtureRequest, folder: Path) -> Iterator[Broker]:
    with Broker(ws=True if request.param == "the same port" else 0, serve=folder) as broker:
        yield broker


def got(broker: Broker, target: str) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection(broker.ws_url.split("/")[2], timeout=20)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def test_files_are_served_beside_stomp(broker: Broker, folder: Path) -> None:
    assert got(broker, "/") == (200, "text/html; charset=utf-8", "<title>ü</title>".encode())
    assert got(broker, "/index.html?a=b")[0] == 200
    status, kind, body = got(broker, "/sub/a%20b.js")
    assert (status, body) == (200, b"1")
    assert kind is not None
    assert "javascript" in kind
    assert got(broker, "/picture") == (200, "application/octet-stream", bytes(5_000_000))
    for url in (broker.url, broker.ws_url):
        with stompy.connect(url) as conn:
            conn.send("/queue/a", "x", confirm=True)
    assert broker.depth("/queue/a") == 2


@pytest.mark.parametrize(
    "target",
    [
        "/none",
        "/sub",
        "/link",
        "/linked",
        "/../secret",
        "/%2e%2e/secret",
        "/sub/..%2f..%2fsecret",
        "//etc/passwd",
        "/%00",
    ],
)
def test_nothing_else_is(broker: Broker, target: str) -> None:
    status, kind, body = got(broker, target)
    assert (status, kind) == (404, "text/plain; charset=utf-8")
    assert b"not for you" not in body
    assert b"root" not in body


def test_a_page_of_the_brokers_own_may_connect_and_no_other(broker: Broker) -> None:
    own = broker.ws_url.replace("ws", "http", 1).rstrip("/")
    with stompy.connect(broker.ws_url, websocket=stompy.WebSocketOptions(headers={"Origin": own})):
        pass
    with pytest.raises(stompy.ConnectError, match="origin"):
        stompy.connect(broker.ws_url, websocket=stompy.WebSocketOptions(headers={"Origin": "http://evil.example"}))


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="set ws too"):
        Broker(serve=tmp_path)
    with pytest.raises(ConfigurationError, match="serve must be a folder"):
        Broker(ws=True, serve=tmp_path / "none")
