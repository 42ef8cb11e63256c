from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.errors import ConnectTimeout, SpoolBusy, SpoolFull
from stompy.spark.receiver.crew import Onlooker, ThreadCrew
from stompy.spark.source_options import spool_options
from tests.spark.receiver.filling import QUEUE, bodies, eventually, fill, receiving, spool_in

HOUR = 3600.0


def test_lanes_share_what_comes(tmp_path: Path) -> None:
    with Broker(prefetch=10) as broker, receiving(broker, tmp_path, receivers="3", prefetch="10") as crew:
        eventually(lambda: crew.subscribed_for() > 0)
        fill(broker.url, range(500))
        eventually(lambda: sum(lane.next for lane in crew.lanes) == 500)
        assert [lane.lane for lane in crew.lanes] == [0, 1, 2]
    assert sorted(number for lane in range(3) for number in bodies(tmp_path, lane=lane)) == list(range(500))


def test_a_second_crew_is_refused_and_leaves_no_lane_taken(tmp_path: Path) -> None:
    with Broker() as broker:
        with receiving(broker, tmp_path, receivers="2") as first:
            with pytest.raises(SpoolBusy), receiving(broker, tmp_path, receivers="2"):
                pass
            fill(broker.url, range(10))
            eventually(lambda: sum(lane.next for lane in first.lanes) == 10)
            first.check()
        with receiving(broker, tmp_path, receivers="2"):
            pass


def test_with_fewer_receivers_the_other_lanes_can_still_be_read(tmp_path: Path) -> None:
    with Broker(prefetch=1) as broker:
        with receiving(broker, tmp_path, receivers="2", prefetch="1") as crew:
            fill(broker.url, range(20))
            eventually(lambda: sum(lane.next for lane in crew.lanes) == 20)
            counts = [lane.next for lane in crew.lanes]
        with receiving(broker, tmp_path) as crew:
            assert [lane.next for lane in crew.lanes] == counts


def test_stopping_twice_is_once(tmp_path: Path) -> None:
    with Broker() as broker, receiving(broker, tmp_path) as crew:
        crew.stop()
        crew.stop()


def test_who_watches_is_woken_when_a_receiver_cannot_go_on(tmp_path: Path) -> None:
    with Broker() as broker, receiving(broker, tmp_path) as crew:

        def left() -> float:
            crew.healths[0].fail(SpoolFull("no room", path="/spool"))
            return HOUR

        with pytest.raises(SpoolFull):
            crew.watch(left)


def test_who_watches_is_woken_when_the_receivers_are_done(tmp_path: Path) -> None:
    options = {"destination": QUEUE, "spooldir": str(tmp_path / "spool")}
    with Broker() as broker:
        crew = ThreadCrew(spool_options({"url": broker.url, **options}), spool_in(tmp_path), limit=10)

        def left() -> float:
            if not crew.finished and not crew.writers[0].next:
                fill(broker.url, range(10))
            return 0.0 if crew.finished else HOUR

        try:
            crew.watch(left)
        finally:
            crew.stop()
    assert bodies(tmp_path) == list(range(10))


def test_who_watches_hears_of_a_broker_that_was_away_for_too_long(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the call, and says nothing
        url = f"stomp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            receiving(url, tmp_path, brokertimeout="200ms", connecttimeout="2") as crew,
            pytest.raises(ConnectTimeout, match=r"brokerTimeout.*no connection yet"),
        ):
            crew.watch(lambda: HOUR)


def test_an_onlooker_sees_lanes_that_come_later(tmp_path: Path) -> None:
    onlooker = Onlooker(spool_in(tmp_path))
    assert list(onlooker.lanes) == []
    with Broker() as broker, receiving(broker, tmp_path) as crew:
        fill(broker.url, range(10))
        eventually(lambda: crew.lanes[0].next == 10)
        (lane,) = onlooker.lanes
        lane.refresh()
        assert lane.next == 10
        onlooker.check()
        # What the reader was told and has processed reaches the receiver, which has the limit to keep.
        lane.note_planned(10)
        onlooker.stop()
        eventually(lambda: crew.writers[0].planned == 10)
        eventually(lambda: crew.writers[0].settled == 10)
    assert onlooker.lanes[0].purge(10) == 10
