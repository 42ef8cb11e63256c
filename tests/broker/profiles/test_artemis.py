"""What Artemis says, beyond what the scenarios compare."""

from __future__ import annotations

import pytest

from stompy.broker.profiles.artemis import ARTEMIS, least
from stompy.errors import RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.protocol.heartbeat import HeartbeatOffer
from tests.broker.conftest import Serve


@pytest.mark.parametrize(
    ("asked", "answered"), [((100, 100), (500, 500)), ((5000, 0), (0, 5000)), ((0, 5000), (5000, 30_000))]
)
def test_heart_beats_have_a_least_interval(asked: tuple[int, int], answered: tuple[int, int]) -> None:
    assert least(HeartbeatOffer(*asked)) == HeartbeatOffer(*answered)


def test_in_1_2_an_error_is_the_last_but_one() -> None:
    assert ARTEMIS.refuse is not None
    frame = Frame("ABORT", [("transaction", "t")])
    lasts = [ARTEMIS.refuse(RemoteProtocolError("wrong"), frame, version).last for version in (Version.V1_0, Version.V1_1, Version.V1_2)]
    assert lasts == [False, False, True]


def test_a_window_of_0_is_one_message_at_a_time(serve: Serve) -> None:
    client = serve(like="artemis").client()
    client.send("/queue/a", "1", "2")
    client.subscribe("/queue/a", "client", consumer_window_size="0")
    client.ack(client.messages(1)[0])
    assert client.bodies(1) == ["2"]
