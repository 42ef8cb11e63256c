"""Both ends of a conversation in a known state, and frames written without the encoder that is under test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stompy.frames.frame import Frame
from stompy.frames.grammar import DEFAULT_LIMITS, NEGOTIABLE, FrameLimits, Leniency, Version
from stompy.protocol.client import ClientProtocol
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.server import ServerProtocol

DRAFT, V1_0, V1_1, V1_2 = Version.DRAFT, Version.V1_0, Version.V1_1, Version.V1_2
MODERN = (V1_1, V1_2)
ALL = (DRAFT, V1_0, V1_1, V1_2)

CONNECT_OF = {
    DRAFT: {"username": "fred", "passcode": "xyzzy"},
    V1_0: {},
    V1_1: {"accept-version": "1.1", "host": "h"},
    V1_2: {"accept-version": "1.2", "host": "h"},
}
CONNECTED_OF = {
    DRAFT: {"session": "s"},
    V1_0: {"session": "s"},
    V1_1: {"version": "1.1"},
    V1_2: {"version": "1.2"},
}


def wire(command: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), body: bytes = b"") -> bytes:
    """Return the bytes of a frame as given: nothing is escaped, added or checked."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    head = "".join(f"{name}:{value}\n" for name, value in pairs)
    return f"{command}\n{head}\n".encode() + body + b"\0"


def client_of(
    version: Version,
    *,
    leniency: Leniency = Leniency.NONE,
    limits: FrameLimits = DEFAULT_LIMITS,
    heartbeat: HeartbeatOffer | None = None,
    crlf: bool = False,
    extra: Mapping[str, str] | None = None,
) -> ClientProtocol:
    """Return a client in a session of `version`; `extra` are further headers of the CONNECTED frame."""
    versions = (DRAFT,) if version is DRAFT else NEGOTIABLE
    client = ClientProtocol(versions=versions, leniency=leniency, limits=limits, heartbeat=heartbeat, crlf=crlf)
    client.connect(host="h", login="fred", passcode="xyzzy")
    frames = client.receive(wire("CONNECTED", {**CONNECTED_OF[version], **(extra or {})}))
    assert [frame.command for frame in frames] == ["CONNECTED"]
    assert client.version is version
    return client


def server_of(version: Version, **options: Any) -> ServerProtocol:
    """Return a broker's end in a session of `version`."""
    server = ServerProtocol(versions=(DRAFT,) if version is DRAFT else NEGOTIABLE, **options)
    frames = server.receive(wire("CONNECT", CONNECT_OF[version]))
    assert [frame.command for frame in frames] == ["CONNECT"], server.error
    server.connected("s-1")
    assert server.version is version
    return server


def pair_of(version: Version) -> tuple[ClientProtocol, ServerProtocol]:
    """Return both ends of one session of `version`, connected with each other's bytes."""
    versions = (version,)
    client, server = ClientProtocol(versions=versions), ServerProtocol(versions=versions)
    server.receive(client.connect(host="h", login="fred", passcode="xyzzy"))
    client.receive(server.connected("s-1"))
    assert client.version is server.version is version
    return client, server


def read(data: bytes, *, version: Version = V1_2) -> list[Frame]:
    """Return the frames of a broker as a client in a session of `version` takes them."""
    client = client_of(version)
    frames = client.receive(data)
    assert client.error is None
    return frames


def commands(frames: Iterable[Frame]) -> list[str]:
    return [frame.command for frame in frames]


def splits(data: bytes) -> Iterator[list[bytes]]:
    """Yield `data` whole, byte by byte, and at every split in two."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def asking(*versions: Version, leniency: Leniency = Leniency.NONE) -> ClientProtocol:
    """Return a client that has sent CONNECT and waits for the answer."""
    client = ClientProtocol(versions=versions or NEGOTIABLE, leniency=leniency)
    client.connect(host="h")
    return client


def refused(server: ServerProtocol, data: bytes) -> str:
    """Feed what must be refused and return why."""
    assert server.receive(data) == []
    assert server.error is not None
    return str(server.error)
