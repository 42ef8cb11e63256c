from __future__ import annotations

import os
import queue
import uuid

import pytest
from django.conf import settings

settings.configure(
    DATABASES={},
    STOMP_SERVER_HOST="127.0.0.1",
    STOMP_SERVER_PORT=os.environ["PUBLISHED_PORT"],
    STOMP_SERVER_USER="ann",
    STOMP_SERVER_PASSWORD="sesame",
    STOMP_PROCESS_MSG_WORKERS=2,
)

import django  # noqa: E402
from django_stomp.builder import build_listener, build_publisher  # noqa: E402
from django_stomp.execution import send_message_from_one_destination_to_another, start_processing  # noqa: E402

django.setup()
got: queue.Queue[object] = queue.Queue()


def take(payload: object) -> None:
    got.put((payload.body, payload.headers.get("correlation-id")))
    payload.ack()


@pytest.fixture
def name() -> str:
    return f"/queue/django.{uuid.uuid4().hex}"


@pytest.mark.parametrize("background", [True, False])
def test_what_is_published_is_processed(name: str, background: bool) -> None:
    listener = build_listener(name, should_process_msg_on_background=background)
    listener.start(take, wait_forever=False)
    with build_publisher("a").auto_open_close_connection() as publisher:
        publisher.send({"a": "ä"}, name, headers={"correlation-id": "7"})
        assert got.get(timeout=10) == ({"a": "ä"}, "7")
        with publisher.do_inside_transaction():
            publisher.send({"n": 1}, name)
            publisher.send({"n": 2}, name)
        assert [got.get(timeout=10)[0]["n"] for _ in range(2)] == [1, 2]
        with pytest.raises(TypeError), publisher.do_inside_transaction():
            publisher.send({"n": 3, "x": object()}, name)
        publisher.send({"n": 4}, name)
        assert got.get(timeout=10)[0] == {"n": 4}
    listener.close()
    assert not listener.is_open()


def test_the_consumer_of_the_command(name: str) -> None:
    listener = start_processing(name, f"{__name__}.take", is_testing=True, return_listener=True)
    listener.close()


def test_messages_move(name: str) -> None:
    with build_publisher("b").auto_open_close_connection() as publisher:
        publisher.send({"n": 1}, name)
    mover = send_message_from_one_destination_to_another(name, f"{name}.moved", is_testing=True, return_listener=True)
    listener = build_listener(f"{name}.moved")
    listener.start(take, wait_forever=False)
    assert got.get(timeout=10)[0] == {"n": 1}
    listener.close()
    mover.close()
