from __future__ import annotations

import copy
import inspect
import pickle
import re
import traceback

import pytest

from stompy import errors
from stompy.frames.frame import Frame

ALL = [member for _, member in inspect.getmembers(errors, inspect.isclass) if issubclass(member, errors.StompError)]

PASSING = {
    errors.ConnectError,
    errors.ConnectTimeoutError,
    errors.TlsError,
    errors.ProxyError,
    errors.AllBrokersFailedError,
    errors.ClientIdInUseError,
    errors.ConnectionLostError,
    errors.HeartbeatTimeoutError,
    errors.SendTimeoutError,
    errors.StompTimeoutError,
    errors.ReceiptTimeoutError,
    errors.ReceiveTimeoutError,
    errors.UnconfirmedFullError,
    errors.OutboxBusyError,
    errors.OutboxFullError,
    errors.SpoolBusyError,
    errors.SpoolFullError,
}


@pytest.fixture
def frame() -> Frame:
    return Frame("ERROR")


def drawn_parents() -> dict[str, str]:
    """Read the tree that is drawn on top of the module: each class and the one that it hangs from."""
    path: list[str] = []
    parents = {}
    for line in (errors.__doc__ or "").splitlines():
        branch = re.match(r"    ([│ ]*[├└]── )?(\w+)", line)
        if branch is None:
            continue
        depth = len(branch[1] or "") // 4
        path[depth:] = [branch[2]]
        parents[branch[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_drawn_tree_is_the_tree() -> None:
    assert drawn_parents() == {cls.__name__: cls.__bases__[0].__name__ for cls in ALL}


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.BodyDecodeError, ValueError),
        (errors.StompTimeoutError, TimeoutError),
        (errors.ConcurrencyError, RuntimeError),
        (errors.ConnectError, ConnectionError),
        (errors.ConnectTimeoutError, TimeoutError),
        (errors.ConnectionLostError, ConnectionError),
        (errors.HeartbeatTimeoutError, TimeoutError),
        (errors.SendTimeoutError, TimeoutError),
    ],
)
def test_an_error_is_also_the_builtin_that_callers_know(cls: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(cls, builtin)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_timeout_is_a_timeout_error_and_every_lost_connection_a_connection_error(cls: type[Exception]) -> None:
    assert issubclass(cls, TimeoutError) is ("Timeout" in cls.__name__ or cls is errors.UnconfirmedFullError)
    lost = issubclass(cls, (errors.ConnectionLostError, errors.ConnectError))
    assert issubclass(cls, ConnectionError) is lost


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_a_call_is_safe_to_retry_if_its_cause_may_pass_and_nothing_was_sent(cls: type[errors.StompError]) -> None:
    error = made(cls, "no")
    assert errors.is_passing(error) is (cls in PASSING)
    for outcome in ("not-sent", "rejected", "unknown"):
        if hasattr(error, "outcome"):
            error.outcome = outcome
        sent = hasattr(error, "outcome") and outcome != "not-sent"
        assert error.safe_to_retry is (cls in PASSING and not sent)


def test_what_the_broker_refused_is_no_lost_connection() -> None:
    assert not issubclass(errors.BrokerError, (ConnectionError, errors.ConnectionLostError))
    assert {errors.BrokerError, errors.ConnectionLostError} == set(errors.SessionError.__subclasses__())


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_is_documented(cls: type[errors.StompError]) -> None:
    assert (cls.__doc__ or "").splitlines()[0].endswith(".")


def made(cls: type[errors.StompError], message: str) -> errors.StompError:
    """Make an error of any class, each keyword with a value of its own."""
    if cls is errors.AllBrokersFailedError:
        return errors.AllBrokersFailedError([errors.ConnectError(message, address="stomp://a:1")])
    frame = Frame("ERROR", {"message": "no"}, b"x")
    values = {"frame": frame, "limit": 7, "confirmed": 3, "body": b"\xff", "session_ended": False}
    lists = {"offered": ["1.2"], "supported": ["1.1"]}
    own = inspect.signature(cls.__init__).parameters.values()
    keywords = [parameter.name for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
    return cls(message, **{name: {**values, **lists}.get(name, f"the {name}") for name in keywords})


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_and_copying(cls: type[errors.StompError]) -> None:
    error = made(cls, "no such queue")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert (str(twin), repr(twin), twin.args) == (str(error), repr(error), error.args)
        assert {name: repr(value) for name, value in vars(twin).items()} == {
            name: repr(value) for name, value in vars(error).items()
        }


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_no_text_of_an_error_holds_a_control_character(cls: type[errors.StompError]) -> None:
    shown = "".join(traceback.format_exception(made(cls, "x\nCRITICAL root \x1b[2J\x9b\u202e\u2028")))
    assert shown.count("\n") == 1
    assert "x\\nCRITICAL root \\x1b[2J\\x9b\\u202e\\u2028" in shown
    assert shown.rstrip("\n").isprintable()


def test_connect_error_begins_with_the_address() -> None:
    error = errors.ConnectTimeoutError("no CONNECTED within 5 s", address="stomp://a:61613")
    assert str(error) == "stomp://a:61613: no CONNECTED within 5 s"
    assert error.address == "stomp://a:61613"


def test_connect_error_without_an_address_is_its_message() -> None:
    assert str(errors.ConnectError("no address")) == "no address"


def test_connect_refused_carries_the_error_frame(frame: Frame) -> None:
    error = errors.ConnectRefusedError("bad login", frame=frame, address="stomp://a:61613")
    assert error.frame is frame
    assert str(error) == "stomp://a:61613: bad login"


def test_version_mismatch_keeps_both_sides_as_tuples() -> None:
    error = errors.VersionMismatchError(
        "none in common", offered=["1.2"], supported=["1.0", "1.1"], address="stomp://a:1"
    )
    assert (error.offered, error.supported) == (("1.2",), ("1.0", "1.1"))


def test_all_brokers_failed_names_every_attempt() -> None:
    attempts = [
        errors.ConnectTimeoutError("no answer", address="stomp://a:1"),
        errors.ConnectError("refused", address="stomp://b:2"),
    ]
    error = errors.AllBrokersFailedError(attempts)
    assert str(error) == "no broker could be reached: stomp://a:1: no answer; stomp://b:2: refused"
    assert error.errors == tuple(attempts)


def test_connection_lost_does_not_claim_that_nothing_was_sent() -> None:
    assert errors.ConnectionLostError("reset").outcome == "unknown"
    assert errors.SendTimeoutError("deaf peer", outcome="not-sent").outcome == "not-sent"


def test_broker_error_carries_the_frame_and_the_receipt_it_answers(frame: Frame) -> None:
    error = errors.BrokerError("no such queue", frame=frame, receipt_id="r-1")
    assert (error.frame, error.receipt_id, error.outcome) == (frame, "r-1", "unknown")
    assert errors.BrokerError("no such queue", frame=frame).receipt_id is None


def test_frame_too_large_names_the_setting() -> None:
    error = errors.FrameTooLargeError("a body of 11 bytes", limit_name="max_body", limit=10)
    assert str(error) == "a body of 11 bytes (limit max_body=10)"
    assert (error.limit_name, error.limit) == ("max_body", 10)


def test_body_decode_error_keeps_the_bytes() -> None:
    error = errors.BodyDecodeError("not UTF-8", body=b"\xff")
    assert error.body == b"\xff"
    assert str(error) == "not UTF-8"


def test_receipt_timeout_keeps_the_receipt() -> None:
    assert errors.ReceiptTimeoutError("not confirmed within 5 s", receipt_id="r-1").receipt_id == "r-1"


def test_outbox_errors_name_the_file() -> None:
    error = errors.OutboxDamagedError("the file is cut", path="/var/spool/a.outbox")
    assert str(error) == "outbox /var/spool/a.outbox: the file is cut"
    assert error.path == "/var/spool/a.outbox"
