"""How a profile refuses a frame."""

from __future__ import annotations

from stompy.broker.profile import OWN, exact_versions
from stompy.broker.refusals import Refusal, refusal_frames
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version, grammar_of
from stompy.frames.parser import Parser

GRAMMAR = grammar_of(Version.V1_2)
SEND = Frame("SEND", [("destination", "/queue/a"), ("receipt", "r")])


def test_an_error_names_the_frame_where_the_broker_does_so() -> None:
    assert b"\nreceipt-id:r\n" in b"".join(refusal_frames(Refusal("no"), SEND, GRAMMAR))
    assert b"receipt-id" not in b"".join(refusal_frames(Refusal("no", named=False), SEND, GRAMMAR))
    assert b"receipt-id" not in b"".join(refusal_frames(Refusal("no"), None, GRAMMAR))


def test_an_error_is_one_line_and_has_a_length_where_the_broker_gives_one() -> None:
    frame = b"".join(refusal_frames(Refusal("a\nb", detail="more", headers=(("version", "1.2"),)), SEND, GRAMMAR))
    assert frame.startswith(b"ERROR\nmessage:a b\ncontent-type:text/plain\nversion:1.2\n")
    assert frame.endswith(b"content-length:4\n\nmore\0")
    assert b"content-length" not in b"".join(refusal_frames(Refusal("no", length=False), SEND, GRAMMAR))


def test_the_own_ways_pass_everything_on() -> None:
    assert OWN.translate("SEND", {"a": "1"}.get)("a") == "1"
    assert not OWN.takes


def test_a_refused_frame_may_get_its_receipt_too() -> None:
    before = Parser(GRAMMAR).feed(b"".join(refusal_frames(Refusal("no", confirmed="before"), SEND, GRAMMAR)))
    after = Parser(GRAMMAR).feed(b"".join(refusal_frames(Refusal("no", confirmed="after"), SEND, GRAMMAR)))
    assert [frame.command for frame in before] == ["RECEIPT", "ERROR"]
    assert [frame.command for frame in after] == ["ERROR", "RECEIPT"]
    assert b"RECEIPT" not in b"".join(refusal_frames(Refusal("no", confirmed="after"), None, GRAMMAR))


def test_a_space_in_accept_version_belongs_to_its_item() -> None:
    assert exact_versions("1.0, 1.1,1.2") == (Version.V1_0, Version.V1_2)
    assert exact_versions(None) == (Version.V1_0,)
