"""The console of a broker: where it listens, the page that it serves, and the requests of the page.

Over HTTP a browser with the token gets one page, and each request is checked. The page is a STOMP client over
WebSocket. Beside the frames of any client, it sends requests to `CONSOLE`, in JSON: an object with the name of a call
and its arguments, such as `{"call": "purge", "queue": "/queue/a"}`. The reply is `{"result": ...}` or
`{"error": "..."}`. The calls are the methods of `Management`, and two that watch: messages as they arrive at a
destination, and the frames of a connection. A watch keeps the latest messages or frames. When it was not read for a
while, it ends with the next thing that it would note, or when another one is read; the broker does nothing for watches
while there is none.

Locks: the router's guards the watches; the deque of a watch of frames is filled by the session's threads, and is
thread-safe.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import itertools
import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stompy.broker.acceptor import Acceptor
from stompy.broker.commands import Commands
from stompy.broker.destinations import Target, is_topic, targets_of
from stompy.broker.profile import OWN, subscribe_options
from stompy.broker.publisher import origin_of
from stompy.broker.queues import COUNTED, DestinationCounts
from stompy.broker.topology import DestinationRow, Patterns
from stompy.errors import ConfigurationError, NotConnectedError, RemoteProtocolError, StompError
from stompy.frames.encoder import encode
from stompy.frames.frame import Frame, Pairs, is_secret
from stompy.frames.grammar import NEGOTIABLE, Leniency
from stompy.printable import printable
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.rules import subprotocols
from stompy.transport.address import host_port
from stompy.transport.tcp import TcpListener
from stompy.transport.websocket.endpoints import WebSocketListener
from stompy.transport.websocket.handshake import END, HandshakePolicy, HandshakeRefused, parse_head, told_apart
from stompy.world import secrets, time

if TYPE_CHECKING:
    from stompy.broker.management import Management, QueuedMessage
    from stompy.broker.message import StoredMessage
    from stompy.broker.router import BrokerRouter
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import FrameHook, Settings
    from stompy.deadline import Deadline

_SCRIPTS = ("stomp", "dom", "store", "table", "messages", "live", "detail", "main")
"""The parts of the page's script, in their order."""

_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src ws://{host}; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
"""What the page may do: run its own script and connect to its own console; it cannot write markup into itself."""

_HEADERS = (
    "Content-Type: text/html; charset=utf-8",
    "Cache-Control: no-store",
    "Connection: close",
    "Cross-Origin-Opener-Policy: same-origin",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
    "X-Frame-Options: DENY",
)


class Site:
    """Responds to the requests that reach the console.

    The name that a browser was given must be one of this machine, or a page of another site could reach the console
    by a name that leads here (DNS rebinding); the page that asks must be the console's own; and the path begins with
    the token.

    Args:
        port: where it listens.
        token: the first part of every path.
    """

    def __init__(self, port: int, token: str) -> None:
        shown = ("", ":80") if port == 80 else (f":{port}",)  # browsers leave the usual port out
        self._hosts = {name + end for name in ("127.0.0.1", "localhost", "[::1]") for end in shown}
        self._token = token.encode()

    def respond(self, head: bytes) -> bytes | None:
        """Return the response to a request; `None` where it may go on as one for a WebSocket.

        Raises:
            HandshakeRefused: it is refused.
        """
        target, headers = parse_head(head)
        host = headers["host"][0].lower()
        if host not in self._hosts:
            raise HandshakeRefused(403, "the console is reached by the names of its own machine only")
        own = f"http://{host}"
        (origin,) = headers.get("origin", [own])
        if origin != own:
            message = f"a page of another origin has no access to the console: it is {printable(origin)!r}, not {own!r}"
            raise HandshakeRefused(403, message + told_apart(origin, [own]))
        token, _, name = target.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("latin-1"), self._token):
            raise HandshakeRefused(403, "the address lacks the token: take the one that the broker has printed")
        if name == "stomp":
            return None
        if name:
            raise HandshakeRefused(404, "the console is one page")
        body, policy = page()
        lines = ["HTTP/1.1 200 OK", *_HEADERS, f"Content-Length: {len(body)}"]
        lines.append(f"Content-Security-Policy: {policy.replace('{host}', host)}")
        return "\r\n".join(lines).encode("ascii") + END + body


