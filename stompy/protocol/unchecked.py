"""A client session without the rules of one: its owner decides which frame is sent when, and judges what arrives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from stompy.errors import ProtocolError
from stompy.frames.encoder import Encoded, encode_head, finish
from stompy.frames.frame import Frame, Pairs, trimmed
from stompy.frames.grammar import DEFAULT_LIMITS, NEGOTIABLE, FrameLimits, Leniency, Version, grammar_of
from stompy.frames.heads import Run
from stompy.protocol.client import ClientProtocol
from stompy.protocol.heartbeat import HeartbeatOffer, Heartbeats
from stompy.protocol.rules import parse_accept_version
from stompy.protocol.state import State

TOLERATED = (
    Leniency.UNDEFINED_ESCAPES
    | Leniency.CR_ESCAPE_IN_1_1
    | Leniency.CRLF_IN_1_1
    | Leniency.INVALID_UTF8
    | Leniency.UNEXPECTED_BODY
    | Leniency.NUL_BETWEEN_FRAMES
    | Leniency.LINES_WITHOUT_COLON
)
"""Everything that can be read without ambiguity."""


_MAX_HEADS = 100
"""Encoded heads of SEND frames that are cached; above this the cache is cleared."""
_MAX_HEAD_BYTES = 1_000
"""Bytes; longer heads are not cached."""


class UncheckedClient(ClientProtocol):
    """Encodes any frame in any state, and accepts any frame of a server, also without the required headers.

    The version to write is that of `accept-version` in CONNECT until CONNECTED names one.

    Args:
        leniency_for: see `ClientProtocol`.
        limits: limits of a frame of the broker.
    """

    def __init__(
        self, *, leniency_for: Callable[[str | None], Leniency] | None = None, limits: FrameLimits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(leniency=TOLERATED, leniency_for=leniency_for, limits=limits)
        self.negotiated = False
        """Whether CONNECTED has arrived."""
        self._offer_made(Version.V1_2, None)

    def _offer_made(self, version: Version, heartbeat: str | None) -> None:
        self.version: Version = version
        self._writing = grammar_of(version)
        self._heads: dict[Pairs, bytes] = {}
        with contextlib.suppress(ProtocolError):  # the broker then judges it
            self._offer = HeartbeatOffer.parse(heartbeat)

    @property
    def offers_heartbeats(self) -> bool:
        """Whether CONNECT offered heartbeats in any direction."""
        return self._offer != HeartbeatOffer()

    def encode(
        self, command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", *, content_length: bool = True
    ) -> Encoded:
        """Return the bytes of a frame; `content_length` adds that header if there is a body.

        Raises:
            LocalProtocolError: the version cannot express the frame.
        """
        pairs = tuple(headers)
        if command == "SEND":
            head = self._heads.get(pairs) or self._make_head(pairs)
            return finish(head, body, grammar=self._writing, content_length=content_length)
        if command in ("CONNECT", "STOMP"):
            named = dict(pairs)
            offered = parse_accept_version(named.get("accept-version"))
            self._offer_made(max(offered, default=self.version), named.get("heart-beat"))
        head = encode_head(command, pairs, grammar=self._writing)
        return finish(head, body, grammar=self._writing, content_length=content_length)

    def _make_head(self, pairs: Pairs) -> bytes:
        head = encode_head("SEND", pairs, grammar=self._writing)
        if len(head) <= _MAX_HEAD_BYTES:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[pairs] = head
        return head

    def _accepts(self, run: Run) -> bool:
        return True

    def _accept(self, frame: Frame) -> None:
        if self.negotiated:
            return
        if frame.command == "CONNECTED":
            self._connected(frame)
        else:
            self.parser.switch(self.grammar, single=True)

    def _connected(self, frame: Frame) -> None:
        header = frame.headers.get
        heartbeat, server = header("heart-beat"), header("server")
        # A server without versions speaks 1.0, unless it speaks of heartbeats.
        default = Version.V1_0 if heartbeat is None else self.version
        named = (header("version") or default.value).strip()
        self.version = next((version for version in NEGOTIABLE if version.value == named), self.version)
        if self.version.has_heartbeats:
            with contextlib.suppress(ProtocolError):
                self.heartbeats = Heartbeats.agree(self._offer, HeartbeatOffer.parse(heartbeat))
        if self.version is Version.V1_0:
            frame.headers = trimmed(frame.headers)
        self.state, self.server, self.session = State.CONNECTED, server, header("session")
        self.grammar = self._writing = grammar_of(self.version, TOLERATED | self._leniency_for(server))
        self._heads = {}
        self.parser.switch(self.grammar)
        self.negotiated = True
