from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from stompy.broker.users import User, Users
from stompy.errors import ConfigurationError, StompError
from stompy.secret import Secret, as_secret, check_text, revealed, strip_tracebacks
from stompy.transport.tls.options import Tls

MARK = "s3cret-marker"


def test_nothing_but_reveal_shows_it() -> None:
    secret = Secret(MARK)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!s:>40}", str([secret]), ascii(secret)]
    assert not any(MARK in text for text in shown)
    assert secret.reveal() == MARK


def test_two_are_equal_where_what_they_hold_is() -> None:
    assert Secret(MARK) == Secret(MARK)
    assert hash(Secret(MARK)) == hash(Secret(MARK))
    assert Secret(b"x") == Secret(b"x")
    assert Secret("é") != Secret("e")
    assert Secret("x") != "x"


def test_a_copy_is_a_secret_and_a_pickle_is_refused() -> None:
    secret = Secret(MARK)
    assert copy.copy(secret) is copy.deepcopy(secret) is secret
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps({"inside": secret}, protocol)


def test_text_is_hidden_and_anything_else_left_alone() -> None:
    assert as_secret(MARK) == Secret(MARK)
    assert as_secret(None) is None
    assert as_secret(len) is len
    secret = Secret(MARK)
    assert as_secret(secret) is secret
    assert (revealed(secret), revealed(None)) == (MARK, None)


def open_heart(passcode: str) -> None:
    try:
        raise ValueError(passcode[:0])
    except ValueError as error:
        raise StompError("wrong") from error


def test_a_closed_error_has_lost_the_frames_that_held_a_secret() -> None:
    with pytest.raises(StompError) as caught:
        open_heart(MARK)
    assert MARK in shown_with_locals(caught.value)
    assert MARK not in shown_with_locals(strip_tracebacks(caught.value))


def test_errors_that_led_to_each_other_are_closed_once() -> None:
    one, other = ValueError(), KeyError()
    one.__cause__, other.__context__ = other, one
    assert strip_tracebacks(one) is one


def shown_with_locals(error: BaseException) -> str:
    """Return what a tool shows that prints local variables."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


@pytest.mark.parametrize("wrong", [MARK.encode(), bytearray(MARK, "ascii"), [MARK], ("ann", MARK), {MARK: MARK}])
def test_a_secret_that_is_no_text_is_refused_unseen(wrong: object) -> None:
    secret = as_secret(wrong)
    del wrong
    with pytest.raises(ConfigurationError, match=r"passcode must be text \(str\), not ") as caught:
        check_text("passcode", secret)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert MARK not in shown.replace(f"MARK = '{MARK}'", "").split("secret.py")[-1]
    assert MARK not in repr(secret)


@pytest.mark.parametrize(
    "make",
    [lambda secret: User(passcode=secret), lambda secret: Tls(password=secret), lambda secret: Users({"ann": secret})],
)
def test_settings_with_secrets_refuse_bytes(make: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigurationError, match="must be text") as caught:
        make(MARK.encode())
    assert MARK not in str(caught.value)
