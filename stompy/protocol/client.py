"""The client side of a session, without clock, socket or lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from stompy.errors import (
    LocalProtocolError,
    NotConnectedError,
    ProtocolError,
    RemoteProtocolError,
    VersionMismatchError,
)
from stompy.frames.encoder import encode
from stompy.frames.frame import Frame, trimmed
from stompy.frames.grammar import (
    DEFAULT_LIMITS,
    NEGOTIABLE,
    FrameLimits,
    Leniency,
    Version,
    grammar_of,
)
from stompy.frames.heads import Run, frames_of
from stompy.protocol import rules
from stompy.protocol.heartbeat import HeartbeatOffer, Heartbeats
from stompy.protocol.rules import accept_version, parse_accept_version
from stompy.protocol.state import (
    EVENTS,
    MAX_SUBSCRIPTIONS,
    MAX_TRANSACTIONS,
    TRANSITIONS,
    ProtocolEvent,
    ProtocolSide,
    State,
    next_state,
)

_RESERVED_HEADERS = frozenset(("accept-version", "heart-beat", "receipt"))


class ClientProtocol(ProtocolSide):
    """Check and encode the frames that the client sends, and check the frames that it receives.

    `connect` and `send` return the bytes to send. Received bytes go to `parser`, and the frames that it returns to
    `accept`; `receive` does both. Use it in one thread at a time; only `parser` may be used at the same time, by the
    reader thread.

    Args:
        versions: the versions to offer; `(Version.DRAFT,)` means the 1.0-draft.
        heartbeat: the `heart-beat` header to send.
        leniency: deviations of the broker to tolerate.
        leniency_for: returns further ones for the `server` header of CONNECTED.
        limits: limits of a frame of the broker.
        max_subscriptions: the maximum number of active subscriptions.
        max_transactions: the maximum number of open transactions.
        crlf: whether to end lines with CR LF if the version allows it.

    Raises:
        LocalProtocolError: `versions` is empty, or holds the 1.0-draft and others.
    """

    def __init__(
        self,
        *,
        versions: Sequence[Version] = NEGOTIABLE,
        heartbeat: HeartbeatOffer | None = None,
        leniency: Leniency = Leniency.NONE,
        leniency_for: Callable[[str | None], Leniency] | None = None,
        limits: FrameLimits = DEFAULT_LIMITS,
        max_subscriptions: int = MAX_SUBSCRIPTIONS,
        max_transactions: int = MAX_TRANSACTIONS,
        crlf: bool = False,
    ) -> None:
        super().__init__(versions, leniency, limits)
        self._offer = heartbeat or HeartbeatOffer()
        self._leniency_for = leniency_for or (lambda _: Leniency.NONE)
        self._crlf = crlf
        self._max_subscriptions = max_subscriptions
        self.max_transactions = max_transactions
        """The maximum number of open transactions."""
        self.server: str | None = None
        self.session: str | None = None
        self.error: ProtocolError | VersionMismatchError | None = None
        """The first protocol error, which ended the session; set by `accept`."""

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
            login: the login, if any.
            passcode: the passcode, if any.
            headers: further headers; none of the above, `accept-version`, `heart-beat` or `receipt`.
            command: `"CONNECT"`, or `"STOMP"` for a broker that knows this command.

        Raises:
            LocalProtocolError: it was called before, no offered version has `command`, or a header is reserved or
                cannot be encoded.
        """
        state = next_state(self.state, command)
        if state is not State.CONNECTING:
            raise LocalProtocolError(f"{rules.shown(command)} cannot be sent: {self.state.value} (Connecting)")
        if command not in rules.commands_of(self._versions[-1], client=True):
            raise LocalProtocolError(f"STOMP {self._versions[-1]} has no {command} frame (CONNECT or STOMP Frame)")
        fields = self._connect_fields(host, login, passcode)
        own = _RESERVED_HEADERS.union(fields)
        for name, value in (headers or {}).items():
            if name.lower() in own:
                what = f"header {rules.shown(name)} of a {command} frame"
                raise LocalProtocolError(f"{what} is set by stompy itself (CONNECT or STOMP Frame)")
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
        """Return the bytes of any other client frame, and move to the next state.

        Raises:
            NotConnectedError: there is no session, or DISCONNECT was sent.
            LocalProtocolError: the version does not have the command; a header is missing or cannot be encoded; an id
                is already in use, or there is no such open transaction.
            LimitExceededError: there are already too many subscriptions or transactions.
        """
        version = self.version
        if version is None:
            raise NotConnectedError(f"there is no session: {self.state.value}")
        if command not in rules.commands_of(version, client=True) or EVENTS[command] is ProtocolEvent.CONNECT:
            raise LocalProtocolError(
                f"{rules.shown(command)} is not a client frame of a STOMP {version} session (Client Frames)"
            )
        state = next_state(self.state, command)
        if state is None:
            raise NotConnectedError(f"{command} cannot be sent: {self.state.value}")
        wrong = rules.violation(command, headers.get, version)
        if wrong is None and command != "UNSUBSCRIBE":
            # Some brokers delete a durable subscription on an UNSUBSCRIBE without a SUBSCRIBE.
            wrong = self._ids.violation(command, headers.get)
        if wrong is not None:
            raise LocalProtocolError(str(wrong))
        self._ids.check_limits(
            command, max_subscriptions=self._max_subscriptions, max_transactions=self.max_transactions
        )
        crlf = self._crlf and version is Version.V1_2
        data = encode(command, headers.items(), body, grammar=self.grammar, content_length=content_length, crlf=crlf)
        self._ids.record(command, headers.get)
        self.state = state
        return data

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes and that are allowed now; check `error` afterwards."""
        if self.state is State.FAILED:
            return []
        frames = list(frames_of(self.accept(self.parser.read(data))))
        if frames and frames[0].command == "CONNECTED":
            frames += frames_of(self.accept(self.parser.read(b"")))
        return frames

    def accept(self, frames: Sequence[Frame | Run]) -> list[Frame | Run]:
        """Return those of `frames` that are allowed now, in order; stop at the first that is not, and set `error`.

        A protocol error that the parser found after these frames sets `error` too. Everything after an ERROR frame is
        ignored, as ERROR ends the session and some brokers continue to send.
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
                except (ProtocolError, VersionMismatchError) as error:
                    self._fail(error)
                else:
                    accepted.append(frame)
        if self.parser.error is not None and self.state is not State.FAILED:
            self._fail(self.parser.error)
        return accepted

    def _fail(self, error: ProtocolError | VersionMismatchError) -> None:
        self.error = error
        self.state = State.FAILED

    def _accepts(self, run: Run) -> bool:
        """Return whether all frames of a run are allowed and keep the state; if `False`, check each frame."""
        # The table itself, as this is done for each read.
        if self.version is None or TRANSITIONS[self.state].get(EVENTS[run.command]) is not self.state:
            return False
        return run.names.issuperset(rules.REQUIRED[self.version].get(run.command, ()))

    def _accept(self, frame: Frame) -> None:
        command = frame.command
        if command not in rules.commands_of(self._versions[-1], client=False):
            raise RemoteProtocolError(f"{command!r} is not a server command (Server Frames)")
        state = next_state(self.state, command)
        if state is None:
            raise RemoteProtocolError(f"a {command} frame is not allowed: {self.state.value} (Connecting)")
        if command == "CONNECTED":
            self._connected(frame)
        elif self.version is not None:
            wrong = rules.violation(command, frame.headers.get, self.version)
            if wrong is not None:
                raise wrong
        self.state = state

    def _connected(self, frame: Frame) -> None:
        version = Version.DRAFT if self._draft else self._agreed(frame.headers.get("version"))
        grammar = grammar_of(version, self._leniency | self._leniency_for(frame.headers.get("server")))
        if version is Version.V1_0:
            frame.headers = trimmed(frame.headers)
        header = frame.headers.get
        wrong = rules.violation("CONNECTED", header, version) or rules.body_violation(frame, grammar)
        if wrong is not None:
            raise wrong
        if version.has_heartbeats:
            self.heartbeats = Heartbeats.agree(self._offer, HeartbeatOffer.parse(header("heart-beat")))
        self.version = version
        self.server = header("server")
        self.session = header("session")
        self.grammar = grammar
        self.parser.switch(grammar)

    def _agreed(self, value: str | None) -> Version:
        # A 1.0 server may pad the value with spaces, and only the value tells that the server speaks 1.0.
        chosen = "1.0" if value is None else value.strip(" ")
        version = next((version for version in self._versions if version.value == chosen), None)
        if version is not None:
            return version
        names = [version.value for version in self._versions]
        if value is None:
            message = f"no STOMP version in common: offered {', '.join(names)}, the broker supports only 1.0"
            raise VersionMismatchError(message, offered=names, supported=("1.0",))
        offered = ", ".join(names)
        raise RemoteProtocolError(
            f"the broker chose version {rules.shown(value)}, offered were {offered} (Protocol Negotiation)"
        )


def explain_refusal(frame: Frame, offered: Sequence[Version]) -> tuple[str, VersionMismatchError | None]:
    """Return the error message of an ERROR in reply to CONNECT, and a `VersionMismatchError` if that is the reason."""
    message = error_message(frame)
    supported = frame.headers.get("version")
    if supported is None or set(parse_accept_version(supported)) & set(offered):
        return message, None
    names = [version.value for version in offered]
    listed = [item.strip() for item in supported.split(",")]
    return message, VersionMismatchError(
        f"no STOMP version in common: offered {', '.join(names)}, the broker supports {', '.join(listed)} ({message})",
        offered=names,
        supported=listed,
    )


def error_message(frame: Frame) -> str:
    """Return the error message of an ERROR frame: its `message` header and the first line of its body, truncated."""
    head = frame.headers.get("message", "").strip()
    first = frame.body.decode("utf-8", "replace").strip().split("\n", 1)[0].strip()
    if not head or _letters(head) == _letters(first):
        message = first  # the header is the same without the characters that it cannot hold
    elif not first or _letters(head) in _letters(first):
        message = head  # the body adds only the name of a Java class
    else:
        message = f"{head}: {first}"
    return message[:400] or "the broker sent an ERROR without an error message"


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text)
