"""The broker's end of a conversation, without a clock, a socket or a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.encoder import encode
from stompy.frames.frame import Frame
from stompy.frames.grammar import Grammar, Leniency, grammar_of, handshake_grammar
from stompy.frames.limits import DEFAULT_LIMITS, Limits
from stompy.frames.parser import Parser
from stompy.frames.version import NEGOTIABLE, Version
from stompy.protocol import rules
from stompy.protocol.heartbeat import HeartbeatOffer, Heartbeats
from stompy.protocol.negotiation import accept_version, highest_common, offered_by
from stompy.protocol.state import State, after


class ServerProtocol:
    """Decides what a client may say, and what the broker may answer.

    It holds what the protocol itself knows of a session: the version, the ids of subscriptions and open transactions.
    Octets come in through `parser` and `accept`, or `receive` for both; `connected`, `send` and `fail` return octets.

    Args:
        versions: the versions this server has; `(Version.DRAFT,)` alone speaks the 1.0-draft.
        heartbeat: what to put into the `heart-beat` header of CONNECTED.
        server: the value of the `server` header, `name/version`.
        leniency: deviations of the peer to bear with.
        limits: maxima for a frame of the client.
        require_host: refuse a 1.1 or 1.2 CONNECT without `host`.
    """

    def __init__(
        self,
        *,
        versions: Sequence[Version] = NEGOTIABLE,
        heartbeat: HeartbeatOffer | None = None,
        server: str | None = None,
        leniency: Leniency = Leniency.NONE,
        limits: Limits = DEFAULT_LIMITS,
        require_host: bool = False,
    ) -> None:
        self._versions = tuple(sorted(versions))
        self._draft = self._versions == (Version.DRAFT,)
        self._offer = heartbeat or HeartbeatOffer()
        self._server = server
        self._leniency = leniency
        self._require_host = require_host
        self.state = State.NEW
        self.version: Version | None = None
        self.heartbeats = Heartbeats()
        self.subscriptions: dict[str, str] = {}
        """Key of each live subscription to its ack mode; see `subscription_key`."""
        self.transactions: set[str] = set()
        """Ids of the open transactions."""
        self.error: RemoteProtocolError | None = None
        self.offender: Frame | None = None
        """The frame that `error` is about, where it is about one."""
        self.grammar: Grammar = grammar_of(Version.DRAFT) if self._draft else handshake_grammar(leniency)
        self.parser = Parser(self.grammar, limits, single=True)

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes and that may come now; look at `error` afterwards.

        The first frame is CONNECT; frames behind it wait in the parser until `connected` was called: then
        `receive(b"")` gives them.
        """
        frames = self.accept(self.parser.feed(data))
        if self.error is None:
            self.error = self.parser.error
        return frames

    def accept(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return those of `frames` that may come now, in order; stop at the first that may not and set `error`."""
        accepted: list[Frame] = []
        for frame in frames:
            try:
                self._accept(frame)
            except RemoteProtocolError as error:
                self.error, self.offender = error, frame
                break
            accepted.append(frame)
        return accepted

    def _accept(self, frame: Frame) -> None:
        command = frame.command
        version = self.version or self._versions[-1]
        if command not in rules.commands_of(version, client=True):
            raise RemoteProtocolError(f"unknown command {command!r} in STOMP {version}")
        state = after(self.state, command)
        if state is None:
            raise RemoteProtocolError(f"a {command} frame may not come when {self.state.value}")
        if state is State.CONNECTING:
            self._connect(frame)
        else:
            assert self.version is not None
            wrong = rules.violation(command, frame.headers.peek, self.version)
            if wrong is not None:
                raise RemoteProtocolError(wrong)
            self._check_ids(command, frame.headers.peek)
        self.state = state

    def _connect(self, frame: Frame) -> None:
        header = frame.headers.peek
        if self._draft:
            wrong = rules.violation("CONNECT", header, Version.DRAFT)
            if wrong is not None:
                raise RemoteProtocolError(wrong)
            self.version = Version.DRAFT
            return
        version = highest_common(self._versions, offered_by(header("accept-version")))
        if version is None:
            raise RemoteProtocolError(f"no common version: this broker speaks {accept_version(self._versions)}")
        if version is Version.V1_0:
            frame.headers = frame.headers.trimmed()
        elif frame.body:
            raise RemoteProtocolError(f"a {frame.command} frame must not have a body (Body)")
        elif self._require_host and header("host") is None:
            raise RemoteProtocolError(f"a {frame.command} frame needs a 'host' header in STOMP {version}")
        self.version = version
        if version.has_heartbeats:
            self.heartbeats = Heartbeats.agree(self._offer, HeartbeatOffer.parse(header("heart-beat")))

    def _check_ids(self, command: str, header: rules.Lookup) -> None:
        if command == "SUBSCRIBE":
            key = subscription_key(header)
            if key in self.subscriptions:
                raise RemoteProtocolError(f"there is already a subscription {_shown(key)}")
            self.subscriptions[key] = header("ack") or "auto"
        elif command == "UNSUBSCRIBE":
            key = subscription_key(header)
            if self.subscriptions.pop(key, None) is None:
                raise RemoteProtocolError(f"there is no subscription {_shown(key)}")
        transaction = header("transaction")
        if transaction is None or command not in _TRANSACTED:
            return
        if command == "BEGIN":
            if transaction in self.transactions:
                raise RemoteProtocolError(f"transaction {_shown(transaction)} is already open")
            self.transactions.add(transaction)
        elif transaction not in self.transactions:
            raise RemoteProtocolError(f"there is no open transaction {_shown(transaction)}")
        elif command in ("COMMIT", "ABORT"):
            self.transactions.discard(transaction)

    def connected(self, session: str) -> bytes:
        """Return the CONNECTED frame; what the client sends next is read by the agreed version.

        Args:
            session: a unique id of this session.
        """
        version = self.version
        if version is None or self.state is not State.CONNECTING:
            raise LocalProtocolError(f"CONNECTED may not be sent when {self.state.value}")
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
        """Return the octets of a MESSAGE or RECEIPT.

        Raises:
            LocalProtocolError: the session is not open, or a header is missing.
        """
        state = after(self.state, command)
        if state is None or self.version is None or command == "ERROR":
            raise LocalProtocolError(f"{command} may not be sent when {self.state.value}")
        wrong = rules.violation(command, headers.get, self.version)
        if wrong is not None:
            raise LocalProtocolError(wrong)
        return encode(command, headers.items(), body, grammar=self.grammar)

    def fail(self, message: str, *, offender: Frame | None = None, detail: str = "") -> bytes:
        """Return an ERROR frame; after it nothing may be sent and the stream must be closed.

        Args:
            message: a short description.
            offender: the client frame it is about; its `receipt` comes back as `receipt-id`.
            detail: more words for the body.
        """
        state = after(self.state, "ERROR")
        if state is None:
            raise LocalProtocolError(f"ERROR may not be sent when {self.state.value}")
        fields = {"message": message}
        handshake = self.grammar.handshake
        if handshake:
            # No escapes are agreed on yet, so the headers keep to characters that every version reads alike.
            fields["message"] = "".join(" " if char in ":\\\r\n\0" else char for char in message)
            fields["version"] = accept_version(self._versions)
        receipt = offender.headers.peek("receipt") if offender is not None and not handshake else None
        if receipt is not None:
            fields["receipt-id"] = receipt
        fields["content-type"] = "text/plain"
        about = f"The frame was {offender.command}.\n" if offender is not None else ""
        body = f"{message}\n{about}{detail}".encode("utf-8", "replace")
        data = encode("ERROR", fields.items(), body, grammar=self.grammar)
        self.state = state
        return data

    def end(self) -> None:
        """Note that the stream ended."""
        self.state = State.CLOSED


_TRANSACTED = frozenset(("SEND", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"))


def subscription_key(header: rules.Lookup) -> str:
    """Return what a subscription is known by: its id or, in 1.0, the destination where it has none.

    The two cannot be confused: an id is marked with `#`, a destination with `@`.
    """
    identity = header("id")
    return f"#{identity}" if identity is not None else f"@{header('destination')}"


def _shown(key: str) -> str:
    return repr(key[:80])
