"""What may be asked of a broker."""

from __future__ import annotations

import pytest

from stompy.errors import ConfigurationError
from stompy.testing.brokers.running import BrokerSettings, BrokerUnavailableError


def test_an_option_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no such option of a broker: user \(there are .*users"):
        BrokerSettings.of({"user": "ann"})


@pytest.mark.parametrize(
    "options",
    [{"client_certificates": True}, {"memory_limit": 0}, {"users": {"": "x"}}, {"users": {"a": "\0"}}],
    ids=["mtls-without-tls", "no-memory", "empty-login", "nul"],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        BrokerSettings.of(options)


def test_the_first_user_is_the_one_to_log_in_as() -> None:
    settings = BrokerSettings(users={"ann": "secret", "bob": "other"})
    assert (settings.login, settings.passcode, settings.closed) == ("ann", "secret", False)


def test_no_users_accept_everybody_and_an_empty_list_nobody() -> None:
    assert (BrokerSettings().login, BrokerSettings().closed) == (None, False)
    assert (BrokerSettings(users={}).login, BrokerSettings(users={}).closed) == (None, True)


def test_a_passcode_is_not_shown() -> None:
    assert "secret" not in repr(BrokerSettings(users={"ann": "secret"}, configuration="secret"))


def test_users_are_not_changed_from_outside() -> None:
    users = {"ann": "secret"}
    settings = BrokerSettings(users=users)
    users["eve"] = "x"
    assert settings.users == {"ann": "secret"}


def test_the_error_lists_every_reason() -> None:
    error = BrokerUnavailableError("artemis", ("official: no pull", "local: not built"))
    assert str(error) == "no artemis broker: official: no pull; local: not built"
