"""A listener and transports that do what a fault plan says: the one place where faults meet the broker.

| thread | may block on |
|---|---|
| a session's reader, in `recv` | the stream, or a `Delay` of what was received |
| a session's writer, in `sendall` | the stream, or a `Delay` of what is sent |

No lock of its own; waits are in `FaultPlan.hold`, which `shutdown` ends.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from stompy.broker.fault_injector import End, FaultInjector, Pass, Step, Wait
from stompy.broker.faults import RECEIVED, SENT, Delay, FaultPlan, Refuse
from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import ConnectionLostError, SendTimeoutError, StompTimeoutError

if TYPE_CHECKING:
    from stompy.transport.base import Listener, MessageTransport, Transport


class FaultListener:
    """Accepts what another listener accepts, and makes it faulty; see `stompy.transport.base.Listener`.

    Args:
        listener: the sound one, owned by this one from here on.
        plan: what is to go wrong.
    """

    def __init__(self, listener: Listener, plan: FaultPlan) -> None:
        self._listener = listener
        self._plan = plan

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens."""
        return self._listener.address

    def accept(self) -> Transport | None:
        """Wait for the next connection that the plan lets in; `None` once the listener is closed."""
        while (transport := self._listener.accept()) is not None:
            link = self._plan.next_link()
            refusal = next((fault for _, fault in self._plan.entries(link=link) if isinstance(fault, Refuse)), None)
            if refusal is None:
                return FaultTransport(transport, self._plan, link=link)
            transport.close()
            self._plan.struck(refusal, link=link)
        return None

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


class _Hold:
    """One current delay; its time begins when it is made."""

    def __init__(self, fault: Delay, plan: FaultPlan, *, link: int) -> None:
        self._plan = plan
        self._until = Deadline(fault.seconds)
        self._releases = plan.releases
        plan.struck(fault, link=link)

    def wait(self, deadline: Deadline, over: Callable[[], bool]) -> bool:
        """Return whether it is over, rather than the deadline."""
        return self._plan.hold(until=self._until, over=over, releases=self._releases, deadline=deadline)


class FaultTransport:
    """A transport to which a plan is applied; see `stompy.transport.base.Transport` for what each method promises.

    Args:
        transport: the sound one, owned by this one from here on.
        plan: what is to go wrong.
        link: the number of the connection.
    """

    def __init__(self, transport: Transport, plan: FaultPlan, *, link: int) -> None:
        self._transport = transport
        self._plan = plan
        self._link = link
        self._outgoing = FaultInjector(plan, link=link, direction=SENT)
        self._incoming = FaultInjector(plan, link=link, direction=RECEIVED)
        self._waiting: deque[Step] = deque()  # received, not yet done
        self._hold: _Hold | None = None  # the delay that `recv` is in
        self._shut = False

    @property
    def peer(self) -> str:
        """The other end."""
        return self._transport.peer

    @property
    def subprotocol(self) -> str | None:
        """What the transport below has agreed on."""
        return getattr(self._transport, "subprotocol", None)

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes that the plan lets through."""
        while True:
            while self._waiting:
                if data := self._receive(self._waiting[0], deadline):
                    return data
            data = self._transport.recv(deadline)
            if not data:
                return b""
            self._waiting += self._incoming.feed(data)

    def _receive(self, step: Step, deadline: Deadline | None) -> bytes:
        """Do one step; it stays the next one where the deadline passes first."""
        if isinstance(step, Wait):
            self._hold = self._hold or _Hold(step.fault, self._plan, link=self._link)
            if not self._hold.wait(deadline or Deadline(None), lambda: self._shut):
                raise StompTimeoutError(f"no bytes from {self.peer} in time")
            self._hold = None
        self._waiting.popleft()
        if self._shut:
            self._waiting.clear()
            return b""
        if isinstance(step, End):
            self._end(step)
        if not isinstance(step, Pass):
            return b""
        if self._waiting and isinstance(end := self._waiting[0], End):
            # Before the broker sees the last bytes, so that no answer to them gets out.
            self._waiting.clear()
            self._end(end)
        return step.data

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Hand over what the plan lets through."""
        self._send((data,), deadline_of(deadline))

    @property
    def keeps_messages(self) -> bool:
        """Whether the transport below keeps messages apart, or may."""
        return bool(getattr(self._transport, "keeps_messages", False))

    def send_messages(self, messages: Sequence[bytes], deadline: Budget) -> None:
        """Hand over what the plan lets through of several messages."""
        self._send(messages, deadline)

    def _send(self, messages: Sequence[bytes], budget: Budget) -> None:
        transport, deadline = self._transport, deadline_of(budget)
        if self._shut:
            raise ConnectionLostError(f"connection to {self.peer} was shut down", outcome="not-sent")
        for step in itertools.chain.from_iterable(map(self._outgoing.feed, messages)):
            if self._shut:  # what a delay holds back must not slip out while the link is being ended
                raise ConnectionLostError(f"connection to {self.peer} was shut down")
            if isinstance(step, Pass):
                if self.keeps_messages:
                    cast("MessageTransport", transport).send_messages((step.data,), budget)
                else:
                    transport.sendall(step.data, deadline)
            elif isinstance(step, End):
                self._end(step)
                raise ConnectionLostError(f"connection to {self.peer} cut by the fault plan")
            elif not _Hold(step.fault, self._plan, link=self._link).wait(deadline, lambda: self._shut):
                raise SendTimeoutError(f"{self.peer} did not accept the bytes in time, by the fault plan")

    def _end(self, step: End) -> None:
        self.shutdown()
        self._plan.struck(step.fault, link=self._link)

    def shutdown(self) -> None:
        """End both directions, and whatever waits here."""
        self._shut = True
        self._transport.shutdown()
        self._plan.wake()

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        self._transport.shutdown_write()

    def close(self) -> None:
        """Shut down and release what the operating system holds."""
        self._shut = True
        self._transport.close()
        self._plan.wake()

    def __repr__(self) -> str:
        return f"<FaultTransport link={self._link} of {self._transport!r}>"
