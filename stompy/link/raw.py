"""A link whose owner writes every frame, CONNECT too, and receives every frame.

The threads and locks are those of a link; see `link.py`. The heartbeat thread starts with CONNECTED, on the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stompy.errors import ConnectError
from stompy.frames.frame import Frame
from stompy.link.handshake import OpenedSession
from stompy.link.heartbeat import HeartbeatThread
from stompy.link.link import Link
from stompy.link.reader import LinkOwner, Reader
from stompy.link.settings import LinkSettings
from stompy.protocol.unchecked import UncheckedClient
from stompy.transport.base import Transport
from stompy.world import time


class RawOwner(LinkOwner, Protocol):
    """Callbacks of a raw link; they must not block."""

    def control(self, link: RawLink, frame: Frame) -> None:
        """Called with each CONNECTED and ERROR frame; on the reader. Neither ends the link."""
        ...

    def heartbeat(self, *, sent: bool) -> None:
        """Called when a heartbeat arrived, on the reader, or was sent, on the heartbeat thread."""
        ...


class RawLink(Link):
    """A link from the dialled transport on, before CONNECT.

    Args:
        transport: open.
        protocol: of the session.
        settings: timeouts and limits.
        owner: called with everything that happens.
        name: prefix of thread names.
        address: of the broker, for error messages.
    """

    def __init__(
        self,
        transport: Transport,
        protocol: UncheckedClient,
        settings: LinkSettings,
        owner: RawOwner,
        *,
        name: str,
        address: str,
    ) -> None:
        self._raw, self._raw_owner, self._tolerance = protocol, owner, settings.timeouts.heartbeat_tolerance
        super().__init__(
            OpenedSession(transport, protocol, Frame("CONNECTED"), [], address), settings, owner, name=name
        )

    def _new_reader(self, early: Sequence[Frame]) -> Reader:
        return _RawReader(self, self._raw, self._raw_owner)

    def control(self, frame: Frame) -> None:
        """Pass on a frame; after CONNECTED, start the heartbeats."""
        if frame.command == "CONNECTED":
            self.connected = frame
            self.timer.start(self._raw.heartbeats, time.monotonic(), self._tolerance)
            if self._heartbeat is None and self.timer.next_check(time.monotonic()) is not None:
                self._heartbeat = HeartbeatThread(self)
                try:
                    self._heartbeat.start()
                except ConnectError as error:
                    self.fail(error)
        self._raw_owner.control(self, frame)

    def beat(self) -> bool:
        """Send a heartbeat, and report it."""
        sent = super().beat()
        if sent:
            self._raw_owner.heartbeat(sent=True)
        return sent


class _RawReader(Reader):
    """A reader that reads the handshake too, and reports heartbeats."""

    def __init__(self, link: RawLink, protocol: UncheckedClient, owner: RawOwner) -> None:
        super().__init__(link, ())
        self._protocol = protocol
        self._owner = owner

    def _process(self, data: bytes, now: float) -> None:
        parser = self._protocol.parser
        line_ends, before = parser.line_ends, self._link.frames_in
        if self._protocol.negotiated:
            super()._process(data, now)
        else:
            frames = -1
            while frames != self._link.frames_in:  # the parser pauses after each frame
                frames = self._link.frames_in
                super()._process(data, now)
                data = b""
        # The line ends of a read with frames may belong to them.
        if parser.line_ends > line_ends and self._link.frames_in == before:
            self._owner.heartbeat(sent=False)
