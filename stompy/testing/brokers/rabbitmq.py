"""RabbitMQ: its images, its rabbitmq.conf and its users."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompy.testing.brokers.running import BrokerSettings, Place, Product, Recipe
from stompy.world import os

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates

_ETC = "/etc/rabbitmq"
_PORTS = {"stomp": 61613, "ws": 15674}
_TLS_PORTS = {"stomp+ssl": 61614, "wss": 15673}
# Threads of Erlang's that look for work in a loop would take the processor from the tests.
CALM = {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none"}

_PLUGINS = b"[rabbitmq_stomp,rabbitmq_web_stomp].\n"


class RabbitMQ(Product):
    """RabbitMQ with its STOMP plugins.

    Args:
        kind: by which it is asked for.
        official_images: see `Product`.
        local_image: see `Product`.
    """

    title = "RabbitMQ"
    vhost = "/"
    path = "/%2F"  # it refuses the broker's own name for a virtual host

    def __init__(self, kind: str, *, official_images: tuple[str, ...], local_image: str) -> None:
        self.kind = kind
        self.official_images = official_images
        self.local_image = local_image

    def url_path(self, connector: str) -> str:
        """Return the path: the virtual host, or where the web sockets are."""
        return "/ws" if connector in ("ws", "wss") else self.path

    def in_container(self, settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
        """Return how to start it.

        Raises:
            ConfigurationError: the setting is another broker's.
        """
        self._refuse_others(settings, advisories=True, dead_letter_nonpersistent=False)
        ports = default_ports(settings)
        place = Place("0.0.0.0", ports, "", _ETC)
        return Recipe(
            ports=ports,
            files={f"{_ETC}/{name}": content for name, content in config_files(settings, place, certificates).items()},
            environment={"RABBITMQ_NODENAME": "rabbit@localhost", **CALM, **settings.environment},
            hostname="localhost",
        )


def default_ports(settings: BrokerSettings) -> dict[str, int]:
    """Return port by connector, as inside a container."""
    return {**_PORTS, **_TLS_PORTS} if settings.tls else dict(_PORTS)


def config_files(settings: BrokerSettings, place: Place, certificates: Certificates | None) -> dict[str, bytes]:
    """Return the files of its configuration, by name."""
    files = {"rabbitmq.conf": rabbitmq_conf(settings, place).encode(), "enabled_plugins": _PLUGINS}
    if settings.users is not None:
        files["definitions.json"] = definitions(settings.users).encode()
    if settings.tls and certificates is not None:
        files["ca.pem"] = certificates.ca_pem
        files["broker.pem"] = certificates.broker_pem
        files["broker.key"] = certificates.broker_key
    return files


def rabbitmq_conf(settings: BrokerSettings, place: Place) -> str:
    """Return a rabbitmq.conf."""
    lines = {
        "loopback_users.guest": "false",
        "stomp.listeners.tcp.1": f"{place.host}:{place.ports['stomp']}",
        "web_stomp.tcp.ip": place.host,
        "web_stomp.tcp.port": str(place.ports["ws"]),
        "log.console.level": "info",
    }
    if settings.users is not None:
        lines["load_definitions"] = f"{place.stores}/definitions.json"
    if settings.memory_limit is not None:
        lines["vm_memory_high_watermark.absolute"] = str(settings.memory_limit)
    if settings.tls:
        lines.update(_tls(settings, place))
    for line in settings.configuration.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            lines[name.strip()] = value.strip()
    return "".join(f"{name} = {value}\n" for name, value in lines.items())


def _tls(settings: BrokerSettings, place: Place) -> dict[str, str]:
    files = {"cacertfile": "ca.pem", "certfile": "broker.pem", "keyfile": "broker.key"}
    lines = {"stomp.listeners.ssl.1": f"{place.host}:{place.ports['stomp+ssl']}"}
    for section in ("ssl_options", "web_stomp.ssl"):
        lines.update({f"{section}.{name}": f"{place.stores}/{file}" for name, file in files.items()})
    # For web sockets alone RabbitMQ cannot require a certificate of the client.
    lines["ssl_options.verify"] = "verify_peer" if settings.client_certificates else "verify_none"
    lines["ssl_options.fail_if_no_peer_cert"] = str(settings.client_certificates).lower()
    lines["web_stomp.ssl.port"] = str(place.ports["wss"])
    lines["web_stomp.ssl.ip"] = place.host
    return lines


def definitions(users: Mapping[str, str]) -> str:
    """Return the users as RabbitMQ imports them; with them there is no `guest` any more."""
    return json.dumps(
        {
            "vhosts": [{"name": "/"}],
            "users": [
                {
                    "name": login,
                    "password_hash": _hashed(passcode),
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": ["administrator"],
                }
                for login, passcode in users.items()
            ],
            "permissions": [
                {"user": login, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"} for login in users
            ],
        }
    )


def _hashed(passcode: str) -> str:
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + passcode.encode()).digest()).decode()
