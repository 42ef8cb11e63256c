"""Who gets the page, and what it may do."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from stompy.broker.console import Site, page
from stompy.transport.websocket.handshake import HandshakeRefused

SITE = Site(8161, "sesame")


def head(target: str = "/sesame/", host: str = "127.0.0.1:8161", *more: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {host}", *more]).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("host", ["127.0.0.1:8161", "localhost:8161", "LocalHost:8161", "[::1]:8161"])
def test_the_page_comes_to_whoever_has_the_token(host: str) -> None:
    response = SITE.respond(head("/sesame/", host))
    assert response is not None
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert response.partition(b"\r\n\r\n")[2] == page()[0]
    assert f"connect-src ws://{host.lower()};".encode() in response


def test_the_usual_port_of_http_may_be_left_out() -> None:
    site = Site(80, "sesame")
    for host in ("localhost", "localhost:80"):
        assert site.respond(head("/sesame/", host)) is not None
        assert site.respond(head("/sesame/stomp", host, f"Origin: http://{host}")) is None
    with pytest.raises(HandshakeRefused, match="own machine"):
        site.respond(head("/sesame/", "evil.example"))


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /sesame/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /sesame/ HTTP/1.1\r\nHost: 127.0.0.1:8161\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /sesame/ HTTP/1.1\r\nHost: 127.0.0.1:8161\r\nhost: 127.0.0.1:8161\r\n\r\n", 400),
        (
            b"GET /sesame/ HTTP/1.1\r\nHost: 127.0.0.1:8161\r\nOrigin: null\r\nOrigin: http://127.0.0.1:8161\r\n\r\n",
            400,
        ),
        (b"GET http://127.0.0.1:8161/sesame/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /sesame/ HTTP/1.0\r\nHost: 127.0.0.1:8161\r\n\r\n", 505),
        (b"GET /sesame/ HTTP/0.9\r\n\r\n", 400),
        (b"HEAD /sesame/ HTTP/1.1\r\nHost: 127.0.0.1:8161\r\n\r\n", 405),
        (b"POST /sesame/ HTTP/1.1\r\nHost: 127.0.0.1:8161\r\n\r\n", 405),
    ],
)
def test_requests_that_are_not_one_plain_get_are_refused(request_: bytes, status: int) -> None:
    with pytest.raises(HandshakeRefused) as caught:
        SITE.respond(request_)
    assert caught.value.status == status


@pytest.mark.parametrize("target", ["/", "/sesam/", "/sesame2/", "/%73esame/", "//sesame/", "/sesam/stomp", "/stomp"])
def test_without_the_token_there_is_nothing(target: str) -> None:
    with pytest.raises(HandshakeRefused, match="token") as caught:
        SITE.respond(head(target))
    assert caught.value.status == 403
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("host", ["evil.example:8161", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8161", ""])
def test_other_names_are_refused_as_dns_rebinding_would_use_them(host: str) -> None:
    for target in ("/sesame/", "/sesame/stomp"):
        with pytest.raises(HandshakeRefused, match="own machine"):
            SITE.respond(head(target, host))


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8161", "http://localhost:8161"])
def test_pages_of_other_origins_are_refused(origin: str) -> None:
    for target in ("/sesame/", "/sesame/stomp"):
        with pytest.raises(HandshakeRefused, match=f"it is {origin!r}, not 'http://127.0.0.1:8161'") as caught:
            SITE.respond(head(target, "127.0.0.1:8161", f"Origin: {origin}"))
        assert str(caught.value).endswith("are different origins") is (origin == "http://localhost:8161")


def test_its_own_page_and_programs_may_open_a_websocket() -> None:
    assert SITE.respond(head("/sesame/stomp")) is None
    assert SITE.respond(head("/sesame/stomp", "localhost:8161", "Origin: http://localhost:8161")) is None


def test_there_is_no_other_page() -> None:
    with pytest.raises(HandshakeRefused) as caught:
        SITE.respond(head("/sesame/etc/passwd"))
    assert caught.value.status == 404


def test_the_policy_allows_the_script_and_the_style_of_the_page_alone() -> None:
    body, policy = page()
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        ((inline,)) = re.findall(rf"<{tag}>(.*?)</{tag}>", body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
        assert rule in policy


def test_nothing_comes_from_outside_and_nothing_writes_markup() -> None:
    text = page()[0].decode()
    assert re.findall(r"https?://", text) == []
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"):
        assert forbidden not in text
