"""The broker side of a session, without clock, socket or lock."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.encoder import encode
from stompy.frames.frame import Frame, trimmed
from stompy.frames.grammar import (
    DEFAULT_LIMITS,
    NEGOTIABLE,
    FrameLimits,
    Grammar,
    Leniency,
    Version,
    grammar_of,
)
from stompy.frames.heads import Run
from stompy.protocol import rules
from stompy.protocol.heartbeat import HeartbeatOffer, Heartbeats
from stompy.protocol.rules import Fault, FaultyFrame, accept_version, highest_common
from stompy.protocol.state import EVENTS, ProtocolEvent, ProtocolSide, State, next_state

_SERVER_VALUE = re.compile(r"[^ /:\\\x00-\x1f]+(/[^ :\\\x00-\x1f]+)?")
_NEGATIVE = re.compile(r"-[0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE = re.compile(r"[:\\\x00-\x1f\x7f]")
_UNSAFE_IN_1_0 = re.compile(r"[\\\x00-\x1f\x7f]")


class ServerProtocol(ProtocolSide):
    """Check the frames that the client sends, and check and encode those of the broker.

    It holds the protocol state of a session: the version, and the ids of subscriptions and open transactions.
    `connected`, `send` and `fail` return the bytes to send. Received bytes go to `parser`, and the frames that it
    returns to `accept`; `receive` does both.

    Args:
        versions: the versions that the broker supports; `(Version.DRAFT,)` means the 1.0-draft.
        heartbeat: the `heart-beat` header of CONNECTED.
        server: the `server` header, as `name` or `name/version`.
        leniency: deviations of the client to tolerate.
        limits: limits of a frame of the client.
        require_host: whether to reject a 1.1 or 1.2 CONNECT without `host`.
        tolerates: whether to accept a frame that violates a rule; called with the frame and the error.
        offered: returns the versions that an `accept-version` header offers.

    Raises:
        LocalProtocolError: `versions` is empty or holds the 1.0-draft and others, or `server` is malformed.
    """

    def __init__(
        self,
        *,
        versions: Sequence[Version] = NEGOTIABLE,
        heartbeat: HeartbeatOffer | Callable[[HeartbeatOffer], HeartbeatOffer] | None = None,
        server: str | None = None,
        leniency: Leniency = Leniency.NONE,
        limits: FrameLimits = DEFAULT_LIMITS,
        require_host: bool = False,
        tolerates: Callable[[Frame, RemoteProtocolError], bool] = lambda frame, error: False,
        offered: Callable[[str | None], Sequence[Version]] = rules.parse_accept_version,
        any_heartbeat: bool = False,
    ) -> None:
        super().__init__(versions, leniency, limits)
        self._preferred: Version | None = None
        self._offer = heartbeat if isinstance(heartbeat, HeartbeatOffer) else HeartbeatOffer()
        self._answer = heartbeat if callable(heartbeat) else None
        if server is not None and not _SERVER_VALUE.fullmatch(server):
            raise LocalProtocolError(f"server must be name/version, not {rules.shown(server)} (CONNECTED Frame)")
        self._server = server
        self._require_host = require_host
        self._tolerates = tolerates
        self._offered = offered
        self._any_heartbeat = any_heartbeat
        self.subscriptions = self._ids.subscriptions
        """The ack mode of each active subscription, by its key; see `state.subscription_key`."""
        self.transactions = self._ids.transactions
        """The ids of the open transactions."""
        self.error: RemoteProtocolError | None = None
        """The first protocol error, which ended the session; set by `accept`."""
        self.offender: Frame | None = None
        """The frame that caused `error`; `None` if the parser found the error."""

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes and that are allowed now; check `error` afterwards.

        The first frame is CONNECT. Later frames wait in the parser; call `receive(b"")` for them after `connected`.
        """
        return [] if self._has_failed else self.accept(self.parser.feed(data))

    def prefer(self, version: Version | None) -> None:
        """Choose this version, on which the transport has agreed, if CONNECT offers it; `None` changes nothing."""
        self._preferred = version

    def accept(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return those of `frames` that are allowed now, in order; stop at the first that is not, and set `error`.

        A protocol error that the parser found after these frames sets `error` too. After `fail`, all frames are
        ignored.
        """
        accepted: list[Frame] = []
        for frame in frames:
            if self._has_failed:
                break
            if self.admits(frame):
                accepted.append(frame)
        if not self._has_failed:
            self.error = self.parser.error
        return accepted

    def admits(self, frame: Frame) -> bool:
        """Return whether a frame is allowed now, and set `error` if it is not; the next of `accept`, alone."""
        try:
            self._accept(frame)
        except RemoteProtocolError as error:
            if self.state is State.CONNECTED and self._tolerates(frame, error):
                return True
            self.error, self.offender = error, frame
            return False
        return True

    def admits_run(self, run: Run) -> bool:
        """Return whether all frames of a run are allowed now but for those that name a transaction.

        Only SEND, ACK and NACK can be: they change no state, and what else they must have are headers.
        """
        version = self.version if self.state is State.CONNECTED else None
        return version is not None and _admits_all(version, run.command, run.names)

    @property
    def offer(self) -> HeartbeatOffer:
        """The `heart-beat` header of CONNECTED."""
        return self._offer

    @property
    def _has_failed(self) -> bool:
        return self.error is not None or self.state is State.FAILED

    def _accept(self, frame: Frame) -> None:
        command = frame.command
        version = self.version or self._versions[-1]
        if command not in rules.commands_of(version, client=True):
            message = f"unknown command {command!r} in STOMP {version} (Client Frames)"
            raise FaultyFrame(Fault.UNKNOWN_COMMAND, message)
        state = next_state(self.state, command)
        if state is None:
            message = f"a {command} frame is not allowed: {self.state.value} (Connecting)"
            raise FaultyFrame(Fault.COMMAND_NOT_ALLOWED, message)
        if state is State.CONNECTING:
            self._connect(frame)
        else:
            header = frame.headers.get
            wrong = rules.violation(command, header, version) or self._ids.violation(command, header)
            if wrong is not None:
                raise wrong
            self._ids.record(command, header)
        self.state = state

    def _connect(self, frame: Frame) -> None:
        version = Version.DRAFT if self._draft else self._common(frame.headers.get("accept-version"))
        if version is Version.V1_0:
            frame.headers = trimmed(frame.headers)
        header = frame.headers.get
        wrong = rules.violation(frame.command, header, version)
        wrong = wrong or rules.body_violation(frame, grammar_of(version, self._leniency))
        if wrong is None and self._require_host and version.has_heartbeats and header("host") is None:
            message = f"a {frame.command} frame needs a 'host' header in STOMP {version} (CONNECT or STOMP Frame)"
            wrong = FaultyFrame(Fault.NO_OTHER_HEADER, message)
        if wrong is not None:
            raise wrong
        if version.has_heartbeats or self._answer is not None:
            text = header("heart-beat")
            if self._answer is not None and text is not None:
                text = _NEGATIVE.sub("1" if self._any_heartbeat else "0", text)  # which every known broker takes
            try:
                asked = HeartbeatOffer.parse(text)
            except RemoteProtocolError:
                if not self._any_heartbeat:
                    raise
                asked = HeartbeatOffer()
            if self._answer is not None:
                self._offer = self._answer(asked)
            if version.has_heartbeats:
                self.heartbeats = Heartbeats.agree(self._offer, asked)
        self.version = version

    def _common(self, offered: str | None) -> Version:
        versions = self._offered(offered)
        version = self._preferred if self._preferred in versions else highest_common(self._versions, versions)
        if version is not None:
            return version
        asked = "without accept-version (1.0)" if offered is None else f"with accept-version {rules.shown(offered)}"
        own = accept_version(self._versions)
        message = f"no common version: CONNECT {asked}, the broker supports {own} (Protocol Negotiation)"
        raise FaultyFrame(Fault.NO_COMMON_VERSION, message)

    def record(self, frame: Frame, *, begins: bool = False) -> None:
        """Record the ids of a frame that is accepted though it violates a rule.

        Args:
            frame: the frame.
            begins: a SEND begins the transaction that it names.
        """
        header = frame.headers.get
        self._ids.record("BEGIN" if begins and frame.command == "SEND" else frame.command, header)

    def await_another_connect(self) -> None:
        """Forget the first frame, which was refused in a way that leaves the connection open."""
        self.state, self.version, self.error, self.offender = State.NEW, None, None, None
        self.parser.switch(self.grammar, single=True)

    def connected(self, session: str) -> bytes:
        """Return the CONNECTED frame; the frames that follow are parsed by the negotiated version.

        Args:
            session: a unique id of this session, without colon, backslash and control characters, as clients disagree
                about escapes in this frame.

        Raises:
            LocalProtocolError: no CONNECT was accepted, it was already answered, or `session` is malformed.
        """
        version = self.version
        if version is None or self.state is not State.CONNECTING:
            raise LocalProtocolError(f"CONNECTED cannot be sent: {self.state.value} (Connecting)")
        if _UNSAFE.search(session):
            raise LocalProtocolError(f"clients may misread the session id {rules.shown(session)} (Value Encoding)")
        fields = {"session": session}
        if not self._draft:
            fields["version"] = version.value
            if self._server is not None:
                fields["server"] = self._server
            if version.has_heartbeats:
                fields["heart-beat"] = str(self._offer)
        data = encode("CONNECTED", fields.items(), grammar=self.grammar)
        self.state = State.CONNECTED
        self.grammar = grammar_of(version, self._leniency)
        self.parser.switch(self.grammar)
        return data

    def send(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        """Return the bytes of a MESSAGE or RECEIPT.

        Raises:
            LocalProtocolError: the session is not open, or a header is missing or cannot be encoded.
        """
        if EVENTS.get(command) is not ProtocolEvent.SERVER_FRAME:
            raise LocalProtocolError(f"{rules.shown(command)} is neither MESSAGE nor RECEIPT (Server Frames)")
        if self.version is None or next_state(self.state, command) is None:
            raise LocalProtocolError(f"{command} cannot be sent: {self.state.value} (Connecting)")
        wrong = rules.violation(command, headers.get, self.version)
        if wrong is None and command == "MESSAGE" and self._lacks_ack(headers):
            message = "a MESSAGE that has to be acknowledged needs an 'ack' header in STOMP 1.2 (MESSAGE)"
            wrong = FaultyFrame(Fault.NO_OTHER_HEADER, message)
        if wrong is not None:
            raise LocalProtocolError(str(wrong))
        return encode(command, headers.items(), body, grammar=self.grammar)

    def _lacks_ack(self, headers: Mapping[str, str]) -> bool:
        if self.version is not Version.V1_2 or "ack" in headers:
            return False
        return self.subscriptions.get(f"#{headers['subscription']}", "auto") != "auto"

    def fail(self, message: str, *, offender: Frame | None = None, detail: str = "") -> bytes:
        """Return an ERROR frame; nothing can be sent after it, and the caller must close the stream.

        Args:
            message: a short description; control characters become spaces in the header.
            offender: the client frame that caused the error; its `receipt` is returned as `receipt-id`.
            detail: further text for the body.

        Raises:
            LocalProtocolError: an ERROR was already sent, or the stream has ended.
        """
        state = next_state(self.state, "ERROR")
        if state is None:
            raise LocalProtocolError(f"ERROR cannot be sent: {self.state.value} (Connecting)")
        handshake = self.grammar.handshake
        text = message.encode("utf-8", "replace").decode("utf-8")
        # A client whose valid CONNECT is refused reads the ERROR by the version that this CONNECT negotiated.
        grammar = self.grammar if self.version is None else grammar_of(self.version, self._leniency)
        fields = {"message": self._unsafe(grammar).sub(" ", text).strip(" ")}
        if handshake:
            fields["version"] = accept_version(self._versions)
        receipt = offender.headers.get("receipt") if offender is not None and not handshake else None
        # A 1.0 value that ends with CR can be read but not written: the CR would be read as part of the line end.
        if receipt is not None and (self.grammar.escapes or not receipt.endswith("\r")):
            fields["receipt-id"] = receipt
        fields["content-type"] = "text/plain"
        about = f"The frame was {offender.command}.\n" if offender is not None else ""
        body = f"{text}\n{about}{detail}".encode("utf-8", "replace")
        data = encode("ERROR", fields.items(), body, grammar=grammar)
        self.state = state
        return data

    def _unsafe(self, grammar: Grammar) -> re.Pattern[str]:
        """Return the characters to replace in the `message` header of an ERROR, as some clients would misread them."""
        if not self.grammar.handshake or (grammar.escapes and not grammar.handshake):
            return _CONTROL
        # Many clients unescape headers before they know the version; 1.0 clients read a colon in a value as it is.
        return _UNSAFE if grammar.handshake else _UNSAFE_IN_1_0

    def end(self) -> None:
        """Record the end of the stream, and release the state of the session."""
        super().end()
        self._ids.clear()
        self.parser.drop()


@functools.lru_cache(maxsize=64)
def _admits_all(version: Version, command: str, names: frozenset[str]) -> bool:
    known = command in ("SEND", "ACK", "NACK") and command in rules.commands_of(version, client=True)
    return known and names.issuperset(rules.REQUIRED[version].get(command, ()))
