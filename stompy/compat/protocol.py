"""The commands of each version of STOMP, as methods."""

from __future__ import annotations

import warnings
from typing import Any

import stompy.compat.log as log
from stompy.compat.exception import ConnectFailedException as ConnectFailedException
from stompy.compat.exception import NotConnectedException
from stompy.compat.listener import *  # noqa: F403 - programs import them from here
from stompy.compat.listener import ConnectionListener, HeartbeatListener
from stompy.compat.transport import Transport
from stompy.compat.utils import Frame, get_uuid, merge_headers

Headers = dict[str, Any]

_MISTAKEN = {"password": "passcode", "user": "username", "login": "username"}


class _Commands:
    """The commands that are the same in all versions."""

    transport: Transport
    auto_content_length: bool
    version: str

    def send_frame(self, cmd: str, headers: Headers | None = None, body: Any = "") -> None:
        """Send any frame."""
        self.transport.transmit(Frame(cmd, headers, body))

    def _connect(self, cmd: str, wait: bool, headers: Headers, username: str | None, passcode: str | None) -> None:
        for name in _MISTAKEN.keys() & headers.keys():
            warnings.warn(
                f"{name}= is sent as a header of that name; the argument of connect() is {_MISTAKEN[name]}=",
                UserWarning,
                stacklevel=6,
            )
        headers["accept-version"] = self.version
        if username is not None:
            headers["login"] = username
        if passcode is not None:
            headers["passcode"] = passcode
        try:
            self.send_frame(cmd, headers)
        except NotConnectedException:
            if not wait:
                raise
        if wait:
            self.transport.wait_for_connection()

    def begin(self, transaction: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> str:
        """Begin a transaction, and return its id."""
        transaction = transaction or get_uuid()
        self._transaction("BEGIN", transaction, headers, keyword_headers)
        return transaction

    def commit(self, transaction: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Commit a transaction."""
        self._transaction("COMMIT", transaction, headers, keyword_headers)

    def abort(self, transaction: str, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Abort a transaction."""
        self._transaction("ABORT", transaction, headers, keyword_headers)

    def _transaction(self, cmd: str, transaction: str | None, headers: Headers | None, keywords: Headers) -> None:
        assert transaction is not None, "'transaction' is required"
        self.send_frame(cmd, {**merge_headers((headers, keywords)), "transaction": transaction})

    def disconnect(self, receipt: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Send DISCONNECT; with the receipt of it, the session ends."""
        if not self.transport.is_connected():
            log.debug("not sending disconnect, already disconnected")
            return
        receipt = receipt or get_uuid()
        self.transport.set_receipt(receipt, "DISCONNECT")
        try:
            self.send_frame("DISCONNECT", {**merge_headers((headers, keyword_headers)), "receipt": receipt})
        except NotConnectedException:
            log.debug("the session ended before disconnect was sent")

    def send(
        self,
        destination: str,
        body: Any,
        content_type: str | None = None,
        headers: Headers | None = None,
        **keyword_headers: Any,
    ) -> None:
        """Send a message."""
        assert destination is not None, "'destination' is required"
        assert body is not None, "'body' is required"
        fields = {**headers, **keyword_headers} if headers else keyword_headers
        fields["destination"] = destination
        if content_type:
            fields["content-type"] = content_type
        if self.auto_content_length and body and "content-length" not in fields:
            fields["content-length"] = len(body)
        self.send_frame("SEND", fields, body)

    def _subscribe(self, destination: str, id: Any, ack: str, headers: Headers) -> None:
        assert destination is not None, "'destination' is required"
        headers["destination"] = destination
        if id is not None:
            headers["id"] = id
        headers["ack"] = ack
        self.send_frame("SUBSCRIBE", headers)

    def _answer(self, cmd: str, fields: Headers, transaction: Any, receipt: Any, keywords: Headers) -> None:
        for name, value in fields.items():
            assert value is not None, f"'{'id' if name == 'message-id' else name}' is required"
        fields.update(keywords)
        if transaction:
            fields["transaction"] = transaction
        if receipt:
            fields["receipt"] = receipt
        self.send_frame(cmd, fields)


class Protocol10(_Commands, ConnectionListener):
    """STOMP 1.0.

    Args:
        transport: writes the frames.
        auto_content_length: whether to add the header `content-length`.
    """

    version = "1.0"

    def __init__(self, transport: Transport, auto_content_length: bool = True) -> None:
        self.transport = transport
        self.auto_content_length = auto_content_length
        transport.set_listener("protocol-listener", self)

    def connect(
        self,
        username: str | None = None,
        passcode: str | None = None,
        wait: bool = False,
        headers: Headers | None = None,
        **keyword_headers: Any,
    ) -> None:
        """Send CONNECT.

        Raises:
            ConnectFailedException: with `wait`, the broker refused, or did not answer in time.
        """
        self._connect("CONNECT", wait, merge_headers((headers, keyword_headers)), username, passcode)

    def ack(self, id: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Acknowledge a message by its `message-id`."""
        self._answer("ACK", {"message-id": id}, transaction, receipt, {})

    def subscribe(
        self,
        destination: str,
        id: str | None = None,
        ack: str = "auto",
        headers: Headers | None = None,
        **keyword_headers: Any,
    ) -> None:
        """Subscribe to a destination."""
        self._subscribe(destination, id or None, ack, merge_headers((headers, keyword_headers)))

    def unsubscribe(
        self,
        destination: str | None = None,
        id: str | None = None,
        headers: Headers | None = None,
        **keyword_headers: Any,
    ) -> None:
        """End a subscription, by its id or its destination."""
        assert id is not None or destination is not None, "'id' or 'destination' is required"
        fields = merge_headers((headers, keyword_headers))
        if id:
            fields["id"] = id
        if destination:
            fields["destination"] = destination
        self.send_frame("UNSUBSCRIBE", fields)


class Protocol11(_Commands, HeartbeatListener):
    """STOMP 1.1.

    Args:
        transport: writes the frames.
        heartbeats: see `HeartbeatListener`.
        auto_content_length: whether to add the header `content-length`.
        heart_beat_receive_scale: see `HeartbeatListener`.
    """

    version = "1.1"

    def __init__(
        self,
        transport: Transport,
        heartbeats: tuple[int, int] = (0, 0),
        auto_content_length: bool = True,
        heart_beat_receive_scale: float = 1.5,
    ) -> None:
        HeartbeatListener.__init__(self, transport, heartbeats, heart_beat_receive_scale)
        self.auto_content_length = auto_content_length
        transport.set_listener("protocol-listener", self)

    def _host(self) -> str | None:
        return self.transport.vhost

    def connect(
        self,
        username: str | None = None,
        passcode: str | None = None,
        wait: bool = False,
        headers: Headers | None = None,
        with_connect_command: bool = False,
        **keyword_headers: Any,
    ) -> None:
        """Send STOMP, or CONNECT.

        Raises:
            ConnectFailedException: with `wait`, the broker refused, or did not answer in time.
        """
        fields = merge_headers((headers, keyword_headers))
        host = self._host()
        if host:
            fields["host"] = host
        if tuple(self.heartbeats) != (0, 0):
            fields["heart-beat"] = "{},{}".format(*self.heartbeats)
        self._connect("CONNECT" if with_connect_command else "STOMP", wait, fields, username, passcode)

    def ack(self, id: str, subscription: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Acknowledge a message by its `message-id` and its subscription."""
        self._answer("ACK", {"message-id": id, "subscription": subscription}, transaction, receipt, {})

    def nack(
        self,
        id: str,
        subscription: str,
        transaction: str | None = None,
        receipt: str | None = None,
        **keyword_headers: Any,
    ) -> None:
        """Refuse a message by its `message-id` and its subscription."""
        fields = {"message-id": id, "subscription": subscription}
        self._answer("NACK", fields, transaction, receipt, keyword_headers)

    def subscribe(
        self, destination: str, id: Any, ack: str = "auto", headers: Headers | None = None, **keyword_headers: Any
    ) -> None:
        """Subscribe to a destination."""
        assert id is not None, "'id' is required"
        self._subscribe(destination, id, ack, merge_headers((headers, keyword_headers)))

    def unsubscribe(self, id: Any, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """End a subscription."""
        assert id is not None, "'id' is required"
        self.send_frame("UNSUBSCRIBE", {**merge_headers((headers, keyword_headers)), "id": id})


class Protocol12(Protocol11):
    """STOMP 1.2; the arguments are those of `Protocol11`."""

    version = "1.2"

    def _host(self) -> str | None:
        current = self.transport.current_host_and_port
        return self.transport.vhost or (current[0] if current else None)

    def ack(  # type: ignore[override]
        self, id: str, transaction: str | None = None, receipt: str | None = None
    ) -> None:
        """Acknowledge a message by its `ack` header."""
        self._answer("ACK", {"id": id}, transaction, receipt, {})

    def nack(  # type: ignore[override]
        self, id: str, transaction: str | None = None, receipt: str | None = None, **keyword_headers: Any
    ) -> None:
        """Refuse a message by its `ack` header."""
        self._answer("NACK", {"id": id}, transaction, receipt, keyword_headers)