@functools.cache
def page() -> tuple[bytes, str]:
    """Return the page and its policy, in which `{host}` is left to be filled in."""
    parts = resources.files(__package__) / "page"
    style = (parts / "style.css").read_text(encoding="utf-8")
    scripts = [(parts / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    script = '\n"use strict";\n(() => {\n' + "\n".join(scripts) + "})();\n"
    text = (parts / "page.html").read_text(encoding="utf-8")
    body = text.replace("{style}", style).replace("{script}", script)
    return body.encode(), _POLICY.replace("{script}", _hash(script)).replace("{style}", _hash(style))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


Kind: TypeAlias = Literal["message", "received", "sent"]
"""A message, or the direction of a frame."""

KEPT = 100
"""Messages, or frames, that a watch keeps."""
SHOWN = 2048
"""Bytes of a body that it keeps."""
UNREAD = 5.0
"""Seconds after which a watch that nobody reads ends."""


class Watch:
    """Keeps the latest messages of a destination, or frames of a session.

    Args:
        unread: seconds after which it is over, unless it is read.
    """

    def __init__(self, unread: float) -> None:
        self._kept: deque[tuple[dict[str, object], Callable[[], Pairs], bytes, int]] = deque(maxlen=KEPT)
        self._unread = unread
        self._read_at = time.monotonic()
        self.seen = 0

    @property
    def over(self) -> bool:
        """Whether it was not read for so long."""
        return time.monotonic() >= self._read_at + self._unread

    def note(self, kind: Kind, command: str, headers: Callable[[], Pairs], body: bytes) -> None:
        """Note a message or a frame; `headers` returns its headers. On any thread of the broker."""
        self.seen += 1
        about: dict[str, object] = {"number": self.seen, "moment": time.time(), "kind": kind, "command": command}
        self._kept.append((about, headers, body[:SHOWN], len(body)))

    def read(self) -> dict[str, object]:
        """Return the messages or frames since the last call, or the latest of them, and how many there were in all.

        Each has its number among them, its moment in seconds since the epoch, its kind, command and headers, where
        secret ones are masked, and the start of its body.
        """
        self._read_at, passed = time.monotonic(), []
        while self._kept:
            about, headers, body, size = self._kept.popleft()
            passed.append({**about, "headers": masked(headers()), **_body(body, size)})
        return {"total": self.seen, "passed": passed}


class Watches:
    """The watches of a broker.

    Args:
        router: the broker's state.
        unread: seconds after which an unread watch ends.
    """

    def __init__(self, router: BrokerRouter, *, unread: float = UNREAD) -> None:
        self._router = router
        self._unread = unread
        self._watches: dict[tuple[object, ...], tuple[Watch, Callable[[], None]]] = {}
        """By reader and arguments, each with a function that ends it."""
        self._hooks: dict[SessionState, list[FrameHook]] = {}

    def messages(self, reader: str, target: Target, *, selector: str, text: str) -> Watch:
        """Return a reader's watch of a destination, which is new where it has none such; with the router's lock.

        Raises:
            RemoteProtocolError: the selector is invalid.
        """
        condition, part = subscribe_options({"selector": selector}.get, prefetch=1).selector, text.encode()
        fitting: Patterns[bool] = Patterns()
        if target.pattern:
            fitting.add(target.name, True)
        publisher = self._router.publisher

        def begin(watch: Watch) -> Callable[[], None]:
            def tap(name: str, message: StoredMessage) -> None:
                head, body = message.shared, message.body
                if watch.over:
                    self._end_unread()
                elif name != target.name and not any(fitting.matching(name)):
                    return
                elif (part in head.data or part in body) and (condition is None or condition.matches(head.lookup)):
                    watch.note("message", "MESSAGE", lambda: tuple(head.pairs()), body)

            def end() -> None:
                publisher.taps = tuple(one for one in publisher.taps if one is not tap)

            publisher.taps += (tap,)
            return end

        return self._watch((reader, target, selector, text), begin)

    def frames(self, reader: str, session: SessionState) -> Watch:
        """Return a reader's watch of a session, which is new where it has none; with the router's lock."""

        def begin(watch: Watch) -> Callable[[], None]:
            def note(direction: Literal["received", "sent"], name: str, frame: Frame) -> None:
                if watch.over:
                    with self._router.turn():
                        self._end_unread()
                headers = frame.headers  # alone, as the watch does not keep the whole body
                watch.note(direction, frame.command, lambda: headers.pairs, frame.body)

            def end() -> None:
                hooks.remove(note)
                session.watch(*hooks)
                if not hooks:
                    del self._hooks[session]

            hooks = self._hooks.setdefault(session, [])
            hooks.append(note)
            session.watch(*hooks)
            return end

        return self._watch((reader, session), begin)

    def _watch(self, key: tuple[object, ...], begin: Callable[[Watch], Callable[[], None]]) -> Watch:
        self._end_unread()
        if key not in self._watches:
            watch = Watch(self._unread)
            self._watches[key] = watch, begin(watch)
        return self._watches[key][0]

    def _end_unread(self) -> None:
        for key, (watch, end) in list(self._watches.items()):
            if watch.over:
                del self._watches[key]
                end()


def masked(pairs: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return headers with the values of secret ones replaced, such as that of `passcode`."""
    return tuple((name, "***" if is_secret(name) else value) for name, value in pairs)


_LOG = logging.getLogger("stompy.broker")

CONSOLE = "/console"
"""The destination of requests."""

_PAGE = 100
"""Messages that `browse` returns at most."""
_LARGEST = 256 * 1024
"""Bytes of a body that `message` returns at most."""


class Calls:
    """Answers the requests of the console.

    Args:
        management: of the broker.
        router: its state.
        own: the start of the ids of the console's own sessions, which are not shown.
        server: the broker's name for itself.
    """

    def __init__(self, management: Management, router: BrokerRouter, *, own: str, server: str) -> None:
        self._management = management
        self._router = router
        self._own = own
        self._server = server
        self.watches = Watches(router)
        self._calls: dict[str, Callable[..., object]] = {
            "overview": self._overview,
            "browse": self._browse,
            "message": self._message,
            "frames": self._frames,
            "tail": self._tail,
            **{name: getattr(management, name) for name in ("purge", "move", "retry", "pause", "resume", "kill")},
        }

    def answer(self, session: str, request: bytes) -> bytes:
        """Return the reply to a request; without the router's lock.

        Args:
            session: the name of the page's session.
            request: JSON.
        """
        try:
            asked: dict[str, Any] = json.loads(request)
            call = self._calls[asked.pop("call")]
            if "numbers" in asked:
                asked["numbers"] = {int(number) for number in asked["numbers"]}
            reader = {"reader": session} if call in (self._frames, self._tail) else {}
            reply: dict[str, object] = {"result": call(**asked, **reader)}
        except StompError as error:
            reply = {"error": str(error)}
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            _LOG.debug("a wrong request to the console: %r", error)
            reply = {"error": "the request is not understood"}
        return json.dumps(reply, separators=(",", ":")).encode()

    def _overview(self) -> dict[str, object]:
        """Return everything that the lists of the console show."""
        stats = self._management.stats()
        router, own = self._router, f"/{self._own}"
        with router.turn():
            topology = router.topology
            lists = {
                "queues": [row for row in topology.queue_rows() if own not in row.name],
                "topics": topology.topic_rows(),
                "durables": topology.durable_rows(),
            }
            rows = {kind: [(*row[:-1], *COUNTED(row.counts)) for row in listed] for kind, listed in lists.items()}
        connections = [asdict(one) for one in self._management.connections() if not one.session.startswith(self._own)]
        counters = ("messages_in", "messages_out", "redelivered", "dead_lettered", "expired", "discarded", "errors")
        return {
            "server": self._server,
            "moment": time.monotonic(),
            "counters": {name: getattr(stats, name) for name in counters},
            "scheduled": stats.scheduled,
            "dead_letters": sum(row.ready + row.unacked for row in lists["queues"] if row.counts.letters),
            "columns": (*DestinationRow._fields[:-1], *DestinationCounts.__annotations__),
            **rows,
            "connections": connections,
        }

    def _browse(self, queue: str, start: int = 0) -> list[dict[str, object]]:
        found = self._management.browse(queue, start=max(0, int(start)), limit=_PAGE)
        return [_shown(message, SHOWN // 8) for message in found]

    def _message(self, queue: str, number: int) -> dict[str, object]:
        """Return one message with its body."""
        found = self._management.browse(queue, numbers={number})
        if not found:
            raise ConfigurationError("the message is not in the queue any more")
        return _shown(found[0], _LARGEST)

    def _tail(self, destination: str, reader: str, text: str = "", selector: str = "") -> dict[str, object]:
        """Return the messages of a destination since the last call with these arguments."""
        target, *others = targets_of(destination, "")
        if not destination or others or (target.pattern and not is_topic(target.name)):
            raise ConfigurationError(f"{destination!r} is neither a queue nor a topic, nor a pattern of topics")
        with self._router.turn():
            return self.watches.messages(reader, target, selector=selector, text=text).read()

    def _frames(self, connection: str, reader: str) -> dict[str, object]:
        """Return the frames of a connection since the last call."""
        with self._router.turn():
            for state in self._router.connected:
                if state.name == connection:
                    return self.watches.frames(reader, state).read()
        raise ConfigurationError("the connection has ended")


def _shown(message: QueuedMessage, most: int) -> dict[str, object]:
    return {
        "number": message.number,
        "deliveries": message.deliveries,
        "headers": masked(tuple(message.headers.items())),
        "origin": origin_of(message.headers),
        **_body(message.body[:most], len(message.body)),
    }


def _body(body: bytes, size: int) -> dict[str, object]:
    """Return the body, or the start of one, as text where it is that, else in Base64."""
    whole = len(body) == size
    for end in range(len(body), max(-1, len(body) - (1 if whole else 4)), -1):  # a character may be cut
        try:
            return {"body": body[:end].decode(), "size": size, "base64": False, "whole": whole}
        except UnicodeDecodeError:
            continue
    return {"body": base64.b64encode(body).decode("ascii"), "size": size, "base64": True, "whole": whole}


class ConsoleCommands(Commands):
    """Answers requests to `CONSOLE`, on the session's reader; everything else is as for any client.

    Replies are written past the queues, so that they are not among the broker's messages.

    Args:
        router: the broker's state.
        settings: limits.
        calls: answers requests.
    """

    def __init__(self, router: BrokerRouter, settings: Settings, calls: Calls) -> None:
        super().__init__(router, settings)
        self._calls = calls
        self._numbers = itertools.count(1)

    def _send(self, session: SessionState, frame: Frame) -> None:
        header = frame.headers.get
        if header("destination") != CONSOLE:
            super()._send(session, frame)
            return
        inbox = next((one for one in session.consumers.values() if one.destination == header("reply-to")), None)
        if inbox is None:
            raise RemoteProtocolError("a request to the console needs a reply-to that the session is subscribed to")
        pairs = [
            ("subscription", inbox.identity or ""),
            ("message-id", f"console-{next(self._numbers)}"),
            ("destination", inbox.destination),
            ("correlation-id", header("correlation-id") or ""),
            ("content-type", "application/json"),
        ]
        session.calls.append(functools.partial(self._answer, session, pairs, frame.body))

    def _answer(self, session: SessionState, pairs: list[tuple[str, str]], request: bytes) -> None:
        reply = self._calls.answer(session.name, request)
        with self._router.turn():
            session.write_queue.answer(encode("MESSAGE", pairs, reply, grammar=session.protocol.grammar))


_LOOPBACK = "127.0.0.1"
_GRACE = 0.1
"""Seconds that pages get to take the end of the stream."""
_MAX_PAGES = 100
"""Sessions of the console at one time."""


class Console:
    """Serves a page to a browser with its address, and lets it manage the broker, as a STOMP client over WebSocket.

    Args:
        management: of the broker.
        router: its state.
        settings: its settings; the console has neither its users nor the ways of another broker.
        port: 0 takes a free one.
        instance: the first part of the broker's session ids.
    """

    def __init__(
        self, management: Management, router: BrokerRouter, settings: Settings, *, port: int, instance: str
    ) -> None:
        own = replace(
            settings,
            users=None,
            on_frame=None,
            profile=OWN,
            leniency=Leniency.NONE,
            versions=NEGOTIABLE,
            heartbeat=HeartbeatOffer.from_seconds(1.0, 1.0),
            max_sessions=_MAX_PAGES,
            max_handshakes=_MAX_PAGES,
            max_handshakes_per_address=_MAX_PAGES,
        )
        name = f"{instance}-console"
        self._calls = Calls(management, router, own=name, server=settings.profile.server)
        self._acceptor = Acceptor(router, ConsoleCommands(router, own, self._calls), own, instance=name)
        self._subprotocols = subprotocols(own.versions)
        self._token = secrets.token_urlsafe(24)
        self._port = port
        self._listener: WebSocketListener | None = None

    def start(self) -> None:
        """Listen, on the same port if it is started again.

        Raises:
            ConfigurationError: the port cannot be listened on.
        """
        listener = TcpListener(_LOOPBACK, self._port)
        self._port = listener.address[1]
        site = Site(self._port, self._token)
        policy = HandshakePolicy(subprotocols=self._subprotocols, origins=("*",), respond=site.respond, streams=False)
        self._listener = WebSocketListener(listener, policy)
        self._acceptor.start([self._listener])

    def stop(self, deadline: Deadline) -> None:
        """Stop listening, and end the sessions of pages."""
        if self._listener is not None:
            self._acceptor.stop([self._listener], deadline, grace=_GRACE)

    @property
    def url(self) -> str:
        """Its address.

        Raises:
            NotConnectedError: it was never started.
        """
        if self._listener is None:
            raise NotConnectedError("the broker was not started yet")
        return f"http://{host_port(_LOOPBACK, self._port)}/{self._token}/"
