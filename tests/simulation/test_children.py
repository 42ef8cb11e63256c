"""Processes in a simulated world, and workers with child processes: their ends, their signals, the judge of both."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import pytest

from stompy.testing.replaced import installed
from stompy.testing.world import Thread
from stompy.worker import processes
from tests.simulation.plans import Producer
from tests.simulation.processes import System, with_processes
from tests.simulation.programs import Run, run
from tests.simulation.test_workers import plan_of, program, tried
from tests.simulation.workers import Happening, Kind, Watch, breaches


def in_a_system(main: Callable[[System], None]) -> System:
    """Run a program in a world with processes."""
    system = System(lambda able, current: 0)
    with installed(), with_processes():
        system.run(partial(main, system))
    return system


def test_a_signal_runs_its_handler_in_the_first_thread_of_a_process_which_then_waits_on() -> None:
    seen: list[tuple[str, float]] = []

    def main(system: System) -> None:
        def program() -> int:
            signals = vars(processes)["signal"]
            signals.signal(signal.SIGTERM, lambda number, frame: seen.append((system.current.name, system.now)))
            Thread(lambda: system.switch(lambda: False, 9.0), "second").start()
            system.switch(lambda: False, 5.0)
            return 3

        system.start("a", program)
        system.switch(lambda: False, 1.0)
        system.signal("a", signal.SIGTERM)
        system.switch(lambda: "a" in system.codes)
        seen.append(("end", system.now))

    assert in_a_system(main).codes == {"a": 3}
    assert [(name, round(at)) for name, at in seen] == [("a", 1001), ("end", 1005)]


def test_a_handler_that_raises_ends_the_wait_and_a_signal_without_one_ends_the_process() -> None:
    def main(system: System) -> None:
        def raises() -> int:
            vars(processes)["signal"].signal(signal.SIGTERM, lambda number, frame: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                system.switch(lambda: False)
            return 4

        system.start("raises", raises)
        system.start("plain", lambda: int(system.switch(lambda: False)))
        system.switch(lambda: False, 1.0)
        system.signal("raises", signal.SIGTERM)
        system.signal("plain", signal.SIGTERM)
        system.switch(lambda: len(system.codes) == 2)

    assert in_a_system(main).codes == {"raises": 4, "plain": -signal.SIGTERM}


def test_a_pipe_ends_when_the_process_is_killed_that_has_its_other_end() -> None:
    seen: list[str] = []

    def main(system: System) -> None:
        def program() -> int:
            os = vars(processes)["os"]
            if number := os.environ.pop("PIPE", ""):
                while not seen:
                    try:
                        seen.append(f"{os.read(int(number), 1)!r} after {system.now - 1000:.0f} s")
                    except BlockingIOError:
                        system.switch(lambda: False, 0.5)
                return 0
            reading, _ = os.pipe()
            popen = vars(processes)["subprocess"].Popen
            return int(popen([], env={"PIPE": str(reading)}, pass_fds=(reading,), start_new_session=True).wait())

        system.start("parent", program)
        system.switch(lambda: False, 3.0)
        assert seen == []
        system.signal("parent", signal.SIGKILL)
        system.switch(lambda: len(system.codes) == 2)

    assert sorted(in_a_system(main).codes.values()) == [-signal.SIGKILL, 0]
    assert seen in (["b'' after 3 s"], ["b'' after 4 s"])


def ran(kind: Kind = "plain", *events: tuple[float, Happening], slow: float = 1.0, threads: int = 1) -> Run:
    pauses: tuple[str, ...] = ("pause",) * 4
    producer = Producer("/queue/a", (("confirm", "transaction", *pauses), ("async",)), resends=False, killed_at=None)  # type: ignore[arg-type]
    worker = program(kind, attempts=3, threads=threads, slow=slow, children=2, events=events)
    result = run(plan_of(worker, producers=(producer,)))
    assert result.breaches == []
    return result


def lines(result: Run, text: str) -> list[str]:
    return [line for line in result.trace if text in line]


@pytest.mark.parametrize("kind", ["plain", "keyed", "transactional"])
def test_children_process_each_message_once(kind: Kind) -> None:
    result = ran(kind)
    assert len(lines(result, "returned")) == 5
    assert len(lines(result, "has ended with 0")) == 3


@pytest.mark.parametrize("kind", ["plain", "keyed", "transactional"])
def test_a_message_whose_child_was_killed_is_tried_for_the_second_time(kind: Kind) -> None:
    result = ran(kind, (0.2, "kill child"))
    (killed,) = lines(result, ": running")
    body = killed.split()[-2]
    assert [line.split()[3] for line in lines(result, f"at {body}") if "returned" in line] == ["2"]
    assert len(lines(result, "has ended with 0")) == 3


def test_none_of_several_messages_whose_child_was_killed_has_failed() -> None:
    result = ran("plain", (0.2, "kill child"), threads=4)
    assert len(lines(result, ": running")) > 1
    assert lines(result, "attempt 2") == []


def test_children_end_with_their_parent_and_others_take_their_place() -> None:
    result = ran("plain", (0.2, "kill parent"))
    assert len(lines(result, "w0 is killed")) == 1
    assert len(lines(result, "has ended with 0")) == 5
    assert lines(result, ": running") == []


@pytest.mark.parametrize("what", ["stop", "stop all", "signal child"])
def test_signals_let_running_tasks_finish(what: Happening) -> None:
    result = ran("plain", (1.0, what))
    assert lines(result, "has ended with -") == []
    assert lines(result, ": running") == []


def test_a_second_signal_ends_a_worker_at_once() -> None:
    result = ran("plain", (1.0, "stop twice"), slow=9.0)
    assert len(lines(result, "w0 has ended with 143")) == 1


def test_children_that_end_in_order_are_replaced_although_there_was_nothing_to_do() -> None:
    producer = Producer("/queue/a", (("pause",) * 12 + ("confirm",),), resends=False, killed_at=None)
    result = run(plan_of(program(children=1, max_seconds=0.5), producers=(producer,)))
    assert result.breaches == []
    assert len(lines(result, "has ended with 0")) > 6
    assert len(lines(result, "returned")) == 1


def test_a_world_with_processes_has_one_trace() -> None:
    events: tuple[tuple[float, Happening], ...] = ((0.2, "kill child"), (0.8, "stop all"), (1.5, "kill parent"))
    first, second = ran("plain", *events, threads=2), ran("plain", *events, threads=2)
    assert (first.trace, first.steps, first.seconds) == (second.trace, second.steps, second.seconds)


@pytest.mark.parametrize(
    ("died", "result", "number", "found"),
    [
        (0.5, "crashed", 2, ""),
        (0.5, "crashed", 1, "attempt 1 at p.0.1 began again, although a process had died"),
        (0.5, "interrupted", 1, ""),
        (0.5, "interrupted", 2, "attempt 2 at p.0.1 began, and 1 had not failed"),
    ],
)
def test_the_judge_knows_which_message_has_killed_a_child(died: float, result: str, number: int, found: str) -> None:
    first, second = tried(1, result, 0.0, ended=died), tried(number, "returned", 5.0)
    first.died = died
    watch = Watch(program(children=2), tried=[first, second])
    breached = list(breaches(watch, None, {}, set(), set(), faultless=False))
    assert any(found in breach for breach in breached) if found else breached == []


def test_the_judge_finds_what_runs_beside_a_suspect() -> None:
    watch = Watch(program(children=2), beside=[("p.0.1", "p.0.2")])
    assert list(breaches(watch, None, {}, {"p.0.1"}, set(), faultless=False)) == []
    assert "beside p.0.2" in next(breaches(watch, None, {}, set(), set(), faultless=False))
