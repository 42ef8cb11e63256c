"""Addresses of WebSockets."""

from __future__ import annotations

import pytest

from stompy.transport.address import parse_addresses
from tests.transport.test_address import SECRET, refusal


@pytest.mark.parametrize(
    ("url", "target", "authority"),
    [
        ("ws://h", "/", "h"),
        ("ws://h:80/ws", "/ws", "h"),
        ("ws://h:15674/a%2Fb/?x=%20&y", "/a%2Fb/?x=%20&y", "h:15674"),
        ("wss://[::1]/?", "/?", "[::1]"),
        ("wss://bücher.example:8443", "/", "xn--bcher-kva.example:8443"),
    ],
)
def test_a_websocket_keeps_path_and_query_as_they_are(url: str, target: str, authority: str) -> None:
    (address,) = parse_addresses(url)
    assert (address.target, address.authority) == (target, authority)
    assert (address.vhost, address.options) == (None, ())
    assert address.secure is url.startswith("wss")


def test_a_websocket_has_a_login_and_hides_what_may_be_secret() -> None:
    (address,) = parse_addresses(f"wss://user:{SECRET}@h/ws?token={SECRET}")
    assert (address.login, address.passcode, address.port) == ("user", SECRET, 443)
    assert str(address) == "wss://h:443/ws"
    assert SECRET not in repr(address)


@pytest.mark.parametrize("url", ["ws://h/ä", "ws://h/%zz", "ws://h/?%", "ws://h/?ä", "ws://h/#a", "ws:///a"])
def test_a_malformed_websocket_address_is_refused(url: str) -> None:
    assert url in refusal(url)
