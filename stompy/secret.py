"""Credentials that do not show: not in a log, a repr, a traceback with its locals, or a pickle that nobody asked for.

Python shows more than one thinks: `traceback.TracebackException(capture_locals=True)`, `cgitb` and error trackers print
the local variables of every frame on the way. So a passcode lives in a `Secret` from the first line of ours on, and an
error that was raised while it lay open is `closed` before it goes on.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from stompy.errors import ConfigurationError

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_SHOWN = "***"


class Secret(Generic[T]):
    """Holds something that nothing shows; `reveal` returns it.

    Args:
        value: text or octets, mostly.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """Return what it holds. Do not bind the result to a name: tracebacks show names."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if isinstance(self._value, str) and isinstance(other._value, str):
            import hmac  # it loads OpenSSL, which a plain connection does without

            return hmac.compare_digest(_octets(self._value), _octets(other._value))
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret[T]:
        return self

    def __deepcopy__(self, memo: object) -> Secret[T]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled by itself: it would leave the process unasked")

    def __repr__(self) -> str:
        return _SHOWN


def hidden(value: str | T) -> Secret[str] | T:
    """Return what was given as a secret; `None`, a function that will tell it, and a secret are returned as they are.

    What is not text is hidden too: whoever gives octets by mistake gives a secret all the same. See `check_text`.
    """
    given: Any = value
    return given if given is None or callable(given) or isinstance(given, Secret) else Secret(given)


def check_text(what: str, value: object) -> None:
    """Refuse a secret that is not text.

    Raises:
        ConfigurationError: it is not; the error does not show it.
    """
    if isinstance(value, Secret) and not isinstance(value.reveal(), str):
        raise ConfigurationError(f"{what} must be text (str), not {type(value.reveal()).__name__}")


def revealed(value: Secret[str] | None) -> str | None:
    """Return the text of a secret, or `None`."""
    return None if value is None else value.reveal()


def closed(error: E) -> E:
    """Return `error` and all that led to it without their tracebacks, whose frames hold a secret.

    To be raised by a frame that holds none: `raise closed(error)`.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        waiting += (one.__cause__, one.__context__)
    return error


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
