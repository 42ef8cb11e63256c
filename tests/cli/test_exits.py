from __future__ import annotations

import signal

import pytest

from stompy import errors
from stompy.cli.exits import Exit, Terminated, code_of, interruption
from stompy.frames.frame import Frame

ERROR = Frame("ERROR", {"message": "no"})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("bad"), 2),
        (errors.ConnectError("nobody"), 3),
        (errors.ConnectTimeoutError("slow"), 3),
        (errors.AllBrokersFailedError([errors.ConnectError("nobody")]), 3),
        (errors.ConnectionLostError("gone"), 3),
        (errors.HeartbeatTimeoutError("silent"), 3),
        (errors.SendTimeoutError("deaf"), 3),
        (errors.NotConnectedError("closed"), 3),
        (errors.BrokerError("no", frame=ERROR), 4),
        (errors.ConnectRefusedError("no", frame=ERROR), 4),
        (errors.VersionMismatchError("no", offered=["1.2"], supported=["1.0"]), 4),
        (errors.LocalProtocolError("you"), 5),
        (errors.RemoteProtocolError("they"), 5),
        (errors.ReceiptTimeoutError("late", receipt_id="1"), 6),
        (errors.ReceiveTimeoutError("late"), 6),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_error_has_its_code(error: errors.StompError, code: int) -> None:
    assert code_of(error) == code


def test_a_signal_is_told_by_its_number() -> None:
    assert interruption(KeyboardInterrupt()) == 128 + signal.SIGINT
    assert interruption(Terminated()) == 128 + signal.SIGTERM
    assert Exit.BROKEN_PIPE == 128 + signal.SIGPIPE
