"""The settings of a connection."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import stompy
from stompy.connection.config import Config, addresses_of, versions_of
from stompy.connection.reconnect import Reconnect
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Version
from stompy.link.settings import Credentials, LinkSettings
from stompy.secret import Secret
from stompy.transport.tcp import TcpOptions
from stompy.transport.tls.options import Tls


def config(url: str = "stomp://broker", **settings: Any) -> Config:
    return Config(addresses=addresses_of(url), **settings)


def test_certificates_for_addresses_without_tls_are_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"write stomp\+ssl:// or wss://"):
        config("stomp://a,stomp://b", tls=Tls(ca="ca.pem"))
    assert config("stomp://a,stomp+ssl://b", tls=Tls(ca="ca.pem")).tls == Tls(ca="ca.pem")


def test_settings_of_tls_and_tcp_travel() -> None:
    settings = config("stomps://b", tls=Tls(cert="me.pem", password="hush"), tcp=TcpOptions(source="127.0.0.1"))
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "hush" not in repr(settings)


def linked(settings: Config) -> LinkSettings:
    """Return the settings of a link to the first address."""
    return settings.for_address(settings.addresses[0])


def credentials(settings: Config) -> Credentials:
    """Return the credentials for the first address."""
    return settings.credentials(settings.addresses[0])


def test_every_wait_has_a_finite_default() -> None:
    settings = config()
    timeouts = settings.timeouts
    waits = (timeouts.connect, timeouts.send, timeouts.receipt, settings.close_timeout)
    assert all(0 < seconds < 3600 for seconds in waits)


@pytest.mark.parametrize("name", ["connect", "send", "receipt", "close"])
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, None, True, "5"])
def test_a_timeout_is_a_positive_finite_number(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"timeouts\.{name}"):
        stompy.Timeouts(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [(-1, 0), (0, math.inf), (math.nan, 0), 5, (1,), (1, 2, 3), [1, 2], ("1", "2"), (True, 0), None, (1e12, 0)]
)
def test_heartbeats_are_two_numbers_of_seconds(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"heart-?beat"):
        config(heartbeat=value)


@pytest.mark.parametrize("value", [0, 0.9, math.inf, math.nan, "3"])
def test_the_tolerance_is_at_least_one_interval(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="heartbeat_tolerance"):
        config(timeouts=stompy.Timeouts(heartbeat_tolerance=value))


def test_the_passcode_is_not_shown() -> None:
    settings = config("stomp://fred:hidden@broker", login="george", passcode="sesame", headers={"token": "hush"})
    for secret in ("hidden", "sesame", "hush"):
        assert secret not in repr(settings)
        assert secret not in str(settings)


def test_it_travels_to_another_process() -> None:
    settings = config(
        "stomp://fred:hidden@broker", limits=stompy.Limits(max_inbox_messages=5), reconnect=Reconnect(attempts=3)
    )
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_pickle_of_it_is_asked_for_and_takes_the_passcode_along() -> None:
    settings = config(login="george", passcode="sesame")
    assert settings.passcode == Secret("sesame")
    assert credentials(pickle.loads(pickle.dumps(settings))).passcode == Secret("sesame")
    with pytest.raises(TypeError, match="Secret cannot be pickled"):
        pickle.dumps(settings.passcode)


@pytest.mark.parametrize("name", ["max_receipts", "max_subscriptions", "max_transactions", "max_eol_rate"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "7", None])
def test_a_limit_is_a_whole_number_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        stompy.Limits(**{name: value})
    allowed: dict[str, Any] = {name: 7}
    assert getattr(linked(config(limits=stompy.Limits(**allowed))).limits, name) == 7


def test_the_address_gives_login_and_virtual_host() -> None:
    settings = config("stomp://fred:hidden@broker/%2Fprod")
    assert credentials(settings) == Credentials("fred", Secret("hidden"))
    assert linked(settings).vhost == "/prod"


def test_arguments_override_the_address() -> None:
    settings = config("stomp://fred:hidden@broker/prod", login="george", vhost="/")
    assert credentials(settings) == Credentials("george", None)
    assert linked(settings).vhost == "/"


def test_what_a_link_needs_is_handed_on() -> None:
    timeouts, limits = stompy.Timeouts(send=1.0, receipt=2.0), stompy.Limits(max_inbox_messages=5)
    settings = config(heartbeat=(1.5, 2.0), timeouts=timeouts, limits=limits, headers={"a": "b"})
    link = linked(settings)
    assert link.heartbeat == (1.5, 2.0)
    assert (link.timeouts, link.limits) == (timeouts, limits)
    assert link.headers == {"a": "b"}


@pytest.mark.parametrize(
    ("header", "option"),
    [
        ("login", "login"),
        ("Passcode", "passcode"),
        ("host", "vhost"),
        ("heart-beat", "heartbeat"),
        ("accept-version", "versions"),
    ],
)
def test_a_header_of_connect_that_an_option_sets_is_refused_and_its_value_not_shown(header: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"header '{header}' is set by {option}=, not by headers=") as caught:
        config(headers={header: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_client_id_is_given_once() -> None:
    assert config(headers={"client-id": "me"}).client == "me"
    with pytest.raises(ConfigurationError, match="twice"):
        config(client_id="me", headers={"client-id": "me"})


def test_an_option_that_nobody_reads_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'speed'"):
        addresses_of("stomp://broker?speed=fast")


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("1.1", (Version.V1_1,)),
        (Version.V1_2, (Version.V1_2,)),
        (("1.2", "1.0"), (Version.V1_0, Version.V1_2)),
        (["1.2", Version.V1_2], (Version.V1_2,)),
        ("1.0-draft", (Version.DRAFT,)),
    ],
)
def test_versions_may_be_named_in_several_ways(given: Any, parsed: tuple[Version, ...]) -> None:
    assert versions_of(given) == parsed


@pytest.mark.parametrize("wrong", ["1.3", "", (), ["1.2", "1.0-draft"], ["1.2", "x"]])
def test_versions_that_cannot_be_offered_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        versions_of(wrong)
