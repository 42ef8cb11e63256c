"""Limits of time, where a test that waits for a clock of the machine would depend on its load."""

from __future__ import annotations

from pathlib import Path

import pytest

import stompy
from stompy.locks import SafeEvent
from stompy.testing.faults import FaultPlan
from stompy.testing.network import Network, Weather
from stompy.testing.replaced import installed
from stompy.testing.world import World
from stompy.transport.tcp import TcpDialer
from stompy.worker.processes import Crashes, Note, collect
from tests.connection.conftest import QUICK, Recorder
from tests.simulation.pieces import received_of_embedded, together


def test_when_the_time_is_over_the_last_reasons_are_told() -> None:
    listener = Recorder()
    world = World(lambda able, current: 0)
    network = Network(world, world.random, Weather(), FaultPlan())

    def program() -> None:
        with pytest.raises(stompy.AllBrokersFailedError, match=r"refused.*refused") as failed:
            stompy.connect(
                ["stomp://one:1", "stomp://two:2"],
                timeouts=stompy.Timeouts(start=5),
                reconnect=QUICK,
                listeners=[listener],
            )
        assert len(failed.value.errors) == 2
        assert world.alive == [world.current]
        assert listener.names == []

    began = world.now
    with installed(TcpDialer=(TcpDialer, network.dialer)):
        world.run(program)
    # A tenth of the time is kept for the last attempt.
    assert world.now - began == pytest.approx(4.5, abs=0.01)


@pytest.mark.parametrize("dies", [True, False])
def test_a_message_of_another_child_runs_when_that_child_was_found_dead_or_has_reported(
    tmp_path: Path, dies: bool
) -> None:
    """However long a child takes to die, of which the system has ended the session before."""
    for number in (1, 2):
        (tmp_path / f"running-{number}").write_bytes(bytes(32 * 1_024))
    world = World(lambda able, current: 0)
    crashed: list[int | None] = []

    def look() -> None:
        crashed.append(Note(other, received_of_embedded(**{"message-id": "1", "redelivered": "true"})).crashed)

    def show() -> None:
        SafeEvent().wait(8.0)
        if dies:
            collect(tmp_path, 1)
        else:
            (tmp_path / "health-1").write_text("{}")

    def program() -> None:
        Note(one, received_of_embedded(**{"message-id": "1"})).begin(1, SafeEvent())
        together(look, show)

    with installed():
        one, other = Crashes(tmp_path, 1), Crashes(tmp_path, 2)
        began = world.now
        world.run(program)
    assert crashed == [1 if dies else None]
    assert world.now - began == pytest.approx(8.0, abs=0.1)


def test_a_record_that_a_living_child_holds_for_a_copy_that_waits_is_left_to_the_next_copy(tmp_path: Path) -> None:
    """The session of the copy that waits has ended, which its child notices after another one has the next copy."""
    for number in (1, 2, 3):
        (tmp_path / f"running-{number}").write_bytes(bytes(32 * 1_024))
    world = World(lambda able, current: 0)
    again = {"message-id": "1", "redelivered": "true"}
    ran_alone: list[bool] = []

    def next_copy() -> None:
        Note(third, received_of_embedded(**again)).begin(1, SafeEvent())
        ran_alone.append(not third.begin(lambda: True, alone=False))

    def notice() -> None:
        (tmp_path / "health-2").write_text("{}")
        SafeEvent().wait(5.0)
        waiting.end()

    first = Crashes(tmp_path, 1)
    for message in ("1", "2"):
        Note(first, received_of_embedded(**{"message-id": message})).begin(1, SafeEvent())
    assert collect(tmp_path, 1) == 2
    waiting = Note(Crashes(tmp_path, 2), received_of_embedded(**again))
    with installed():
        third = Crashes(tmp_path, 3)
        world.run(lambda: together(next_copy, notice))
    assert ran_alone == [True]


def test_a_child_that_ends_in_order_while_a_message_runs_leaves_what_it_knew_of_that_message(tmp_path: Path) -> None:
    """One child dies while it runs a message, the next is stopped in its second attempt, and a third gets it."""
    for number in (1, 2, 3):
        (tmp_path / f"running-{number}").write_bytes(bytes(32 * 1_024))
    again = {"message-id": "1", "redelivered": "true"}
    Note(Crashes(tmp_path, 1), received_of_embedded(**{"message-id": "1"})).begin(1, SafeEvent())
    assert collect(tmp_path, 1) == 1
    second = Crashes(tmp_path, 2)
    note = Note(second, received_of_embedded(**again))
    assert note.crashed == 1
    note.begin(2, SafeEvent())
    second.close()
    assert collect(tmp_path, 2) == 0
    assert Note(Crashes(tmp_path, 3), received_of_embedded(**again)).crashed == 1


def test_a_child_that_dies_when_it_has_taken_a_record_leaves_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"running-{number}").write_bytes(bytes(32 * 1_024))
    again = {"message-id": "1", "redelivered": "true"}
    Note(Crashes(tmp_path, 1), received_of_embedded(**{"message-id": "1"})).begin(1, SafeEvent())
    assert collect(tmp_path, 1) == 1
    unlink = Path.unlink

    def dies(path: Path) -> None:
        unlink(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", dies)
        with pytest.raises(KeyboardInterrupt):
            Note(Crashes(tmp_path, 2), received_of_embedded(**again))
    assert collect(tmp_path, 2) == 0
    assert Note(Crashes(tmp_path, 3), received_of_embedded(**again)).crashed == 1
