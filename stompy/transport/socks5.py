"""SOCKS5: asking a proxy for a connection (RFC 1928), with login and passcode (RFC 1929)."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from stompy.secret import Secret, revealed
from stompy.transport.http_connect import ascii_host

if TYPE_CHECKING:
    from stompy.transport.proxy_answer import Answer

_VERSION, _LOGIN_VERSION = 5, 1
_NO_LOGIN, _LOGIN, _NO_METHOD = 0, 2, 0xFF
_CONNECT, _RESERVED = 1, 0
_IPV4, _NAME, _IPV6 = 1, 3, 4

_REFUSALS = {
    1: "failed",
    2: "does not allow this connection by its rules",
    3: "cannot reach the broker's network",
    4: "cannot reach the broker's host, or does not know it",
    5: "was refused by the broker: connection refused",
    6: "lost the way to the broker: its time ran out",
    7: "does not know how to connect",
    8: "does not know that kind of address",
}


def ask_socks(answer: Answer, host: str, port: int, *, login: str | None, passcode: Secret[str] | None) -> None:
    """Have the proxy connect us to `host` and `port`.

    Raises:
        ConfigurationError: the host cannot be told to a proxy.
        ProxyError: it does not.
    """
    target = _target(host)
    methods = bytes([_NO_LOGIN] if login is None else [_NO_LOGIN, _LOGIN])
    answer.say(bytes([_VERSION, len(methods)]) + methods)
    version, method = answer.take(2)
    if version != _VERSION:
        raise answer.error(f"does not speak SOCKS5: it began with byte {version}")
    if method == _LOGIN and login is not None:
        _log_in(answer, login.encode(), Secret((revealed(passcode) or "").encode()))
    elif method == _NO_METHOD:
        raise answer.login_refused("takes no login of ours" if login else "wants a login and a passcode")
    elif method != _NO_LOGIN:
        raise answer.error(f"wants a way of logging in that was not offered ({method})")
    answer.say(bytes([_VERSION, _CONNECT, _RESERVED]) + target + port.to_bytes(2, "big"))
    _take_reply(answer)


def _target(host: str) -> bytes:
    name = ascii_host(host)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        octets = name.encode("ascii")
        return bytes([_NAME, len(octets)]) + octets
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _log_in(answer: Answer, login: bytes, passcode: Secret[bytes]) -> None:
    known = bytes([_LOGIN_VERSION, len(login)]) + login + bytes([len(passcode.reveal())])
    answer.say_secretly(Secret(known + passcode.reveal()))
    _, status = answer.take(2)
    if status:
        raise answer.login_refused("does not take our login and passcode")


def _take_reply(answer: Answer) -> None:
    version, reply, _, kind = answer.take(4)
    if version != _VERSION:
        raise answer.error(f"does not speak SOCKS5: it answered with byte {version}")
    if reply:
        raise answer.error(_REFUSALS.get(reply, f"refused for a reason that SOCKS5 does not have ({reply})"))
    # The address that the proxy dials from, which is of no use here.
    length = {_IPV4: 4, _IPV6: 16}.get(kind) or (answer.take(1)[0] if kind == _NAME else None)
    if length is None:
        raise answer.error(f"answered with an unknown kind of address ({kind})")
    answer.take(length + 2)
