"""The real brokers: their images, and the files and variables with which a container of each is started.

The folder `files` has the configuration of each, with places in braces for what the settings decide.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from stompy.errors import ConfigurationError
from stompy.testing.brokers import BrokerSettings, Certificates, refuse
from stompy.world import os

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

    from stompy.dialects.brokers import DialectName

STORE_PASSWORD = "stompy-test"
"""Opens the broker's stores, which hold nothing worth hiding: they are made for one test."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one container is started.

    Attributes:
        ports: port by connector, inside the container.
        files: contents by absolute path.
        environment: variables.
        hostname: of the container.
    """

    ports: Mapping[str, int]
    files: Mapping[str, bytes] = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class Product:
    """One kind of broker.

    Attributes:
        kind: as `start_broker` takes it.
        images: of the project itself; the first of them that is there or can be pulled is used.
        recipe: returns how to start it with settings, and with certificates if it has TLS; raises `ConfigurationError`
            for a setting that the broker lacks.
        dialect: as `connect` takes it: not every broker reads a backslash in CONNECT in the same way.
        path: of its URLs; RabbitMQ refuses its own name for a virtual host.
        web_path: of its URLs for WebSocket.
    """

    kind: str
    images: tuple[str, ...]
    recipe: Callable[[BrokerSettings, Certificates | None], Recipe]
    dialect: DialectName
    path: str = ""
    web_path: str = ""


_FILES = Path(__file__).with_name("files")
_ELEMENTS = "<!-- elements -->"
_PORT = re.compile(r"://0\.0\.0\.0:(\d+)")


def _template(name: str, **values: object) -> str:
    """Return a file of a broker with these values."""
    return (_FILES / name).read_text(encoding="utf-8").format(**values)


def _lower(flag: bool) -> str:
    return str(flag).lower()


def _merged(text: str, settings: BrokerSettings, *without: str) -> tuple[bytes, dict[str, int]]:
    """Return an XML file, and the ports of its connectors, without those that the settings do not ask for.

    An element of the settings' own configuration replaces its namesakes. ActiveMQ's schema wants the elements in the
    order of the alphabet.

    Args:
        text: of the file, with its elements between two marks.
        settings: of the broker.
        without: elements to leave out.

    Raises:
        ConfigurationError: the settings' own configuration is not XML.
    """
    head, body, tail = text.split(_ELEMENTS)
    try:
        added = list(ElementTree.fromstring(f"<more>{settings.configuration}</more>"))
    except ElementTree.ParseError as error:
        raise ConfigurationError(f"the configuration is not a row of XML elements: {error}") from error
    names = {*without, *(element.tag for element in added)}
    found, ports = list(ElementTree.fromstring(f"<all>{body}</all>")), {}
    for group in found:
        for connector in group.findall("*[@name]"):
            name = connector.get("name", "")
            if port := _PORT.search(connector.get("uri") or connector.text or ""):
                secure, web = "ssl" in name or name == "wss", name.startswith("ws")
                if (secure and not settings.tls) or (web and not settings.ws):
                    group.remove(connector)
                else:
                    ports[name] = int(port[1])
    elements = sorted([*(each for each in found if each.tag not in names), *added], key=lambda element: element.tag)
    shown = "\n".join(ElementTree.tostring(element, encoding="unicode").strip() for element in elements)
    return f"{head}{shown}{tail}".encode(), ports


# ActiveMQ Classic


def activemq(settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
    """Return how to start ActiveMQ Classic."""
    wanted = {
        "persistenceAdapter": settings.persistent,
        "destinationPolicy": settings.dead_letter_nonpersistent,
        "sslContext": settings.tls,
        "plugins": settings.users is not None,
    }
    users = "".join(
        f'<authenticationUser username={quoteattr(login)} password={quoteattr(passcode)} groups="users"/>'
        for login, passcode in (settings.users or {}).items()
    )
    # The entry point of the official images looks for `</broker>`, which the file writes with a space, and puts in a
    # plugin of its own that lets nobody in without its users.
    text = _template(
        "activemq.xml",
        advisories=_lower(settings.advisories),
        persistent=_lower(settings.persistent),
        memory='percentOfJvmHeap="70"' if settings.memory_limit is None else f'limit="{settings.memory_limit}"',
        users=users,
        password=STORE_PASSWORD,
        web="websocket.maxTextMessageSize=104857600&amp;websocket.idleTimeout=0&amp;websocket.maxIdleTime=0",
        client="&amp;needClientAuth=true" if settings.client_certificates else "",
    )
    xml, ports = _merged(text, settings, *(name for name, needed in wanted.items() if not needed))
    files = {"activemq.xml": xml, **_stores(certificates)}
    return Recipe(
        ports=ports,
        files={f"/opt/apache-activemq/conf/{name}": content for name, content in files.items()},
        environment={"ACTIVEMQ_HEAP": "1g", "ACTIVEMQ_OPTS_MEMORY": "-Xms64M -Xmx1G", **settings.environment},
    )


def _stores(certificates: Certificates | None) -> dict[str, bytes]:
    """Return the broker's certificate and the authority's as PKCS#12, as Java reads them; nothing without TLS."""
    if certificates is None:
        return {}
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

    encryption: KeySerializationEncryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    pem = Path(certificates.broker_file).read_bytes()
    key = load_pem_private_key(pem, password=None)
    first, *chain = x509.load_pem_x509_certificates(pem)
    authority = x509.load_pem_x509_certificate(Path(certificates.ca_file).read_bytes())
    return {
        # The two stores of a broker share a password and a type; the key's own type is one that PKCS#12 holds.
        "broker.p12": pkcs12.serialize_key_and_certificates(b"broker", key, first, chain or None, encryption),  # type: ignore[arg-type]
        # Java trusts only entries that are marked as trusted.
        "trust.p12": pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"authority")], encryption),
    }


