"""Names to network addresses, within a deadline.

| thread | lives with | owns | may block on | never |
|---|---|---|---|---|
| `stompy-resolver` | one lookup | its result | getaddrinfo | holds a lock |

The caller joins it. A lookup that outlasts the deadline cannot be stopped from outside, so its thread is left behind as
a daemon and ends when the system's resolver gives up, usually within half a minute.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from stompy.errors import ConfigurationError, ConnectError, ConnectTimeout
from stompy.transport.address import host_port
from stompy.transport.faults import lookup_in_words

if TYPE_CHECKING:
    from stompy.deadline import Deadline


class Endpoint(NamedTuple):
    """One answer of the name service."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        return host_port(str(self.sockaddr[0]), int(self.sockaddr[1]))


def resolve(host: str, port: int, *, deadline: Deadline) -> list[Endpoint]:
    """Return the addresses of `host`, in the system's order of preference, each once, at least one.

    Raises:
        ConfigurationError: `host` cannot be a host name.
        ConnectError: the name has no address.
        ConnectTimeout: the deadline passed first.
    """
    try:
        return query(host, port, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not a number: ask the name service, which may take its time
    answer = _in_time(host, port, deadline=deadline)
    address = host_port(host, port)
    if isinstance(answer, OSError):
        raise ConnectError(lookup_in_words(answer, host=host), address=address) from answer
    if not answer:
        raise ConnectError(f"host name without an address: {host}", address=address)
    return answer


def _in_time(host: str, port: int, *, deadline: Deadline) -> list[Endpoint] | OSError:
    answers: list[list[Endpoint] | BaseException] = []

    def look_up() -> None:
        try:
            answers.append(query(host, port, flags=0))
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=look_up, name="stompy-resolver", daemon=True)
    thread.start()
    remaining = deadline.remaining()
    thread.join(None if remaining is None else min(remaining, threading.TIMEOUT_MAX))
    if not answers:
        message = f"the lookup of the host name {host} took longer than the time allowed"
        raise ConnectTimeout(message, address=host_port(host, port))
    answer = answers[0]
    if isinstance(answer, (list, OSError)):
        return answer
    raise answer


def query(host: str, port: int, *, flags: int) -> list[Endpoint]:
    """Ask the system for the addresses of `host`, for as long as it likes, each once.

    Raises:
        ConfigurationError: `host` cannot be a host name.
        OSError: the system's answer, `socket.gaierror` among them.
    """
    # The C library reads up to a NUL: 127.0.0.1\0.example would be the loopback.
    if not host or " " in host or not host.isprintable():
        raise ConfigurationError(f"not a usable host name: {host!r}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except ValueError as error:
        raise ConfigurationError(f"not a usable host name: {host!r}") from error
    return list(dict.fromkeys(Endpoint(family, sockaddr) for family, _, _, _, sockaddr in found))
