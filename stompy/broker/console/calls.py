"""What the console can ask of the broker: requests and replies in JSON, each a message to and from `CONSOLE`.

A request is an object with the name of a call and its arguments, such as `{"call": "purge", "queue": "/queue/a"}`; the
reply is `{"result": ...}` or `{"error": "..."}`. The calls are those of `Management`, and those that watch.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stompy.broker.console.watching import SHOWN, Seen, Watches, masked
from stompy.broker.destinations import is_topic, targets_of
from stompy.broker.publisher import origin_of
from stompy.errors import ConfigurationError, StompError
from stompy.world import time

if TYPE_CHECKING:
    from stompy.broker.management import Management, QueuedMessage
    from stompy.broker.router import BrokerRouter

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
        server: what the broker calls itself.
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
            session: who asks.
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
            queues = [
                (name, queue.ready, queue.unacked, len(queue.consumers), queue.delivered, queue.paused)
                for name, queue in router.topology.queues.items()
                if own not in name
            ]
            durables = [
                (feed.queue.name, feed.queue.ready, feed.queue.unacked, len(feed.queue.consumers), feed.queue.delivered)
                for feed in router.topology.durables.values()
            ]
            topics = router.topology.topic_rows()
        connections = [asdict(one) for one in self._management.connections() if not one.session.startswith(self._own)]
        counters = ("messages_in", "messages_out", "redelivered", "dead_lettered", "expired", "discarded", "errors")
        return {
            "server": self._server,
            "moment": time.monotonic(),
            "counters": {name: getattr(stats, name) for name in counters},
            "scheduled": stats.scheduled,
            "queues": queues,
            "topics": topics,
            "durables": durables,
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
        """Return what came to a destination since the last call with these arguments."""
        target, *others = targets_of(destination, "")
        if not destination or others or (target.pattern and not is_topic(target.name)):
            raise ConfigurationError(f"{destination!r} is neither a queue nor a topic, nor a pattern of topics")
        with self._router.turn():
            tap = self.watches.messages(reader, target, selector=selector, text=text)
            return _since(tap.read(), tap.seen)

    def _frames(self, connection: str, reader: str) -> dict[str, object]:
        """Return the frames of a connection since the last call."""
        with self._router.turn():
            for state in self._router.connected:
                if state.name == connection:
                    watch = self.watches.frames(reader, state)
                    return _since(watch.read(), watch.seen)
        raise ConfigurationError("the connection has ended")


def _since(passed: Sequence[Seen], total: int) -> dict[str, object]:
    return {"total": total, "passed": [{**asdict(seen), **_body(seen.body, seen.size)} for seen in passed]}


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
