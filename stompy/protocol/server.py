"""The broker's end of a conversation, without a clock, a socket or a lock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.encoder import encode
from stompy.frames.frame import Frame
from stompy.frames.grammar import (
    DEFAULT_LIMITS,
    NEGOTIABLE,
    Grammar,
    Leniency,
    Limits,
    Version,
    grammar_of,
    handshake_grammar,
)
from stompy.frames.parser import Parser
from stompy.protocol import rules
from stompy.protocol.heartbeat import HeartbeatOffer, Heartbeats
from stompy.protocol.rules import accept_version, highest_common, offered_by, speakable
from stompy.protocol.state import EVENTS, Event, SessionIds, State, after, ended

_SERVER_VALUE = re.compile(r"[^ /:\\\x00-\x1f]+(/[^ :\\\x00-\x1f]+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE = re.compile(r"[:\\\x00-\x1f\x7f]")
_UNSAFE_IN_1_0 = re.compile(r"[\\\x00-\x1f\x7f]")


class ServerProtocol:
    """Decides what a client may say, and what the broker may answer.

    It holds what the protocol itself knows of a session: the version, the ids of subscriptions and open transactions.
    Octets come in through `parser` and `accept`, or `receive` for both; `connected`, `send` and `fail` return octets.

    Args:
        versions: the versions this server has; `(Version.DRAFT,)` alone speaks the 1.0-draft.
        heartbeat: what to put into the `heart-beat` header of CONNECTED.
        server: the value of the `server` header, `name` or `name/version`.
        leniency: deviations of the peer to bear with.
        limits: maxima for a frame of the client.
        require_host: refuse a 1.1 or 1.2 CONNECT without `host`.

    Raises:
        LocalProtocolError: no version, or a `server` that is not a name.
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
        self._versions = speakable(versions)
        self._draft = self._versions == (Version.DRAFT,)
        self._offer = heartbeat or HeartbeatOffer()
        if server is not None and not _SERVER_VALUE.fullmatch(server):
            raise LocalProtocolError(f"a server is named name/version, not {rules.shown(server)} (CONNECTED Frame)")
        self._server = server
        self._leniency = leniency
        self._require_host = require_host
        self.state = State.NEW
        self.version: Version | None = None
        self.heartbeats = Heartbeats()
        self._ids = SessionIds()
        self.subscriptions = self._ids.subscriptions
        """Key of each live subscription to its ack mode; see `ids.subscription_key`."""
        self.transactions = self._ids.transactions
        """Ids of the open transactions."""
        self.error: RemoteProtocolError | None = None
        """The offence that ended the conversation: set by the `accept` that met it, and never replaced."""
        self.offender: Frame | None = None
        """The frame that `error` is about, where it is about one."""
        self.grammar: Grammar = grammar_of(Version.DRAFT) if self._draft else handshake_grammar(leniency)
        self.parser = Parser(self.grammar, limits, single=True)

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes and that may come now; look at `error` afterwards.

        The first frame is CONNECT; frames behind it wait in the parser until `connected` was called: then
        `receive(b"")` gives them.
        """
        return [] if self._over else self.accept(self.parser.feed(data))

    def accept(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return those of `frames` that may come now, in order; stop at the first that may not and set `error`.

        An offence that the parser met behind them counts too. After `fail` whatever the client says is passed over.
        """
        accepted: list[Frame] = []
        for frame in frames:
            if self._over:
                break
            try:
                self._accept(frame)
            except RemoteProtocolError as error:
                self.error, self.offender = error, frame
            else:
                accepted.append(frame)
        if not self._over:
            self.error = self.parser.error
        return accepted

    @property
    def _over(self) -> bool:
        return self.error is not None or self.state is State.FAILED

    def _accept(self, frame: Frame) -> None:
        command = frame.command
        version = self.version or self._versions[-1]
        if command not in rules.commands_of(version, client=True):
            raise RemoteProtocolError(f"unknown command {command!r} in STOMP {version} (Client Frames)")
        state = after(self.state, command)
        if state is None:
            raise RemoteProtocolError(f"a {command} frame may not come when {self.state.value} (Connecting)")
        if state is State.CONNECTING:
            self._connect(frame)
        else:
            header = frame.headers.peek
            wrong = rules.violation(command, header, version) or self._ids.violation(command, header)
            if wrong is not None:
                raise RemoteProtocolError(wrong)
            self._ids.note(command, header)
        self.state = state

    def _connect(self, frame: Frame) -> None:
        version = Version.DRAFT if self._draft else self._common(frame.headers.peek("accept-version"))
        if version is Version.V1_0:
            frame.headers = frame.headers.trimmed()
        header = frame.headers.peek
        wrong = rules.violation(frame.command, header, version)
        wrong = wrong or rules.body_violation(frame, grammar_of(version, self._leniency))
        if wrong is None and self._require_host and version.has_heartbeats and header("host") is None:
            wrong = f"a {frame.command} frame needs a 'host' header in STOMP {version} (CONNECT or STOMP Frame)"
        if wrong is not None:
            raise RemoteProtocolError(wrong)
        if version.has_heartbeats:
            self.heartbeats = Heartbeats.agree(self._offer, HeartbeatOffer.parse(header("heart-beat")))
        self.version = version

    def _common(self, offered: str | None) -> Version:
        version = highest_common(self._versions, offered_by(offered))
        if version is not None:
            return version
        asked = "no accept-version, so 1.0," if offered is None else f"accept-version {rules.shown(offered)}"
        ours = accept_version(self._versions)
        raise RemoteProtocolError(f"no common version: {asked} was asked of a broker of {ours} (Protocol Negotiation)")

    def connected(self, session: str) -> bytes:
        """Return the CONNECTED frame; what the client sends next is read by the agreed version.

        Args:
            session: a unique id of this session, without colon, backslash and control characters, since some peers
                read escapes in this frame and some do not.

        Raises:
            LocalProtocolError: no CONNECT was accepted, or it was answered already; not such a `session`.
        """
        version = self.version
        if version is None or self.state is not State.CONNECTING:
            raise LocalProtocolError(f"CONNECTED may not be sent when {self.state.value} (Connecting)")
        if _UNSAFE.search(session):
            raise LocalProtocolError(f"peers may misread the session id {rules.shown(session)} (Value Encoding)")
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
            LocalProtocolError: the session is not open, a header is missing, or the version cannot write one of them.
        """
        if EVENTS.get(command) is not Event.SERVER_FRAME:
            raise LocalProtocolError(f"{rules.shown(command)} is neither MESSAGE nor RECEIPT (Server Frames)")
        if self.version is None or after(self.state, command) is None:
            raise LocalProtocolError(f"{command} may not be sent when {self.state.value} (Connecting)")
        wrong = rules.violation(command, headers.get, self.version)
        if wrong is None and command == "MESSAGE" and self._lacks_ack(headers):
            wrong = "a MESSAGE that waits for an ACK needs an 'ack' header in STOMP 1.2 (MESSAGE)"
        if wrong is not None:
            raise LocalProtocolError(wrong)
        return encode(command, headers.items(), body, grammar=self.grammar)

    def _lacks_ack(self, headers: Mapping[str, str]) -> bool:
        if self.version is not Version.V1_2 or "ack" in headers:
            return False
        return self.subscriptions.get(f"#{headers['subscription']}", "auto") != "auto"

    def fail(self, message: str, *, offender: Frame | None = None, detail: str = "") -> bytes:
        """Return an ERROR frame; after it nothing may be sent and the stream must be closed.

        Args:
            message: a short description; in the header each control character becomes a space.
            offender: the client frame it is about; its `receipt` comes back as `receipt-id`.
            detail: more words for the body.

        Raises:
            LocalProtocolError: ERROR was sent already, or the stream has ended.
        """
        state = after(self.state, "ERROR")
        if state is None:
            raise LocalProtocolError(f"ERROR may not be sent when {self.state.value} (Connecting)")
        handshake = self.grammar.handshake
        text = message.encode("utf-8", "replace").decode("utf-8")
        # A client that is refused after a good CONNECT reads by the version that this CONNECT settled.
        grammar = self.grammar if self.version is None else grammar_of(self.version, self._leniency)
        fields = {"message": self._unsafe(grammar).sub(" ", text).strip(" ")}
        if handshake:
            fields["version"] = accept_version(self._versions)
        receipt = offender.headers.peek("receipt") if offender is not None and not handshake else None
        # A 1.0 value that ends with CR can be read but not written: its reader would take the CR for the line end.
        if receipt is not None and (self.grammar.escapes or not receipt.endswith("\r")):
            fields["receipt-id"] = receipt
        fields["content-type"] = "text/plain"
        about = f"The frame was {offender.command}.\n" if offender is not None else ""
        body = f"{text}\n{about}{detail}".encode("utf-8", "replace")
        data = encode("ERROR", fields.items(), body, grammar=grammar)
        self.state = state
        return data

    def _unsafe(self, grammar: Grammar) -> re.Pattern[str]:
        """Return what must not stand in a header of an ERROR: what some reader of it would take for something else."""
        if not self.grammar.handshake or (grammar.escapes and not grammar.handshake):
            return _CONTROL
        # Many readers look for escapes before they know the version; a colon in a value is plain to all that have none.
        return _UNSAFE if grammar.handshake else _UNSAFE_IN_1_0

    def end(self) -> None:
        """Note that the stream ended, and forget what was kept for it."""
        self.state = ended(self.state)
        self._ids.clear()
        self.parser.drop()
