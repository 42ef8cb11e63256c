"""Which clients are admitted, how many at one time, and the rights of users.

| thread | does here | lock | may block on |
|---|---|---|---|
| acceptor | `Admission.enter` | admission (leaf) | nothing |
| a session's reader | `Admission.greeted`, `leave` | admission (leaf) | nothing |
| a session's reader, without the router's lock | `Users.admit` | none | a hash, slow on purpose; its turn |
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stompy.arguments import check_arguments
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, LimitExceededError
from stompy.locks import Rank, make_lock
from stompy.secret import Secret, as_secret, check_text
from stompy.world import secrets, threading

_SPARE = 16
"""Refused clients that get an ERROR at one time; for the others the stream just ends."""


@dataclass(eq=False, slots=True)
class ClientSlot:
    """One client's place.

    Attributes:
        network: where it comes from, as `network_of` says.
        refusal: why it may not come in, or `None`.
    """

    network: str | None
    refusal: LimitExceededError | None


class Admission:
    """Counts clients, so that many silent clients cannot keep out all others, nor one address all others.

    Args:
        max_sessions: clients at one time.
        max_handshakes: clients among them that are not connected yet.
        max_handshakes_per_address: clients among them from one address; `None` for half of them.
    """

    def __init__(self, *, max_sessions: int, max_handshakes: int, max_handshakes_per_address: int | None) -> None:
        self._max_sessions = max_sessions
        self._max_handshakes = max_handshakes
        self._budget = max_handshakes_per_address or (max_handshakes + 1) // 2
        self._lock = make_lock(Rank.BROKER_LEAF, "admission")
        self._connected: set[ClientSlot] = set()
        self._waiting: set[ClientSlot] = set()
        self._refused: set[ClientSlot] = set()

    def enter(self, peer: str) -> ClientSlot | None:
        """Return a new client's place; `None` where there is no place even to refuse it properly.

        Args:
            peer: its address, as its transport names it.
        """
        network = network_of(peer)
        with self._lock:
            slot = ClientSlot(network, self._refusal(network))
            if slot.refusal is not None and len(self._refused) >= _SPARE:
                return None
            (self._waiting if slot.refusal is None else self._refused).add(slot)
            return slot

    def greeted(self, slot: ClientSlot) -> None:
        """Note that a client is connected now; nothing happens if it has left."""
        with self._lock:
            if slot in self._waiting:
                self._waiting.discard(slot)
                self._connected.add(slot)

    def leave(self, slot: ClientSlot) -> None:
        """Note that a client is gone; nothing happens the second time."""
        with self._lock:
            for slots in (self._connected, self._waiting, self._refused):
                slots.discard(slot)

    def _refusal(self, network: str | None) -> LimitExceededError | None:
        here = sum(slot.network == network for slot in self._waiting)
        if len(self._waiting) + len(self._connected) >= self._max_sessions:
            return LimitExceededError("too many sessions", limit_name="max_sessions", limit=self._max_sessions)
        if len(self._waiting) >= self._max_handshakes:
            return LimitExceededError("too many handshakes", limit_name="max_handshakes", limit=self._max_handshakes)
        if network is not None and here >= self._budget:
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


Right = Literal["read", "write", "admin"]

_COST = (1 << 14, 8, 1)
"""n, r and p of scrypt: about 16 MB and 50 ms a hash."""
_FORM = re.compile(r"scrypt:([0-9]{1,7}):([0-9]{1,2}):([0-9]{1,2}):([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_MOST_MEMORY = 256 * 1024 * 1024
_MOST_WORK = 128 * 1024 * 1024
"""Bytes that the numbers of a hash may ask for: half of what OpenSSL is allowed, which needs a little more."""
_AT_ONCE = 2
"""Hashes computed at one time: each takes a core and memory, and any client can request them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user of a broker.

    A destination is allowed by its own name, or by a beginning with `*` at the end: `/queue/orders`, `/topic/*`, `*`.

    Attributes:
        passcode: in plain text; kept as a `Secret`.
        passcode_hash: instead of it, the result of `hash_passcode` or `stompy hash-passcode`.
        read: destinations to subscribe to.
        write: destinations to send to.
        admin: queues that may be made, by the first use of their names.

    Raises:
        ConfigurationError: not exactly one of passcode and hash, a malformed hash, or a pattern with `*` elsewhere.
    """

    passcode: Secret[str] | str | None = field(default=None, repr=False)
    passcode_hash: str | None = field(default=None, repr=False)
    read: tuple[str, ...] = ("*",)
    write: tuple[str, ...] = ("*",)
    admin: tuple[str, ...] = ("*",)

    def __init__(
        self,
        *,
        passcode: Secret[str] | str | None = None,
        passcode_hash: str | None = None,
        read: tuple[str, ...] = ("*",),
        write: tuple[str, ...] = ("*",),
        admin: tuple[str, ...] = ("*",),
    ) -> None:
        # Not that of the dataclass, whose local variables a traceback would show.
        hidden, passcode = as_secret(passcode), None
        patterns = {"read": read, "write": write, "admin": admin}
        # All at once, as a traceback may ask for the `repr` of what is refused.
        for name, value in {"passcode": hidden, "passcode_hash": passcode_hash, **patterns}.items():
            object.__setattr__(self, name, value)
        check_text("passcode", self.passcode)
        check_arguments(User.__init__, {"passcode_hash": passcode_hash}, hidden=("passcode_hash",))
        if (self.passcode is None) == (self.passcode_hash is None):
            raise ConfigurationError("a user has either a passcode or the hash of one")
        if self.passcode_hash is not None:
            _parts(self.passcode_hash)
        for name, value in patterns.items():
            object.__setattr__(self, name, _patterns(name, value))


def is_allowed(user: User, right: Right, destination: str) -> bool:
    """Return whether a user has a right on a destination."""
    patterns: tuple[str, ...] = getattr(user, right)
    return any(destination.startswith(one[:-1]) if one.endswith("*") else destination == one for one in patterns)


class Users:
    """The users of a broker.

    Args:
        users: by login; a text is the passcode of a user with all rights.
    """

    def __init__(self, users: Mapping[str, User | str]) -> None:
        self._users = {login: one if isinstance(one, User) else User(passcode=one) for login, one in users.items()}
        hashes = [one.passcode_hash for one in self._users.values() if one.passcode_hash is not None]
        # For those who do not exist and those without a hash, so that the time taken does not tell who is who.
        self._dummy_hash = max(hashes, key=_effort, default=None)
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    def __len__(self) -> int:
        return len(self._users)

    def admit(self, login: str, passcode: Secret[str], deadline: Deadline) -> User | None:
        """Return the user with this login and passcode; `None` if there is none, or no turn came in time."""
        user = self._users.get(login)
        right = self._hash_fits(user, passcode, deadline)
        if user is not None and user.passcode is not None:
            right = as_secret(user.passcode) == passcode
        return user if right else None

    def _hash_fits(self, user: User | None, passcode: Secret[str], deadline: Deadline) -> bool:
        known = None if user is None else user.passcode_hash
        compared = known or self._dummy_hash
        if compared is None:
            return False
        remaining = deadline.remaining()
        if not self._turns.acquire(timeout=-1 if remaining is None else remaining):
            return False
        try:
            return fits(passcode, compared) and known is not None
        finally:
            self._turns.release()

    def __repr__(self) -> str:
        return f"<Users {len(self._users)}>"


def hash_passcode(passcode: str) -> str:
    """Return the salted hash of a passcode, by scrypt, as `User` takes it.

    Raises:
        ConfigurationError: the passcode is not text.
    """
    hidden, passcode = Secret(passcode), ""
    check_text("passcode", hidden)
    salt = secrets.token_bytes(16)
    n, r, p = _COST
    key = _scrypt(hidden, salt, n, r, p)
    return f"scrypt:{n}:{r}:{p}:{base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()}"


def fits(passcode: Secret[str], hashed: str) -> bool:
    """Whether a passcode gives a hash; compared in constant time."""
    n, r, p, salt, key = _parts(hashed)
    return hmac.compare_digest(_scrypt(passcode, salt, n, r, p), key)


def _scrypt(passcode: Secret[str], salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        passcode.reveal().encode("utf-8", "surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=_MOST_MEMORY, dklen=32
    )


def _parts(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    match = _FORM.fullmatch(hashed)
    if match is None:
        raise ConfigurationError("a passcode hash has the form scrypt:n:r:p:salt:key; stompy hash-passcode writes it")
    n, r, p = (int(match[place]) for place in (1, 2, 3))
    try:
        salt, key = (base64.b64decode(match[place], validate=True) for place in (4, 5))
    except binascii.Error:
        raise ConfigurationError("salt and key of a passcode hash are base64") from None
    if n < 2 or n & (n - 1) or not r or not p or 160 * n * r * p > _MOST_WORK or len(salt) < 8 or len(key) != 32:
        raise ConfigurationError("the parameters of a passcode hash are invalid, or ask for too much memory")
    return n, r, p, salt, key


def _effort(hashed: str) -> int:
    n, r, p, _, _ = _parts(hashed)
    return n * r * p


def _patterns(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{name} is a list of destinations, not {given!r}")
    patterns = tuple(given)
    for one in patterns:
        if not isinstance(one, str) or "*" in one[:-1] or not one:
            raise ConfigurationError(f"a destination in {name} may have one '*', at its end: {one!r}")
    return patterns
