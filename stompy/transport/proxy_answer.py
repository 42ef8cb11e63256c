"""Reading exactly what a proxy answers, and not a byte of what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompy.errors import ProxyError, ProxyLoginRefused
from stompy.secret import Secret, closed

if TYPE_CHECKING:
    from stompy.deadline import Deadline
    from stompy.transport.base import Transport


class Answer:
    """A conversation with a proxy.

    Args:
        transport: to the proxy.
        proxy: its address without credentials, for messages.
        address: of the broker, for messages.
        deadline: of it all.
    """

    def __init__(self, transport: Transport, proxy: str, address: str, deadline: Deadline) -> None:
        self._transport = transport
        self._proxy = proxy
        self._address = address
        self._deadline = deadline
        self._buffer = b""

    def say(self, octets: bytes) -> None:
        """Send to the proxy; raises as `Transport.sendall` does."""
        self._transport.sendall(octets, self._deadline)

    def say_secretly(self, octets: Secret[bytes]) -> None:
        """Send what no traceback may show; raises as `say` does."""
        try:
            self._transport.sendall(octets.reveal(), self._deadline)
            return
        except BaseException as error:
            failure = error
        raise closed(failure)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; raises as `Transport.recv` does, and `ProxyError` at the end."""
        while len(self._buffer) < size:
            self._more()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def take_until(self, end: bytes, *, most: int) -> bytes:
        """Return what comes up to and with `end`; raises as `take` does, also if it is longer than `most`."""
        while (place := self._buffer.find(end)) < 0:
            if len(self._buffer) > most:
                raise self.error("sent an answer without an end")
            self._more()
        return self.take(place + len(end))

    def _more(self) -> None:
        received = self._transport.recv(self._deadline)
        if not received:
            raise self.error("closed the connection instead of answering")
        self._buffer += received

    def finish(self) -> None:
        """Make sure that nothing follows: neither STOMP nor TLS lets a broker speak first."""
        if self._buffer:
            raise self.error("sent more than its answer")

    def error(self, what: str) -> ProxyError:
        """Return an error that says what the proxy did."""
        return ProxyError(f"the proxy {self._proxy} {what}", proxy=self._proxy, address=self._address)

    def login_refused(self, what: str) -> ProxyLoginRefused:
        """Return an error that says that the proxy does not know us."""
        return ProxyLoginRefused(f"the proxy {self._proxy} {what}", proxy=self._proxy, address=self._address)
