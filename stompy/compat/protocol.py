"""The commands of each version of STOMP, as methods."""

from __future__ import annotations

import warnings
from typing import Any

import stompy.compat.log as log
from stompy.compat.constants import (
    CMD_ABORT,
    CMD_ACK,
    CMD_BEGIN,
    CMD_COMMIT,
    CMD_CONNECT,
    CMD_DISCONNECT,
    CMD_NACK,
    CMD_SEND,
    CMD_STOMP,
    CMD_SUBSCRIBE,
    CMD_UNSUBSCRIBE,
    HDR_ACCEPT_VERSION,
    HDR_ACK,
    HDR_CONTENT_LENGTH,
    HDR_CONTENT_TYPE,
    HDR_DESTINATION,
    HDR_HEARTBEAT,
    HDR_HOST,
    HDR_ID,
    HDR_LOGIN,
    HDR_MESSAGE_ID,
    HDR_PASSCODE,
    HDR_RECEIPT,
    HDR_SUBSCRIPTION,
    HDR_TRANSACTION,
)
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
        headers[HDR_ACCEPT_VERSION] = self.version
        if username is not None:
            headers[HDR_LOGIN] = username
        if passcode is not None:
            headers[HDR_PASSCODE] = passcode
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
        self._transaction(CMD_BEGIN, transaction, headers, keyword_headers)
        return transaction

    def commit(self, transaction: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Commit a transaction."""
        self._transaction(CMD_COMMIT, transaction, headers, keyword_headers)

    def abort(self, transaction: str, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Abort a transaction."""
        self._transaction(CMD_ABORT, transaction, headers, keyword_headers)

    def _transaction(self, cmd: str, transaction: str | None, headers: Headers | None, keywords: Headers) -> None:
        assert transaction is not None, "'transaction' is required"
        self.send_frame(cmd, {**merge_headers((headers, keywords)), HDR_TRANSACTION: transaction})

    def disconnect(self, receipt: str | None = None, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """Send DISCONNECT; with the receipt of it, the session ends."""
        if not self.transport.is_connected():
            log.debug("not sending disconnect, already disconnected")
            return
        receipt = receipt or get_uuid()
        self.transport.set_receipt(receipt, CMD_DISCONNECT)
        try:
            self.send_frame(CMD_DISCONNECT, {**merge_headers((headers, keyword_headers)), HDR_RECEIPT: receipt})
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
        fields[HDR_DESTINATION] = destination
        if content_type:
            fields[HDR_CONTENT_TYPE] = content_type
        if self.auto_content_length and body and HDR_CONTENT_LENGTH not in fields:
            fields[HDR_CONTENT_LENGTH] = len(body)
        self.send_frame(CMD_SEND, fields, body)

    def _subscribe(self, destination: str, id: Any, ack: str, headers: Headers) -> None:
        assert destination is not None, "'destination' is required"
        headers[HDR_DESTINATION] = destination
        if id is not None:
            headers[HDR_ID] = id
        headers[HDR_ACK] = ack
        self.send_frame(CMD_SUBSCRIBE, headers)

    def _answer(self, cmd: str, fields: Headers, transaction: Any, receipt: Any, keywords: Headers) -> None:
        for name, value in fields.items():
            assert value is not None, f"'{'id' if name == HDR_MESSAGE_ID else name}' is required"
        fields.update(keywords)
        if transaction:
            fields[HDR_TRANSACTION] = transaction
        if receipt:
            fields[HDR_RECEIPT] = receipt
        self.send_frame(cmd, fields)


class Protocol10(_Commands, ConnectionListener):
    """STOMP 1.0.

    Args:
        transport: writes the frames.
        auto_content_length: whether to add the header `content-length`.
    """

    def __init__(self, transport: Transport, auto_content_length: bool = True) -> None:
        self.transport = transport
        self.auto_content_length = auto_content_length
        self.version = "1.0"
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
        self._connect(CMD_CONNECT, wait, merge_headers((headers, keyword_headers)), username, passcode)

    def ack(self, id: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Acknowledge a message by its `message-id`."""
        self._answer(CMD_ACK, {HDR_MESSAGE_ID: id}, transaction, receipt, {})

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
            fields[HDR_ID] = id
        if destination:
            fields[HDR_DESTINATION] = destination
        self.send_frame(CMD_UNSUBSCRIBE, fields)


class Protocol11(_Commands, HeartbeatListener):
    """STOMP 1.1.

    Args:
        transport: writes the frames.
        heartbeats: see `HeartbeatListener`.
        auto_content_length: whether to add the header `content-length`.
        heart_beat_receive_scale: see `HeartbeatListener`.
    """

    def __init__(
        self,
        transport: Transport,
        heartbeats: tuple[int, int] = (0, 0),
        auto_content_length: bool = True,
        heart_beat_receive_scale: float = 1.5,
    ) -> None:
        HeartbeatListener.__init__(self, transport, heartbeats, heart_beat_receive_scale)
        self.auto_content_length = auto_content_length
        self.version = "1.1"
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
            fields[HDR_HOST] = host
        if tuple(self.heartbeats) != (0, 0):
            fields[HDR_HEARTBEAT] = "{},{}".format(*self.heartbeats)
        self._connect(CMD_CONNECT if with_connect_command else CMD_STOMP, wait, fields, username, passcode)

    def ack(self, id: str, subscription: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Acknowledge a message by its `message-id` and its subscription."""
        self._answer(CMD_ACK, {HDR_MESSAGE_ID: id, HDR_SUBSCRIPTION: subscription}, transaction, receipt, {})

    def nack(
        self,
        id: str,
        subscription: str,
        transaction: str | None = None,
        receipt: str | None = None,
        **keyword_headers: Any,
    ) -> None:
        """Refuse a message by its `message-id` and its subscription."""
        fields = {HDR_MESSAGE_ID: id, HDR_SUBSCRIPTION: subscription}
        self._answer(CMD_NACK, fields, transaction, receipt, keyword_headers)

    def subscribe(
        self, destination: str, id: Any, ack: str = "auto", headers: Headers | None = None, **keyword_headers: Any
    ) -> None:
        """Subscribe to a destination."""
        assert id is not None, "'id' is required"
        self._subscribe(destination, id, ack, merge_headers((headers, keyword_headers)))

    def unsubscribe(self, id: Any, headers: Headers | None = None, **keyword_headers: Any) -> None:
        """End a subscription."""
        assert id is not None, "'id' is required"
        self.send_frame(CMD_UNSUBSCRIBE, {**merge_headers((headers, keyword_headers)), HDR_ID: id})


class Protocol12(Protocol11):
    """STOMP 1.2; the arguments are those of `Protocol11`."""

    def __init__(
        self,
        transport: Transport,
        heartbeats: tuple[int, int] = (0, 0),
        auto_content_length: bool = True,
        heart_beat_receive_scale: float = 1.5,
    ) -> None:
        Protocol11.__init__(self, transport, heartbeats, auto_content_length, heart_beat_receive_scale)
        self.version = "1.2"

    def _host(self) -> str | None:
        current = self.transport.current_host_and_port
        return self.transport.vhost or (current[0] if current else None)

    def ack(  # type: ignore[override]
        self, id: str, transaction: str | None = None, receipt: str | None = None
    ) -> None:
        """Acknowledge a message by its `ack` header."""
        self._answer(CMD_ACK, {HDR_ID: id}, transaction, receipt, {})

    def nack(  # type: ignore[override]
        self, id: str, transaction: str | None = None, receipt: str | None = None, **keyword_headers: Any
    ) -> None:
        """Refuse a message by its `ack` header."""
        self._answer(CMD_NACK, {HDR_ID: id}, transaction, receipt, keyword_headers)
