"""A link whose owner writes CONNECT and receives every frame."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, StompError
from stompy.frames.frame import Frame
from stompy.link.link import Link, RawLink
from stompy.link.settings import LinkSettings
from stompy.protocol.unchecked import UncheckedClient
from stompy.transport.base import Transport
from tests.support.memory import memory_pair
from tests.support.peer import WITHIN, RecordingOwner, until


class Owner(RecordingOwner):
    """Keeps what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.controls: list[str] = []
        self.beats: list[bool] = []
        self.reasons: list[StompError | None] = []

    def control(self, link: RawLink, frame: Frame) -> None:
        self.controls.append(frame.command)

    def heartbeat(self, *, sent: bool) -> None:
        self.beats.append(sent)

    def ended(self, link: Link, reason: StompError | None) -> None:
        super().ended(link, reason)
        self.reasons.append(reason)


Raw = tuple[RawLink, Transport, Owner]


@pytest.fixture
def raw() -> Iterator[Raw]:
    ours, theirs = memory_pair(65_536)
    owner = Owner()
    link = RawLink(ours, UncheckedClient(), LinkSettings(), owner, name="test", address="peer")
    link.start()
    yield link, theirs, owner
    link.close()
    assert link.join(Deadline(WITHIN))
    theirs.close()


def say(peer: Transport, data: bytes) -> None:
    peer.sendall(data, WITHIN)


def test_the_owner_writes_connect_and_gets_connected(raw: Raw) -> None:
    link, peer, owner = raw
    link.writer.write(link.protocol.encode("CONNECT", [("accept-version", "1.2")]))  # type: ignore[attr-defined]
    assert peer.recv(Deadline(WITHIN)).startswith(b"CONNECT\n")
    say(peer, b"CONNECTED\nversion:1.2\n\n\0ERROR\n\n\0ERROR\n\n\0")
    until(lambda: owner.controls == ["CONNECTED", "ERROR", "ERROR"])
    assert link.alive
    say(peer, b"MESSAGE\n\nx\0")
    until(lambda: owner.frames)


def test_heartbeats_start_with_connected_and_are_reported(raw: Raw) -> None:
    link, peer, owner = raw
    offer = [("accept-version", "1.2"), ("heart-beat", "20,0")]
    link.writer.write(link.protocol.encode("CONNECT", offer))  # type: ignore[attr-defined]
    peer.recv(Deadline(WITHIN))
    say(peer, b"CONNECTED\nversion:1.2\nheart-beat:0,20\n\n\0")
    assert peer.recv(Deadline(WITHIN)) == b"\n"
    until(lambda: True in owner.beats)
    say(peer, b"\n")
    until(lambda: False in owner.beats)


def test_the_end_of_the_stream_ends_the_link(raw: Raw) -> None:
    _, peer, owner = raw
    peer.close()
    until(lambda: owner.reasons)
    (reason,) = owner.reasons
    assert isinstance(reason, ConnectionLostError)
