"""The profiles by their names."""

from __future__ import annotations

from typing import Literal, get_args

from stompy.broker.profile import OWN, Profile
from stompy.broker.profiles.activemq import ACTIVEMQ, ACTIVEMQ_5
from stompy.broker.profiles.artemis import ARTEMIS
from stompy.broker.profiles.rabbitmq import RABBITMQ
from stompy.errors import ConfigurationError

Like = Literal["activemq", "activemq5", "artemis", "rabbitmq"]
"""The names that `Broker(like=...)` takes."""

_KNOWN = {profile.name: profile for profile in (ACTIVEMQ, ACTIVEMQ_5, ARTEMIS, RABBITMQ)}


def profile_named(like: str | None) -> Profile:
    """Return the profile of a name; the broker's own ways for `None`.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if like is None:
        return OWN
    if like not in _KNOWN:
        raise ConfigurationError(f"like must be one of {', '.join(get_args(Like))}, not {like!r}")
    return _KNOWN[like]
