"""How many clients may be connected, and how many of them may not have said who they are, in all and from one address.

| thread | does here | lock |
|---|---|---|
| acceptor | `enter` | admission (leaf) |
| a session's reader | `greeted`, `leave` | admission (leaf) |
"""

from __future__ import annotations

import enum
import ipaddress
from collections import Counter

from stompy.errors import LimitExceededError
from stompy.world import threading

_SPARE = 16
"""Refused clients that get an ERROR at one time; for the others the stream just ends."""


class SlotState(enum.Enum):
    """Where a client stands."""

    WAITING = "has not said CONNECT, or not in a way that was taken"
    INSIDE = "connected"
    REFUSED = "one too many, and gets an ERROR"
    GONE = "has left"


class ClientSlot:
    """One client's place; guarded by the admission's lock."""

    __slots__ = ("network", "refusal", "state")

    def __init__(self, state: SlotState, network: str | None, refusal: LimitExceededError | None) -> None:
        self.state = state
        self.network = network
        """Where it comes from, as `network_of` says."""
        self.refusal = refusal
        """Why it may not come in, or `None`."""


class Admission:
    """Counts clients, so that many silent ones cannot keep out all others, nor those of one address any other.

    Args:
        max_sessions: clients at one time.
        max_handshakes: those among them that are not connected yet.
        max_handshakes_per_address: those among them that come from one address; `None` for half of them.
    """

    def __init__(self, *, max_sessions: int, max_handshakes: int, max_handshakes_per_address: int | None) -> None:
        self._max_sessions = max_sessions
        self._max_handshakes = max_handshakes
        self._budget = max_handshakes_per_address or (max_handshakes + 1) // 2
        self._lock = threading.Lock()
        self._count = dict.fromkeys(SlotState, 0)
        self._waiting_from: Counter[str | None] = Counter()

    def enter(self, peer: str) -> ClientSlot | None:
        """Return a new client's place; `None` where there is no place even to refuse it properly.

        Args:
            peer: its address, as its transport names it.
        """
        network = network_of(peer)
        with self._lock:
            refusal = self._refusal(network)
            if refusal is not None and self._count[SlotState.REFUSED] >= _SPARE:
                return None
            slot = ClientSlot(SlotState.GONE, network, refusal)
            self._set(slot, SlotState.REFUSED if refusal else SlotState.WAITING)
            return slot

    def greeted(self, slot: ClientSlot) -> None:
        """Note that a client is connected now."""
        self._move(slot, SlotState.INSIDE)

    def leave(self, slot: ClientSlot) -> None:
        """Note that a client is gone; nothing happens the second time."""
        self._move(slot, SlotState.GONE)

    def _move(self, slot: ClientSlot, state: SlotState) -> None:
        with self._lock:
            if slot.state is not SlotState.GONE:
                self._count[slot.state] -= 1
                if slot.state is SlotState.WAITING:
                    self._waiting_from[slot.network] -= 1
                    if not self._waiting_from[slot.network]:
                        del self._waiting_from[slot.network]
                self._set(slot, state)

    def _set(self, slot: ClientSlot, state: SlotState) -> None:
        slot.state = state
        self._count[state] += 1
        if state is SlotState.WAITING:
            self._waiting_from[slot.network] += 1

    def _refusal(self, network: str | None) -> LimitExceededError | None:
        waiting, inside = self._count[SlotState.WAITING], self._count[SlotState.INSIDE]
        if waiting + inside >= self._max_sessions:
            return LimitExceededError("too many sessions", limit_name="max_sessions", limit=self._max_sessions)
        if waiting >= self._max_handshakes:
            return LimitExceededError("too many handshakes", limit_name="max_handshakes", limit=self._max_handshakes)
        if network is not None and self._waiting_from[network] >= self._budget:
            what = "too many handshakes from this address"
            return LimitExceededError(what, limit_name="max_handshakes_per_address", limit=self._budget)
        return None


def network_of(peer: str) -> str | None:
    """Return whose share of the handshakes a client takes: an IPv4 address, or the first 64 bits of an IPv6 one.

    Args:
        peer: host and port; for anything else, such as the path of a Unix socket, there are no shares.
    """
    try:
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((address, 64), strict=False))
