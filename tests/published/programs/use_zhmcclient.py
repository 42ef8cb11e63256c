from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest
import stomp
from zhmcclient import NotificationConnectionError, NotificationReceiver, StompRetryTimeoutConfig

CONFIG = StompRetryTimeoutConfig(connect_timeout=5, connect_retries=1, reconnect_sleep_initial=0.1)


def receiver(place: SimpleNamespace, *topics: str, verify: object) -> NotificationReceiver:
    return NotificationReceiver(
        list(topics), "localhost", "ann", "sesame", port=place.port, stomp_rt_config=CONFIG, verify_cert=verify
    )


def test_notifications(place: SimpleNamespace) -> None:
    one = receiver(place, place.name, f"{place.name}.2", verify=place.ca)
    got = []

    def read() -> None:
        for headers, message in one.notifications():
            got.append((headers["notification-type"], message))
            if len(got) == 2:
                one.close()

    thread = threading.Thread(target=read)
    thread.start()
    sender = stomp.Connection([("localhost", place.port)])
    sender.set_ssl([("localhost", place.port)], ca_certs=place.ca)
    sender.connect("ann", "sesame", wait=True)
    limit = threading.Event()
    while not (one.is_connected() and one.is_subscribed(f"{place.name}.2")):
        limit.wait(0.05)
    limit.wait(0.5)
    for name in (place.name, f"{place.name}.2"):
        headers = {"notification-type": "os-message"}
        sender.send(f"/topic/{name}", json.dumps({"name": name}), "application/json", headers)
    thread.join(30)
    assert got == [("os-message", {"name": place.name}), ("os-message", {"name": f"{place.name}.2"})]
    sender.disconnect()


def test_subscriptions(place: SimpleNamespace) -> None:
    one = receiver(place, verify=place.ca)
    one.connect()
    first = one.subscribe(place.name)
    assert one.get_subscription(place.name) == first
    one.unsubscribe(place.name)
    one.close()


def test_no_trust_in_the_broker(place: SimpleNamespace) -> None:
    with pytest.raises(NotificationConnectionError):
        receiver(place, verify=True).connect()


def test_no_verification(place: SimpleNamespace) -> None:
    one = receiver(place, verify=False)
    one.connect()
    assert one.is_connected()
    one.close()