# ActiveMQ Artemis, now Apache Artemis

_ARTEMIS = "/var/lib/artemis-instance"


def artemis(settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
    """Return how to start Artemis."""
    refuse(settings, "Artemis", "advisories", "dead_letter_nonpersistent")
    text = _template(
        "artemis.xml",
        persistent=_lower(settings.persistent),
        security=_lower(settings.users is not None),
        protocol="protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/",
        etc=f"{_ARTEMIS}/etc",
        password=STORE_PASSWORD,
        client=_lower(settings.client_certificates),
        limit=-1 if settings.memory_limit is None else settings.memory_limit,
        policy="PAGE" if settings.memory_limit is None else "BLOCK",
    )
    xml, ports = _merged(text, settings)
    files = {"broker.xml": xml, **_stores(certificates)}
    if settings.users is not None:
        users = {_in_properties(login): _in_properties(passcode) for login, passcode in settings.users.items()}
        files["login.config"] = (_FILES / "artemis-login.config").read_bytes()
        files["artemis-users.properties"] = "".join(f"{name} = {secret}\n" for name, secret in users.items()).encode()
        files["artemis-roles.properties"] = f"amq = {','.join(users)}\n".encode()
    return Recipe(
        ports=ports,
        # A file here takes the place of the instance's own.
        files={f"{_ARTEMIS}/etc-override/{name}": content for name, content in files.items()},
        environment={"ANONYMOUS_LOGIN": "true", "EXTRA_ARGS": "--no-autotune --nio", **settings.environment},
    )


def _in_properties(value: str) -> str:
    """Write a value as a Java properties file has it: each UTF-16 unit by its number."""
    return re.sub("(....)", r"\\u\1", value.encode("utf-16-be").hex())


# RabbitMQ with its STOMP plugins

_ETC = "/etc/rabbitmq"


def rabbitmq(settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
    """Return how to start RabbitMQ."""
    refuse(settings, "RabbitMQ", "advisories", "dead_letter_nonpersistent")
    ports = {"stomp": 61613, "ws": 15674}
    text = _template("rabbitmq.conf")
    files = {"enabled_plugins": b"[rabbitmq_stomp,rabbitmq_web_stomp].\n"}
    if settings.users is not None:
        text += f"load_definitions = {_ETC}/definitions.json\n"
        files["definitions.json"] = _definitions(settings.users).encode()
    if settings.memory_limit is not None:
        text += f"vm_memory_high_watermark.absolute = {settings.memory_limit}\n"
    if settings.tls:
        ports |= {"stomp+ssl": 61614, "wss": 15673}
        verify = "verify_peer" if settings.client_certificates else "verify_none"
        text += _template("rabbitmq-tls.conf", verify=verify, client=_lower(settings.client_certificates))
    if certificates is not None:
        files["ca.pem"] = Path(certificates.ca_file).read_bytes()
        files["broker.pem"] = Path(certificates.broker_file).read_bytes()
    entries = (line.partition("=") for line in f"{text}{settings.configuration}".splitlines())
    lines = {name.strip(): value.strip() for name, equals, value in entries if equals}
    files["rabbitmq.conf"] = "".join(f"{name} = {value}\n" for name, value in lines.items()).encode()
    return Recipe(
        ports=ports,
        files={f"{_ETC}/{name}": content for name, content in files.items()},
        environment={
            "RABBITMQ_NODENAME": "rabbit@localhost",
            # Threads of Erlang's that look for work in a loop would take the processor from the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
            **settings.environment,
        },
        hostname="localhost",
    )


def _definitions(users: Mapping[str, str]) -> str:
    """Return the users as RabbitMQ imports them; with them there is no `guest` any more."""
    rights = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
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
            "permissions": [{"user": login, **rights} for login in users],
        }
    )


def _hashed(passcode: str) -> str:
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + passcode.encode()).digest()).decode()


PRODUCTS: dict[str, Product] = {
    product.kind: product
    for product in (
        Product("activemq", ("apache/activemq:6.3.1", "apache/activemq-classic:6.1.7"), activemq, "activemq"),
        Product("activemq5", ("apache/activemq-classic:5.18.3",), activemq, "activemq"),
        Product("artemis", ("apache/artemis:2.57.0", "apache/activemq-artemis:2.44.0"), artemis, "artemis"),
        Product("rabbitmq3", ("rabbitmq:3.10", "rabbitmq:3"), rabbitmq, "rabbitmq", "/%2F", "/ws"),
        Product("rabbitmq4", ("rabbitmq:4",), rabbitmq, "rabbitmq", "/%2F", "/ws"),
    )
}
