"""Listeners; their methods run on one thread per session, in the order of the names they were set under."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import stompy.compat.log as log
from stompy.compat import exception as exception
from stompy.compat import utils as utils
from stompy.compat.constants import *  # noqa: F403 - programs import them from here
from stompy.compat.exception import ConnectionClosedException, StompException
from stompy.compat.utils import Frame, clean_headers
from stompy.compat.waiting import wait_for
from stompy.locks import make_condition
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE
from stompy.world import threading, time


class Publisher:
    """The interface of connections and transports, which have listeners."""

    def set_listener(self, name: str, listener: Any) -> None:
        """Set a named listener."""

    def remove_listener(self, name: str) -> None:
        """Remove a listener."""

    def get_listener(self, name: str) -> Any:
        """Return a listener, or `None`."""
        return None


class ConnectionListener:
    """Base class of listeners: override the methods you need."""

    def on_connecting(self, host_and_port: tuple[str, int]) -> None:
        """Called when the network connection is open, before CONNECT; in the thread that connects."""

    def on_connected(self, frame: Frame) -> None:
        """Called with CONNECTED."""

    def on_disconnecting(self) -> None:
        """Called before DISCONNECT is sent."""

    def on_disconnected(self) -> None:
        """Called once when a session has ended."""

    def on_heartbeat_timeout(self) -> None:
        """Called after `on_disconnected` if the broker was silent for too long."""

    def on_before_message(self, frame: Frame) -> None:
        """Called with each message, before the `on_message` of any listener; it may change the frame."""

    def on_message(self, frame: Frame) -> None:
        """Called with each message."""

    def on_receipt(self, frame: Frame) -> None:
        """Called with each RECEIPT."""

    def on_error(self, frame: Frame) -> None:
        """Called with each ERROR."""

    def on_send(self, frame: Frame) -> None:
        """Called with each frame before it is encoded, in the thread that sends it; heartbeats have no command."""

    def on_heartbeat(self) -> None:
        """Called when a heartbeat has arrived."""

    def on_receiver_loop_completed(self, frame: Frame | None) -> None:
        """Called when nothing more will be received in a session."""


class _Heard(Protocol):
    """The parts of a transport that are about heartbeats."""

    heartbeat_tolerance: float

    @property
    def last_heard(self) -> float | None: ...


class HeartbeatListener(ConnectionListener):
    """Has the heartbeats that `connect` offers; the connection itself sends and checks them.

    Args:
        transport: of the connection.
        heartbeats: milliseconds between heartbeats that we can send, and that we want to receive.
        heart_beat_receive_scale: intervals of silence after which the broker counts as lost; at least 3 are allowed.
    """

    def __init__(self, transport: _Heard, heartbeats: tuple[int, int], heart_beat_receive_scale: float = 1.5) -> None:
        self.transport: Any = transport
        self.heartbeats = heartbeats
        self.heart_beat_receive_scale = heart_beat_receive_scale
        self.heartbeat_thread: threading.Thread | None = None
        transport.heartbeat_tolerance = max(heart_beat_receive_scale, DEFAULT_TOLERANCE)

    @property
    def received_heartbeat(self) -> float | None:
        """The time, by `time.monotonic`, at which the broker was last heard; `None` before the first session."""
        heard: _Heard = self.transport
        return heard.last_heard


class WaitingListener(ConnectionListener):
    """Waits for a receipt.

    Args:
        receipt: its id.
    """

    def __init__(self, receipt: str | None) -> None:
        self.receipt_condition = make_condition("listener", None)
        self.disconnect_condition = make_condition("listener", None)
        self.receipt = receipt
        self.received = False
        self.disconnected = False
        self._failed = False
        self._failure: StompException | None = None
        """The last one; it outlives `_failed` for those that have waited since before it."""

    def on_connected(self, frame: Frame) -> None:
        """Start anew."""
        with self.receipt_condition:
            self._failed = False

    def on_receipt(self, frame: Frame) -> None:
        """Wake the thread that waits for this receipt."""
        if frame.headers.get("receipt-id") == str(self.receipt):
            with self.receipt_condition:
                self.received = True
                self.receipt_condition.notify()

    def on_error(self, frame: Frame) -> None:
        """Wake the thread that waits for the receipt that the broker refused."""
        if frame.headers.get("receipt-id") == str(self.receipt):
            self._fail(StompException(f"the broker refused receipt {self.receipt}: {frame.headers.get('message')}"))

    def on_disconnected(self) -> None:
        """Wake all threads that wait."""
        self._fail(ConnectionClosedException(f"the connection ended before receipt {self.receipt} arrived"))
        with self.disconnect_condition:
            self.disconnected = True
            self.disconnect_condition.notify()

    def _fail(self, failure: StompException) -> None:
        with self.receipt_condition:
            self._failed, self._failure = True, failure
            self.receipt_condition.notify_all()

    def wait_on_receipt(self) -> None:
        """Wait for the receipt.

        Raises:
            StompException: the broker refused it, the connection ended, or it did not arrive in time.
        """
        before = self._failure
        wait_for(
            self.receipt_condition,
            lambda: self.received or self._failed or self._failure is not before,
            f"receipt {self.receipt} did not arrive",
        )
        with self.receipt_condition:
            if not self.received and self._failure is not None:
                raise self._failure
            self.received = False

    def wait_on_disconnected(self) -> None:
        """Wait for the end of the session.

        Raises:
            StompException: it did not end in time.
        """
        wait_for(self.disconnect_condition, lambda: self.disconnected, "the connection did not end")


class StatsListener(ConnectionListener):
    """Counts."""

    def __init__(self) -> None:
        self.errors = 0
        self.connections = 0
        self.disconnects = 0
        self.messages = 0
        self.messages_sent = 0
        self.heartbeat_timeouts = 0
        self.heartbeat_count = 0

    def on_disconnected(self) -> None:
        """Count."""
        self.disconnects += 1
        log.info("disconnected (x %s)", self.disconnects)

    def on_error(self, frame: Frame) -> None:
        """Count."""
        log.info("received an error %.800s", frame.body)
        self.errors += 1

    def on_connecting(self, host_and_port: tuple[str, int]) -> None:
        """Count."""
        log.info("connecting %s %s (x %s)", host_and_port[0], host_and_port[1], self.connections)
        self.connections += 1

    def on_message(self, frame: Frame) -> None:
        """Count."""
        self.messages += 1

    def on_send(self, frame: Frame) -> None:
        """Count."""
        self.messages_sent += 1

    def on_heartbeat_timeout(self) -> None:
        """Count."""
        log.debug("received heartbeat timeout")
        self.heartbeat_timeouts += 1

    def on_heartbeat(self) -> None:
        """Count."""
        self.heartbeat_count += 1

    def __str__(self) -> str:
        return (
            f"Connections: {self.connections}\nDisconnects: {self.disconnects}\nMessages sent: {self.messages_sent}\n"
            f"Messages received: {self.messages}\nHeartbeats received: {self.heartbeat_count}\nErrors: {self.errors}"
        )


class PrintingListener(ConnectionListener):
    """Prints everything.

    Args:
        print_to_log: whether to log it instead.
    """

    def __init__(self, print_to_log: bool = False) -> None:
        self.print_to_log = print_to_log

    def __print(self, text: str, *values: object) -> None:
        # By this name, as programs put a function of their own in its place.
        if self.print_to_log:
            log.info(text, *values)
        else:
            print(text % values)

    def on_connecting(self, host_and_port: tuple[str, int]) -> None:
        """Print."""
        self.__print("on_connecting %s %s", *host_and_port)

    def on_connected(self, frame: Frame) -> None:
        """Print."""
        self.__print("on_connected %s %s", frame.headers, frame.body)

    def on_disconnected(self) -> None:
        """Print."""
        self.__print("on_disconnected")

    def on_heartbeat_timeout(self) -> None:
        """Print."""
        self.__print("on_heartbeat_timeout")

    def on_before_message(self, frame: Frame) -> None:
        """Print."""
        self.__print("on_before_message %s %s", frame.headers, frame.body)

    def on_message(self, frame: Frame) -> None:
        """Print."""
        self.__print("on_message %s %s", frame.headers, frame.body)

    def on_receipt(self, frame: Frame) -> None:
        """Print."""
        self.__print("on_receipt %s %s", frame.headers, frame.body)

    def on_error(self, frame: Frame) -> None:
        """Print."""
        self.__print("on_error %s %s", frame.headers, frame.body)

    def on_send(self, frame: Frame) -> None:
        """Print."""
        self.__print("on_send %s %s %s", frame.cmd, clean_headers(frame.headers), frame.body)

    def on_heartbeat(self) -> None:
        """Print."""
        self.__print("on_heartbeat")


class TestListener(StatsListener, WaitingListener, PrintingListener):
    """Counts, waits, prints, and keeps the messages.

    Args:
        receipt: the id of the receipt to wait for.
        print_to_log: whether to log instead of printing.
    """

    __test__ = False  # not a test of pytest's

    def __init__(self, receipt: str | None = None, print_to_log: bool = False) -> None:
        StatsListener.__init__(self)
        PrintingListener.__init__(self, print_to_log)
        WaitingListener.__init__(self, receipt)
        self.message_list: list[tuple[dict[str, Any], Any]] = []
        self.message_condition = make_condition("listener", None)
        self.message_received = False
        self.heartbeat_condition = make_condition("listener", None)
        self.heartbeat_received = False
        self.timestamp = time.strftime("%Y%m%d%H%M%S")

    def wait_for_message(self) -> None:
        """Wait for a message.

        Raises:
            StompException: none arrived in time.
        """
        wait_for(self.message_condition, lambda: self.message_received, "no message arrived")
        self.message_received = False

    def get_latest_message(self) -> tuple[dict[str, Any], Any]:
        """Return headers and body of the last message."""
        return self.message_list[-1]

    def wait_for_heartbeat(self) -> None:
        """Wait for a heartbeat.

        Raises:
            StompException: none arrived in time.
        """
        wait_for(self.heartbeat_condition, lambda: self.heartbeat_received, "no heartbeat arrived")
        self.heartbeat_received = False

    def _all(self, event: str, *arguments: object) -> None:
        for base in (StatsListener, PrintingListener, WaitingListener):
            getattr(base, event)(self, *arguments)

    def on_message(self, frame: Frame) -> None:
        """Count, print, keep and wake."""
        self._all("on_message", frame)
        self.message_list.append((frame.headers, frame.body))
        with self.message_condition:
            self.message_received = True
            self.message_condition.notify()

    def on_heartbeat(self) -> None:
        """Count, print and wake."""
        self._all("on_heartbeat")
        with self.heartbeat_condition:
            self.heartbeat_received = True
            self.heartbeat_condition.notify()


def _passed_to_all(event: str) -> Callable[..., None]:
    @functools.wraps(getattr(ConnectionListener, event))
    def method(self: TestListener, *arguments: object) -> None:
        self._all(event, *arguments)

    return method


for _event in vars(ConnectionListener).keys() - vars(TestListener).keys():
    if _event.startswith("on_"):
        setattr(TestListener, _event, _passed_to_all(_event))
