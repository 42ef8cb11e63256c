"""What a broker means by the ERROR that it answers to CONNECT; the frames were seen on the wire."""

from __future__ import annotations

import pytest

from stompy.dialects.refusals import client_id_in_use, knows_no_such_host
from stompy.frames.frame import Frame

NO_SUCH_HOST = Frame("ERROR", {"message": "Bad CONNECT"}, b"Virtual host 'localhost' access denied")
WRONG_PASSCODE = Frame("ERROR", {"message": "Bad CONNECT"}, b"Access refused for user 'guest'\n")
IN_USE = Frame("ERROR", {"message": "Broker: b - Client: me already connected from tcp://127.0.0.1:48770"})
WRONG_LOGIN = Frame("ERROR", {"message": "User name [me] or password is invalid."})


@pytest.mark.parametrize("frame", [NO_SUCH_HOST, WRONG_PASSCODE, IN_USE, WRONG_LOGIN, Frame("ERROR")])
def test_each_refusal_is_taken_for_what_it_is(frame: Frame) -> None:
    assert knows_no_such_host(frame) == (frame is NO_SUCH_HOST)
    assert client_id_in_use(frame) == (frame is IN_USE)
