"""Workers in a simulated world: worlds that failed once, and the verdicts of the judge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stompy.testing.faults import Cut, Delay, Drop
from stompy.testing.network import Weather
from tests.simulation.outboxes import Arrival, OutboxProgram
from tests.simulation.outboxes import breaches as of_outboxes
from tests.simulation.plans import Plan, Producer
from tests.simulation.programs import IDLE, run
from tests.simulation.workers import Kind, Tried, Watch, WorkerProgram, breaches


def program(kind: Kind = "plain", **changed: object) -> WorkerProgram:
    settings: dict[str, object] = {"attempts": 2, "threads": 2, "prefetch": None, "fails": 0.0, "rejects": 0.0}
    settings |= {"slow": 0.0, "time_limit": None, "kills": ()} | changed
    return WorkerProgram("/queue/a", kind, **settings)  # type: ignore[arg-type]


def plan_of(worker: WorkerProgram, **changed: object) -> Plan:
    producer = Producer("/queue/a", (("confirm", "transaction", "send"), ("async",)), resends=False, killed_at=None)
    settings: dict[str, object] = {"weather": Weather(), "producers": (producer,), "consumers": (), "rate": 0.01}
    settings |= {"restarts": (), "like": None, "seed": 1, "workers": (worker,)} | changed
    return Plan(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["plain", "keyed", "transactional"])
def test_a_world_without_faults_processes_each_message_once(kind: Kind) -> None:
    result = run(plan_of(program(kind)))
    assert result.breaches == []
    assert sum(line.endswith("returned") for line in result.trace) == 6


def test_a_worker_whose_first_sessions_are_lost_while_it_subscribes_starts_at_last() -> None:
    result = run(plan_of(program(), frames=(Delay("RECEIPT", nth=1, seconds=5.0),)))
    assert result.breaches == []


def test_a_worker_that_starts_late_has_its_time_from_then_on() -> None:
    # The RECEIPT of each SUBSCRIBE is dropped, the last one just before nothing breaks any more.
    producer = Producer("/queue/a", (("pause",) * 62 + ("send",),), resends=False, killed_at=None)
    result = run(plan_of(program(), producers=(producer,), frames=(Drop("RECEIPT", nth=1),)))
    assert result.breaches == []
    times = {what: float(at) for at, _, what in (line.split(maxsplit=2) for line in result.trace)}
    assert times["w0 has started"] > times["close"] + IDLE


def test_a_child_that_is_killed_counts_as_a_failed_attempt_although_the_session_ends_while_that_is_noted() -> None:
    # The transaction with the dead letter is lost with its session, until nothing breaks any more.
    producer = Producer("/queue/a", (("confirm", "pause", "pause", "pause", "pause"),), resends=False, killed_at=None)
    worker = program(attempts=1, threads=1, slow=1.0, children=1, events=((0.1, "kill child"),))
    result = run(plan_of(worker, producers=(producer,), frames=(Cut("COMMIT", nth=1, keep=9),)))
    assert result.breaches == []
    assert sum("attempt 1 at p0.0.0" in line and not line.endswith("running") for line in result.trace) == 1
    assert any("cut at" in line for line in result.trace)


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("at", [0.5, 0.7, 0.9, 1.1, 1.5])
def test_a_message_runs_alone_after_the_death_of_its_child_although_a_session_ends_while_it_waits(
    at: float, threads: int
) -> None:
    producer = Producer("/queue/a", (("send",) * 12,), resends=False, killed_at=None)
    worker = program(attempts=1, threads=threads, slow=1.0, children=2, prefetch=10, events=((0.1, "kill child"),))
    assert run(plan_of(worker, producers=(producer,), restarts=(at,))).breaches == []


def tried(attempt: int, result: str, began: float, *, body: str = "p.0.1", ended: float | None = None) -> Tried:
    key = body.rpartition(".")[0]
    return Tried(body, attempt, began, key, 1, result, began if ended is None else ended)  # type: ignore[arg-type]


DEAD = {"stompy-reason": "failed 2 times", "stompy-attempts": "2"}


@pytest.mark.parametrize(
    ("kind", "noted", "dead", "found"),
    [
        ("plain", [tried(1, "returned", 0.0)], [], ""),
        ("plain", [tried(1, "raised", 0.0), tried(2, "returned", 0.5)], [], ""),
        ("plain", [tried(1, "raised", 0.0), tried(2, "raised", 0.5)], [DEAD], ""),
        ("plain", [tried(1, "returned", 0.0), tried(1, "returned", 1.0)], [], "began twice"),
        ("plain", [tried(1, "raised", 0.0), tried(2, "returned", 0.2)], [], "began 0.20 s after"),
        ("plain", [tried(2, "returned", 0.2)], [], "1 had not failed"),
        ("plain", [tried(1, "raised", 0.0), tried(2, "raised", 0.5), tried(3, "returned", 9.0)], [], "3th time, of 2"),
        ("plain", [tried(1, "raised", 0.0)], [DEAD], "its last attempt has not failed"),
        ("plain", [tried(1, "raised", 0.0)], [{"stompy-reason": "rejected"}], "no task has rejected it"),
        ("plain", [tried(1, "raised", 0.0)], [{}], "with the reason ''"),
        ("plain", [tried(1, "raised", 0.0), tried(2, "raised", 0.5)], [DEAD, DEAD], "is 2 dead letters"),
        ("transactional", [tried(1, "returned", 0.0)], [], "acknowledged without what its transactional task"),
        ("keyed", [tried(1, "returned", 0.0, body="p.0.2"), tried(1, "returned", 1.0)], [], "were first tried as"),
        ("keyed", [tried(1, "returned", 0.0), tried(1, "returned", 1.0, body="p.0.0")], [], ""),
    ],
)
def test_the_judge_compares_attempts_with_what_is_left(
    kind: Kind, noted: list[Tried], dead: list[Mapping[str, str]], found: str
) -> None:
    watch = Watch(program(kind), tried=noted)
    watch.dead["p.0.1"] = dead
    left = {"p.0.1": len(dead)}
    breached = list(breaches(watch, None, left, set(), {"p.0.1"}, faultless=True))
    assert any(found in breach for breach in breached) if found else breached == []


def outbox(**changed: object) -> OutboxProgram:
    settings: dict[str, object] = {"threads": (3, 2), "pause": 0.2, "batch": 2, "kills": (0.1, 0.4)} | changed
    return OutboxProgram("/queue/a", **settings)  # type: ignore[arg-type]


def test_what_an_outbox_put_arrives_although_its_program_is_killed() -> None:
    result = run(plan_of(program(threads=1, prefetch=1), producers=(), outboxes=(outbox(),)))
    assert result.breaches == []
    assert sum("is killed" in line for line in result.trace) == 2
    handled = {line.split()[-2] for line in result.trace if line.endswith("returned")}
    assert handled == {"o0.0.0:", "o0.0.1:", "o0.0.2:", "o0.1.0:", "o0.1.1:"}


def test_a_message_that_is_tried_alone_and_not_written_is_not_taken_for_confirmed() -> None:
    assert run(Plan.drawn(106442)).breaches == []


@pytest.mark.parametrize(
    ("arrived", "found"),
    [
        (["1 x", "2 y", "1 x"], ""),
        (["1 x", "1 y"], "the copies of 1 have the ids ['x', 'y']"),
        (["1 x", "2 x"], "['1', '2'] have the same id x"),
        (["2 y", "1 x"], "what o put has arrived as ['2', '1']"),
    ],
)
def test_the_judge_compares_what_arrived_with_what_was_put(arrived: list[str], found: str) -> None:
    arrivals = [Arrival("/queue/a", *text.split()) for text in arrived]
    assert list(of_outboxes(arrivals, {"o": ["1", "2"]}, [])) == ([found] if found else [])
