"""The client's end of a conversation, without a clock, a socket or a lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from stompy.errors import LocalProtocolError, NotConnected, ProtocolError, RemoteProtocolError, VersionMismatch
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
from stompy.frames.learned import Run, frames_of
from stompy.frames.parser import Parser
from stompy.protocol import rules
from stompy.protocol.heartbeat import HeartbeatOffer, Heartbeats
from stompy.protocol.rules import accept_version, offered_by, speakable
from stompy.protocol.state import EVENTS, MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS, Event, SessionIds, State, after, ended

_NEVER_BY_HAND = frozenset(("accept-version", "heart-beat", "receipt"))


class ClientProtocol:
    """Decides what the client may send and believes what it may receive.

    Frames go out through `connect` and `send`, which return octets. Octets come in through `parser`, and the frames it
    gives through `accept`; `receive` does both. One thread at a time, except that `parser` belongs to the reader alone.

    Args:
        versions: the versions to offer; `(Version.DRAFT,)` alone speaks the 1.0-draft.
        heartbeat: what to put into the `heart-beat` header.
        leniency: deviations of the peer to bear with.
        leniency_for: adds more of them, by the `server` header of CONNECTED.
        limits: maxima for a frame of the broker.
        max_subscriptions: live subscriptions at most.
        max_transactions: open transactions at most.
        crlf: end lines with CR LF where the version allows it.
    """

    def __init__(
        self,
        *,
        versions: Sequence[Version] = NEGOTIABLE,
        heartbeat: HeartbeatOffer | None = None,
        leniency: Leniency = Leniency.NONE,
        leniency_for: Callable[[str | None], Leniency] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        max_subscriptions: int = MAX_SUBSCRIPTIONS,
        max_transactions: int = MAX_TRANSACTIONS,
        crlf: bool = False,
    ) -> None:
        self._versions = speakable(versions)
        self._draft = self._versions == (Version.DRAFT,)
        self._offer = heartbeat or HeartbeatOffer()
        self._leniency = leniency
        self._leniency_for = leniency_for or (lambda _: Leniency.NONE)
        self._crlf = crlf
        self.state = State.NEW
        self.version: Version | None = None
        """The version agreed on; `None` before CONNECTED."""
        self.heartbeats = Heartbeats()
        """What was agreed on heart-beats."""
        self._ids = SessionIds()
        self._max_subscriptions = max_subscriptions
        self._max_transactions = max_transactions
        self.server: str | None = None
        self.session: str | None = None
        self.error: ProtocolError | VersionMismatch | None = None
        """The offence that ended the conversation: set by the `accept` that met it, and never replaced."""
        self.grammar: Grammar = grammar_of(Version.DRAFT) if self._draft else handshake_grammar(leniency)
        self.parser = Parser(self.grammar, limits, single=True)

    def connect(
        self,
        *,
        host: str,
        login: str | None = None,
        passcode: str | None = None,
        headers: Mapping[str, str] | None = None,
        command: str = "CONNECT",
    ) -> bytes:
        """Return the CONNECT frame.

        Args:
            host: the virtual host (STOMP 1.2, CONNECT or STOMP Frame).
            login: sent where given.
            passcode: sent where given.
            headers: further headers; none of the protocol's own, and no `receipt`, since CONNECTED is the answer.
            command: `"STOMP"` only reaches servers that know it.

        Raises:
            LocalProtocolError: asked twice, or a header cannot be written.
        """
        state = after(self.state, command)
        if state is not State.CONNECTING:
            raise LocalProtocolError(f"{rules.shown(command)} may not be sent when {self.state.value} (Connecting)")
        if command not in rules.commands_of(self._versions[-1], client=True):
            raise LocalProtocolError(f"STOMP {self._versions[-1]} has no {command} frame (CONNECT or STOMP Frame)")
        fields = self._connect_fields(host, login, passcode)
        own = _NEVER_BY_HAND.union(fields)
        for name, value in (headers or {}).items():
            if name.lower() in own:
                what = f"header {rules.shown(name)} of a {command} frame"
                raise LocalProtocolError(f"{what} cannot be given by hand (CONNECT or STOMP Frame)")
            fields[name] = value
        data = encode(command, fields.items(), grammar=self.grammar)
        self.state = state
        return data

    def _connect_fields(self, host: str, login: str | None, passcode: str | None) -> dict[str, str]:
        if self._draft:
            return {"username": login or "", "passcode": passcode or ""}
        fields = {"accept-version": accept_version(self._versions), "host": host}
        if login is not None:
            fields["login"] = login
        if passcode is not None:
            fields["passcode"] = passcode
        if self._versions[-1].has_heartbeats and (self._offer.send_ms or self._offer.receive_ms):
            fields["heart-beat"] = str(self._offer)
        return fields

    def send(
        self, command: str, headers: Mapping[str, str], body: bytes = b"", *, content_length: bool = True
    ) -> bytes:
        """Return the octets of any other client frame, and move to the state behind it.

        Raises:
            NotConnected: there is no session, or DISCONNECT was sent.
            LocalProtocolError: the version does not have the command; a header is missing or cannot be written; an id
                is taken, or names no open transaction.
            LimitExceeded: there are too many subscriptions or transactions already.
        """
        version = self.version
        if version is None:
            raise NotConnected(f"there is no session: {self.state.value}")
        if command not in rules.commands_of(version, client=True) or EVENTS[command] is Event.CONNECT:
            raise LocalProtocolError(f"{rules.shown(command)} is no frame of a STOMP {version} session (Client Frames)")
        state = after(self.state, command)
        if state is None:
            raise NotConnected(f"{command} cannot be sent: {self.state.value}")
        wrong = rules.violation(command, headers.get, version)
        if wrong is None and command != "UNSUBSCRIBE":
            # Brokers take an UNSUBSCRIBE without a SUBSCRIBE for the order to delete a durable subscription.
            wrong = self._ids.violation(command, headers.get)
        if wrong is not None:
            raise LocalProtocolError(wrong)
        self._ids.check_room(
            command, max_subscriptions=self._max_subscriptions, max_transactions=self._max_transactions
        )
        crlf = self._crlf and version is Version.V1_2
        data = encode(command, headers.items(), body, grammar=self.grammar, content_length=content_length, crlf=crlf)
        self._ids.note(command, headers.get)
        self.state = state
        return data

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes and that may come now; look at `error` afterwards."""
        if self.state is State.FAILED:
            return []
        frames = list(frames_of(self.accept(self.parser.read(data))))
        if frames and frames[0].command == "CONNECTED":
            frames += frames_of(self.accept(self.parser.read(b"")))
        return frames

    def accept(self, frames: Sequence[Frame | Run]) -> list[Frame | Run]:
        """Return those of `frames` that may come now, in order; stop at the first that may not and set `error`.

        An offence that the parser met behind them counts too. Whatever follows an ERROR frame is passed over, as the
        ERROR is what ended the session and some brokers go on talking.
        """
        accepted: list[Frame | Run] = []
        for item in frames:
            if isinstance(item, Run) and self._accepts(item):
                accepted.append(item)
                continue
            for frame in frames_of([item]):
                if self.state is State.FAILED:
                    break
                try:
                    self._accept(frame)
                except (ProtocolError, VersionMismatch) as error:
                    self._fail(error)
                else:
                    accepted.append(frame)
        if self.parser.error is not None and self.state is not State.FAILED:
            self._fail(self.parser.error)
        return accepted

    def _fail(self, error: ProtocolError | VersionMismatch) -> None:
        self.error = error
        self.state = State.FAILED

    def _accepts(self, run: Run) -> bool:
        """Return whether every frame of a run is surely as it should be and leaves the state as it is."""
        if self.version is None or after(self.state, run.command) is not self.state:
            return False
        return run.names.issuperset(rules.REQUIRED[self.version].get(run.command, ()))

    def _accept(self, frame: Frame) -> None:
        command = frame.command
        if command not in rules.commands_of(self._versions[-1], client=False):
            raise RemoteProtocolError(f"{command!r} is not a command of a server (Server Frames)")
        state = after(self.state, command)
        if state is None:
            raise RemoteProtocolError(f"a {command} frame may not come when {self.state.value} (Connecting)")
        if command == "CONNECTED":
            self._connected(frame)
        elif self.version is not None:
            wrong = rules.violation(command, frame.headers.peek, self.version)
            if wrong is not None:
                raise RemoteProtocolError(wrong)
        self.state = state

    def _connected(self, frame: Frame) -> None:
        version = Version.DRAFT if self._draft else self._agreed(frame.headers.peek("version"))
        grammar = grammar_of(version, self._leniency | self._leniency_for(frame.headers.peek("server")))
        if version is Version.V1_0:
            frame.headers = frame.headers.trimmed()
        header = frame.headers.peek
        wrong = rules.violation("CONNECTED", header, version) or rules.body_violation(frame, grammar)
        if wrong is not None:
            raise RemoteProtocolError(wrong)
        if version.has_heartbeats:
            self.heartbeats = Heartbeats.agree(self._offer, HeartbeatOffer.parse(header("heart-beat")))
        self.version = version
        self.server = header("server")
        self.session = header("session")
        self.grammar = grammar
        self.parser.switch(grammar)

    def _agreed(self, value: str | None) -> Version:
        # A 1.0 server may pad the value, and that it is one is only known from it.
        chosen = "1.0" if value is None else value.strip(" ")
        version = next((version for version in self._versions if version.value == chosen), None)
        if version is not None:
            return version
        names = [version.value for version in self._versions]
        if value is None:
            message = f"no STOMP version in common: offered {', '.join(names)}, the broker speaks 1.0 only"
            raise VersionMismatch(message, offered=names, supported=("1.0",))
        offered = ", ".join(names)
        raise RemoteProtocolError(f"the broker chose version {rules.shown(value)} of {offered} (Protocol Negotiation)")

    def end(self) -> None:
        """Note that the stream ended."""
        self.state = ended(self.state)


def refusal(frame: Frame, offered: Sequence[Version]) -> tuple[str, VersionMismatch | None]:
    """Return why an ERROR came instead of CONNECTED: its words, and a `VersionMismatch` where that is the reason."""
    words = error_text(frame)
    supported = frame.headers.get("version")
    if supported is None or set(offered_by(supported)) & set(offered):
        return words, None
    names = [version.value for version in offered]
    listed = [item.strip() for item in supported.split(",")]
    return words, VersionMismatch(
        f"no STOMP version in common: offered {', '.join(names)}, the broker has {', '.join(listed)} ({words})",
        offered=names,
        supported=listed,
    )


def error_text(frame: Frame) -> str:
    """Return the words of an ERROR frame: its `message` header and the first line of its body, cut."""
    head = frame.headers.get("message", "").strip()
    first = frame.body.decode("utf-8", "replace").strip().split("\n", 1)[0].strip()
    if not head or _letters(head) == _letters(first):
        words = first  # a header that must not hold some characters says the same with less
    elif not first or _letters(head) in _letters(first):
        words = head  # the body begins with the name of a Java class
    else:
        words = f"{head}: {first}"
    return words[:400] or "the broker sent an ERROR without words"


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text)
