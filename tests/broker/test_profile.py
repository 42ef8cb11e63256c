"""How a profile refuses a frame."""

from __future__ import annotations

from stompy.broker.profile import OWN, Profile, exact_versions
from stompy.broker.refusals import Refusal, refusal_frames
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version, grammar_of
from stompy.frames.parser import Parser
from stompy.protocol.rules import Fault

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


def test_a_refusal_is_that_of_command_and_fault_then_of_the_fault_then_of_the_command() -> None:
    places = {("ACK", Fault.NO_ID): "both", ("", Fault.NO_ID): "fault", ("ACK", None): "command", ("", None): "usual"}
    rules = Profile(refusals={place: Refusal(text) for place, text in places.items()})
    asked = [("ACK", Fault.NO_ID), ("NACK", Fault.NO_ID), ("ACK", Fault.LOCKED), ("NACK", Fault.LOCKED)]
    assert [rules.said(*place, lambda name: None).message for place in asked] == ["both", "fault", "command", "usual"]


def test_names_in_braces_in_a_refusal_stand_for_values_and_headers() -> None:
    refusal = Refusal("{id}, {command}: {error}, {login}", "<{message}>")
    rules = Profile(refusals={("", None): refusal}, unsaid="null")
    said = rules.said("ACK", None, {"id": "{login}", "command": "x"}.get, command="ACK", error="no {id}")
    assert said.message == "{login}, ACK: no {id}, null"  # what a client writes is not read once more
    assert said.detail == f"<{said.message}>"
