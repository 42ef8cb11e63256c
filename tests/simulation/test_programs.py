"""Programs that a seed draws keep what was promised, in simulated worlds; more of them by `make simulate`."""

from __future__ import annotations

import pytest

from stompy.testing.faults import RECEIVED, SENT
from stompy.testing.network import READ, Weather
from stompy.transport.websocket.frames import CLOSE, MAX_FRAME, TEXT, close_payload, encode
from tests.simulation.dropins import DropInOp, DropInProgram
from tests.simulation.judge import Web, Wire, judge
from tests.simulation.plans import Consumer, Plan, Producer
from tests.simulation.programs import run, shrunk
from tests.simulation.seen import Seen, Sent
from tests.support.seed import SEED_SETTING, chance

PIECES = 10
WORLDS = 20


@pytest.mark.parametrize("piece", range(PIECES))
def test_a_drawn_world_keeps_the_promises(piece: int) -> None:
    draw = chance("worlds", piece)
    for _ in range(WORLDS):
        seed = draw.randrange(2**32)
        result = run(Plan.drawn(seed))
        assert result.breaches == [], f"python -m tests.simulation.run --seed {seed} ({SEED_SETTING})"


# A program that closes while it subscribes; copies of a message, of which the one that was tried later failed first; a
# network on which what each session gets first delays its receipts past their limit; a session for stomp.py that began
# before the callbacks of the one before were done; a message that is taken before the reader has seen the end of its
# session, which another consumer has acknowledged since.
@pytest.mark.parametrize("seed", [18975, 29487, 2022121, 2125291, 10896])
def test_what_comes_of_a_program_or_its_network_alone_is_no_breach(seed: int) -> None:
    assert run(Plan.drawn(seed)).breaches == []


def test_a_seed_has_one_trace() -> None:
    for seed in range(10):
        first, second = run(Plan.drawn(seed)), run(Plan.drawn(seed))
        assert (first.trace, first.steps, first.seconds) == (second.trace, second.steps, second.seconds)


def plan_of(**changed: object) -> Plan:
    producer = Producer("/queue/a", (("confirm", "transaction", "send"), ("async",)), resends=False, killed_at=None)
    consumer = Consumer("/queue/a", "handled", "handler", fails=0.0, slow=0.0, killed_at=None)
    settings: dict[str, object] = {"weather": Weather(), "producers": (producer,), "consumers": (consumer,)}
    settings |= {"restarts": (), "rate": 0.01, "like": None, "seed": 1} | changed
    return Plan(**settings)  # type: ignore[arg-type]


def test_a_world_without_faults_loses_nothing() -> None:
    result = run(plan_of())
    assert result.breaches == []
    assert sum("handled" in line for line in result.trace) == 6


def test_a_program_for_stomp_py_has_sent_all_before_consumers_end() -> None:
    threads: tuple[tuple[DropInOp, ...], ...] = (("pause", "confirm", "pause", "transaction"),)
    sends = DropInProgram("/queue/a", threads, None, "1.2", in_callback=False, fails=0.0, slow=0.0, killed_at=None)
    result = run(plan_of(producers=(), drop_ins=(sends,)))
    assert result.breaches == []
    assert sum("handled" in line for line in result.trace) == 4


@pytest.mark.parametrize("fragment", [40, MAX_FRAME])
def test_a_world_without_faults_loses_nothing_over_websocket(fragment: int) -> None:
    result = run(plan_of(web=("p0", "c0"), fragment=fragment))
    assert result.breaches == []
    assert sum("handled" in line for line in result.trace) == 6


def test_the_judge_finds_a_message_of_websocket_with_two_frames() -> None:
    breaches: list[str] = []
    web = Web(breaches, None)
    web.passes(SENT, b"HTTP/1.1 101 OK\r\n\r\n" + encode(TEXT, b"\n") + encode(TEXT, b"RECEIPT\n\n\0"))
    assert breaches == []
    web.passes(SENT, encode(TEXT, 2 * b"RECEIPT\n\n\0"))
    assert "is no frame of STOMP" in breaches[0]


