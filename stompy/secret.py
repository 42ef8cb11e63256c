"""Keep credentials out of logs, reprs, tracebacks with local variables, and accidental pickles.

`traceback.TracebackException(capture_locals=True)`, `cgitb` and error trackers print the local variables of every frame
in a traceback. Public functions therefore wrap a passcode in a `Secret` at once, and an exception that was raised while
a local variable held the plain value loses its tracebacks (`strip_tracebacks`) before it reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from stompy.errors import ConfigurationError

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_SHOWN = "***"


class Secret(Generic[T]):
    """Hold a value without showing it; `reveal` returns it.

    Args:
        value: usually text or bytes.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """Return the value. Do not assign the result to a variable: tracebacks show local variables."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if isinstance(self._value, str) and isinstance(other._value, str):
            import hmac  # imported late: it loads OpenSSL, which a connection without TLS does not need

            return hmac.compare_digest(_encoded(self._value), _encoded(other._value))
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret[T]:
        return self

    def __deepcopy__(self, memo: object) -> Secret[T]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: it would leave the process unnoticed")

    def __repr__(self) -> str:
        return _SHOWN


def as_secret(value: str | T) -> Secret[str] | T:
    """Return `value` as a secret; `None`, a function that returns the value, and a secret are returned unchanged.

    A value of a wrong type, such as bytes, becomes a secret too, as it is confidential all the same; see `check_text`.
    """
    given: Any = value
    return given if given is None or callable(given) or isinstance(given, Secret) else Secret(given)


def check_text(what: str, value: object) -> None:
    """Check that a secret is text.

    Args:
        what: the name of the value, for the error message.
        value: the secret; any other type of object is accepted.

    Raises:
        ConfigurationError: the secret is not text; the error does not show it.
    """
    if isinstance(value, Secret) and not isinstance(value.reveal(), str):
        raise ConfigurationError(f"{what} must be text (str), not {type(value.reveal()).__name__}")


def revealed(value: Secret[str] | None) -> str | None:
    """Return the text of a secret, or `None`."""
    return None if value is None else value.reveal()


def without_traceback(call: Callable[[], T]) -> T:
    """Return `call()`, whose stack frames hold a secret; what it raises has lost the traceback that would show them."""
    try:
        return call()
    except BaseException as error:
        failure = error
    raise strip_tracebacks(failure)


def strip_tracebacks(error: E) -> E:
    """Return `error` after removing its traceback, and those of its causes and contexts, whose frames hold a secret.

    Errors of Unicode among these are removed, as they hold the text.

    Raise the result in a frame that holds no secret: `raise strip_tracebacks(error)`.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        linked = waiting.pop()
        if linked is None or id(linked) in seen:
            continue
        seen.add(id(linked))
        linked.__traceback__ = None
        if isinstance(linked.__cause__, UnicodeError):
            linked.__cause__ = None
        if isinstance(linked.__context__, UnicodeError):
            linked.__context__ = None
        waiting += (linked.__cause__, linked.__context__)
    return error


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
