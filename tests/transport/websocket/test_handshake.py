"""The opening handshake, as heads of HTTP messages."""

from __future__ import annotations

import pytest

from stompy.errors import ConnectError, WebSocketRefusedError
from stompy.transport.websocket.handshake import (
    HandshakeRefused,
    accept_head,
    accept_of,
    check_response,
    choose_subprotocol,
    header_fault,
    parse_request,
    refusal,
    request_head,
)

KEY = b"the sample nonce"
OFFERED = ("v12.stomp", "v11.stomp")
REQUEST = request_head("/ws?a=b", "h:1", KEY, subprotocols=OFFERED, headers={"Origin": "http://a"})


def test_the_example_of_the_rfc() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_both_sides_agree() -> None:
    request = parse_request(REQUEST)
    assert (request.target, request.origin, request.subprotocols) == ("/ws?a=b", "http://a", OFFERED)
    assert check_response(accept_head(request.key, "v11.stomp"), KEY, OFFERED) == "v11.stomp"
    assert check_response(accept_head(request.key, None), KEY, OFFERED) is None


def changed(old: str, new: str) -> bytes:
    assert old.encode() in REQUEST
    return REQUEST.replace(old.encode(), new.encode("latin-1"))


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 400),
        (changed("GET /ws?a=b", "GET http://h/"), 400),
        (changed("GET /ws?a=b", "GET /a b"), 400),
        (changed("GET", "POST"), 405),
        (changed("HTTP/1.1", "HTTP/1.0"), 505),
        (changed("HTTP/1.1", "HTTP/2"), 400),
        (changed("Host: h:1\r\n", ""), 400),
        (changed("Host: h:1", "Host: h:1\r\nHost: h:2"), 400),
        (changed("Upgrade: websocket\r\n", ""), 426),
        (changed("Upgrade: websocket", "Upgrade: h2c"), 426),
        (changed("Connection: Upgrade", "Connection: close"), 426),
        (changed("Version: 13", "Version: 8"), 426),
        (changed("Sec-WebSocket-Key: ", "X-Key: "), 400),
        (changed("Sec-WebSocket-Key: ", "Sec-WebSocket-Key: abc"), 400),
        (changed("Sec-WebSocket-Key: ", "Sec-WebSocket-Key: aa\r\nSec-WebSocket-Key: "), 400),
        (changed("Origin: http://a", "Origin: http://a\r\nOrigin: http://b"), 400),
        (changed("Origin: http://a", "Origin : http://a"), 400),
        (changed("Origin: http://a", "Origin: http://a\r\n folded"), 400),
        (changed("Origin: http://a", "Origin: http://a\x00"), 400),
        (changed("Origin: http://a", "\r\n".join(f"X-{number}: 1" for number in range(200))), 400),
    ],
)
def test_a_request_that_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(HandshakeRefused) as refused:
        parse_request(head)
    assert refused.value.status == status
    answer = refusal(refused.value)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    head, end, body = answer.partition(b"\r\n\r\n")
    with pytest.raises(ConnectError, match=str(refused.value)):
        check_response(head + end, KEY, OFFERED, body)


def test_names_and_tokens_are_read_in_any_case() -> None:
    head = changed(
        "Upgrade: websocket\r\nConnection: Upgrade", "UPGRADE: h2c, WebSocket\r\nconnection: keep-alive, upgrade"
    )
    assert parse_request(head).origin == "http://a"


def test_the_newest_common_subprotocol_is_chosen() -> None:
    assert choose_subprotocol(["v10.stomp", "v11.stomp", "x"], ["v12.stomp", "v11.stomp", "v10.stomp"]) == "v11.stomp"
    assert choose_subprotocol([], ["v12.stomp"]) is None
    with pytest.raises(HandshakeRefused, match=r"no subprotocol in common: this broker has v12\.stomp"):
        choose_subprotocol(["mqtt"], ["v12.stomp"])


ANSWER = accept_head(parse_request(REQUEST).key, "v12.stomp")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "refused the WebSocket handshake: 200 OK"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\n\r\n", "redirects to https://login.example/"),
        (b"HTTP/1.1 101\r\nbad\r\n\r\n", "malformed"),
        (ANSWER.replace(b"Upgrade: websocket", b"Upgrade: h2c"), "another protocol"),
        (ANSWER.replace(b"Accept: ", b"Accept: x"), "wrong Sec-WebSocket-Accept"),
        (ANSWER.replace(b"v12.stomp", b"v10.stomp"), "subprotocol that was not offered"),
        (ANSWER.replace(b"Upgrade: w", b"Sec-WebSocket-Extensions: x\r\nUpgrade: w"), "extension"),
    ],
)
def test_an_answer_that_is_no_websocket(head: bytes, message: str) -> None:
    with pytest.raises(ConnectError, match=message):
        check_response(head, KEY, OFFERED)


def test_an_explanation_in_plain_text_is_shown_without_control_characters() -> None:
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n"
    with pytest.raises(WebSocketRefusedError, match=r"403 Forbidden: go \\x1b away"):
        check_response(head, KEY, OFFERED, b"go \x1b away\n")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("Origin", "https://a", None),
        ("Or igin", "a", "not the name"),
        (1, "a", "not the name"),
        ("Host", "a", "set by the WebSocket handshake"),
        ("Cookie", "a\r\nb", "cannot be sent"),
        ("Cookie", "é", "cannot be sent"),
        ("Cookie", 1, "must be text, not int"),
    ],
)
def test_headers_of_the_user_are_checked(name: object, value: object, fault: str | None) -> None:
    found = header_fault(name, value)
    assert found is None if fault is None else found is not None and fault in found
