"""Who may come in, and what they may do.

| thread | does here | may block on |
|---|---|---|
| a session's reader, without the router's lock | `Users.admit` | a hash that takes time on purpose; its turn for one |
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stompy.arguments import check_arguments
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError
from stompy.secret import Secret, as_secret, check_text
from stompy.world import secrets, threading

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
        passcode_hash: instead of it, what `hash_passcode` or `stompy hash-passcode` gave.
        read: what may be subscribed to.
        write: what may be sent to.
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
        passcode: Secret[str] | str | None = None,
        passcode_hash: str | None = None,
        read: tuple[str, ...] = ("*",),
        write: tuple[str, ...] = ("*",),
        admin: tuple[str, ...] = ("*",),
    ) -> None:
        # Not that of the dataclass, whose local variables a traceback would show.
        hidden, passcode = as_secret(passcode), None
        for name, value in (("passcode", hidden), ("passcode_hash", passcode_hash)):
            object.__setattr__(self, name, value)
        for name, patterns in (("read", read), ("write", write), ("admin", admin)):
            object.__setattr__(self, name, patterns)
        check_text("passcode", self.passcode)
        check_arguments(User.__init__, {"passcode_hash": passcode_hash}, hidden=("passcode_hash",))
        if (self.passcode is None) == (self.passcode_hash is None):
            raise ConfigurationError("a user has either a passcode or the hash of one")
        if self.passcode_hash is not None:
            _parts(self.passcode_hash)
        for name in ("read", "write", "admin"):
            object.__setattr__(self, name, _patterns(name, getattr(self, name)))

    def _may(self, right: Right, destination: str) -> bool:
        """Whether it has a right on a destination."""
        patterns: tuple[str, ...] = getattr(self, right)
        return any(destination.startswith(one[:-1]) if one.endswith("*") else destination == one for one in patterns)


class Users:
    """The users of a broker.

    Args:
        users: by login; a text is the passcode of a user who may do everything.
    """

    def __init__(self, users: Mapping[str, User | str]) -> None:
        self._users = {login: one if isinstance(one, User) else User(one) for login, one in users.items()}
        hashes = [one.passcode_hash for one in self._users.values() if one.passcode_hash is not None]
        # For those who do not exist and those without a hash, so that the time taken does not tell who is who.
        self._dummy_hash = max(hashes, key=_effort, default=None)
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    def __len__(self) -> int:
        return len(self._users)

    def admit(self, login: str, passcode: Secret[str], deadline: Deadline) -> User | None:
        """Return the user who comes with the right passcode; `None` if there is none, or no turn came in time."""
        user = self._users.get(login)
        right = self._hash_fits(user, passcode, deadline)
        if user is None:
            return None
        if user.passcode is not None:
            right = as_secret(user.passcode) == passcode
        return user if right else None

    def _hash_fits(self, user: User | None, passcode: Secret[str], deadline: Deadline) -> bool:
        known = user.passcode_hash if user is not None and user.passcode_hash is not None else None
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