@pytest.mark.parametrize(
    ("sent", "left", "found"),
    [
        (Sent("m", "/queue/a", "p", "confirmed"), 0, "confirmed, and is lost"),
        (Sent("m", "/queue/a", "p", "not-sent"), 1, "not-sent, and has arrived"),
        (Sent("m", "/queue/a", "p", "confirmed"), 2, "2 times"),
        (Sent("m", "/queue/a", "p", "unknown"), 0, ""),
        (Sent("m", "/queue/a", "p", "unknown"), 1, ""),
    ],
)
def test_the_judge_compares_what_was_told_with_what_happened(sent: Sent, left: int, found: str) -> None:
    seen = Seen(plan_of(), sent={"m": sent})
    seen.left["m"] = left
    breaches = judge(seen)
    assert (found in breaches[0]) if found else breaches == []


@pytest.mark.parametrize("close", [READ, RECEIVED])
def test_the_judge_knows_the_answers_that_were_read_before_a_close_frame(close: str) -> None:
    seen = Seen(plan_of(web=("p0",)), sent={name: Sent(name, "/queue/a", "p0.0", "unknown") for name in "ab"})
    web = Web(seen.breaches, Wire(seen, "p0").passes)
    web.passes(RECEIVED, b"GET / HTTP/1.1\r\n\r\n")
    web.passes(READ, b"HTTP/1.1 101 OK\r\n\r\n")
    for name in b"a", b"b":
        web.passes(RECEIVED, encode(TEXT, b"SEND\nreceipt:r-%b\n\n%b\0" % (name, name), bytes(4)))
    web.passes(READ, encode(TEXT, b"RECEIPT\nreceipt-id:r-a\n\n\0"))
    web.passes(close, encode(CLOSE, close_payload(1000), bytes(4) if close == RECEIVED else None))
    web.passes(READ, encode(TEXT, b"ERROR\nreceipt-id:r-b\n\n\0"))
    assert judge(seen) == ["a was unknown, although it had read that it was confirmed (promise 1)"]


@pytest.mark.parametrize(("header", "found"), [(b"", 1), (b"stompy-dedupe-id:m\n", 0)])
def test_the_judge_finds_a_message_that_was_written_to_two_sessions(header: bytes, found: int) -> None:
    seen = Seen(plan_of(), sent={"m": Sent("m", "/queue/a", "p0.0", "unknown")})
    for _ in range(2):
        Wire(seen, "p0").passes(RECEIVED, b"SEND\n" + header + b"\nm\0")
    assert len(judge(seen)) == found


@pytest.mark.parametrize(("resends", "found"), [(False, 1), (True, 0)])
def test_the_judge_finds_an_answer_that_was_dropped(resends: bool, found: int) -> None:
    seen = Seen(plan_of(), sent={"m": Sent("m", "/queue/a", "p", "unknown", resends=resends)})
    seen.answered["m"] = "rejected"
    assert len(judge(seen)) == found


def test_the_judge_finds_a_message_that_was_dropped() -> None:
    consumer = Consumer("/queue/a", "auto", "handler", fails=0.0, slow=0.0, killed_at=None)
    seen = Seen(plan_of(consumers=(consumer,)))
    seen.owed["c0"].add("m")
    assert judge(seen) == ["m was received by c0 in mode auto, and is lost"]


def test_the_judge_finds_a_transaction_in_part() -> None:
    seen = Seen(plan_of(), sent={name: Sent(name, "/queue/a", "p", "unknown", block="tx") for name in "ab"})
    seen.left["a"] = 1
    assert judge(seen) == ["the transaction tx took effect in part: [True, False] (promise 9)"]


def test_a_plan_shrinks_to_what_makes_it_fail() -> None:
    def fails(plan: Plan) -> bool:
        return any("transaction" in ops for producer in plan.producers for ops in producer.threads)

    smallest = shrunk(Plan.drawn(6), fails) if fails(Plan.drawn(6)) else shrunk(plan_of(), fails)
    assert [producer.threads for producer in smallest.producers] == [(("transaction",),)]
    assert smallest.consumers == ()
