from __future__ import annotations

import logging
import queue
from types import SimpleNamespace

import pytest
import stomp
from intelmq.bots.collectors.stomp.collector import StompListener, connect_and_subscribe
from intelmq.lib.message import Report
from intelmq.lib.mixins import StompMixin


class Bot(StompMixin):
    _auto_reconnect = True
    heartbeat = 6000
    auth_by_ssl_client_certificate = False
    username, password = "ann", "sesame"
    logger = logging.getLogger("bot")

    def __init__(self, place: SimpleNamespace) -> None:
        self.server, self.port, self.ssl_ca_certificate = "localhost", place.port, place.ca
        self.exchange = f"/queue/{place.name}"
        self.sent: queue.Queue[Report] = queue.Queue()
        self.stomp_bot_runtime_initial_check()

    def shutdown(self) -> None:
        self._auto_reconnect = False

    def new_report(self) -> Report:
        return Report(
            harmonization={
                "report": {
                    "raw": {"type": "Base64"},
                    "feed.url": {"type": "String"},
                    "time.observation": {"type": "DateTime"},
                }
            }
        )

    def send_message(self, report: Report) -> None:
        self.sent.put(report)


def test_a_collector_and_an_output(place: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    bot = Bot(place)
    conn, arguments = bot.prepare_stomp_connection()
    conn.set_listener("", StompListener(bot, conn, bot.exchange, connect_kwargs=arguments))
    connect_and_subscribe(
        conn, bot.logger, bot.exchange, start=stomp.__version__ < (4, 1, 20), connect_kwargs=arguments
    )
    conn.send(body="an event", destination=bot.exchange)
    report = bot.sent.get(timeout=10)
    assert report["feed.url"] == f"stomp://localhost:{place.port}/{bot.exchange}"
    bot.shutdown()
    conn.disconnect()
    assert capsys.readouterr().out == "", "the listener logs instead of printing"


def test_authorities_of_the_system_do_not_know_the_broker(place: SimpleNamespace) -> None:
    bot = Bot(place)
    bot.ssl_ca_certificate = ""
    conn, arguments = bot.prepare_stomp_connection()
    with pytest.raises((stomp.exception.StompException, OSError)):
        conn.connect(**arguments)
