from __future__ import annotations

import pickle

from stompy.frames.frame import Frame, show_body
from stompy.frames.headers import Headers


def test_headers_may_come_in_any_shape() -> None:
    headers = Headers({"k": "v"})
    assert Frame("SEND", headers).headers is headers
    assert Frame("SEND", {"k": "v"}).headers == headers
    assert Frame("SEND", [("k", "v")]).headers == headers
    assert (Frame("ACK").headers.pairs, Frame("ACK").body) == ((), b"")


def test_frames_are_equal_by_command_headers_and_body() -> None:
    frame = Frame("SEND", {"k": "v"}, b"x")
    assert frame == Frame("SEND", [("k", "v")], b"x")
    assert hash(frame) == hash(Frame("SEND", [("k", "v")], b"x"))
    for other in (Frame("ACK", {"k": "v"}, b"x"), Frame("SEND", {}, b"x"), Frame("SEND", {"k": "v"}, b"y"), "SEND"):
        assert frame != other


def test_a_frame_can_be_pickled() -> None:
    frame = Frame("SEND", [("k", "v"), ("k", "w")], b"x")
    assert pickle.loads(pickle.dumps(frame)) == frame


def test_repr_shows_what_it_holds_but_no_passcode() -> None:
    assert repr(Frame("SEND", {"k": "v"}, b"x")) == "<Frame SEND Headers({'k': 'v'}) b'x'>"
    assert "s3cret" not in repr(Frame("CONNECT", {"passcode": "s3cret"}))


def test_a_long_body_is_shown_cut() -> None:
    assert show_body(b"x" * 60) == repr(b"x" * 60)
    assert show_body(b"x" * 61) == repr(b"x" * 60) + "… (61 octets)"
