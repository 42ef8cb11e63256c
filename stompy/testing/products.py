"""The real brokers: their images, and the files and variables with which a container of each is started."""

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


# ActiveMQ Classic

_ACTIVEMQ = "/opt/apache-activemq"

# The entry point of the official images looks for the end of the element, written without the space, and puts in a
# plugin of its own that lets nobody in without its users.
_ACTIVEMQ_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="
         http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="stompy" useJmx="false" schedulerSupport="true"
          advisorySupport="{advisories}" persistent="{persistent}" dataDirectory="{home}/data">
{elements}
  </broker >
</beans>
"""

_CONNECTOR = '<transportConnector name="{name}" uri="{name}://0.0.0.0:{port}?{options}"/>'
# Without it, Nagle's algorithm holds back every second small frame for 40 ms.
_TCP_OPTIONS = "transport.tcpNoDelay=true"
# As much as over TCP; by default it takes 64 KiB, and closes what has been idle for half a minute.
_WEB_OPTIONS = "websocket.maxTextMessageSize=104857600&amp;websocket.idleTimeout=0&amp;websocket.maxIdleTime=0"

_LIMITED_USAGE = (
    "<systemUsage><systemUsage><memoryUsage><memoryUsage {memory}/></memoryUsage>"
    '<storeUsage><storeUsage limit="1 gb"/></storeUsage>'
    '<tempUsage><tempUsage limit="1 gb"/></tempUsage></systemUsage></systemUsage>'
)
_KAHADB = f'<persistenceAdapter><kahaDB directory="{_ACTIVEMQ}/data/kahadb"/></persistenceAdapter>'
_AUTHENTICATION = (
    '<plugins><simpleAuthenticationPlugin anonymousAccessAllowed="false">'
    "<users>{users}</users></simpleAuthenticationPlugin></plugins>"
)
_DEAD_LETTERS = (
    "<destinationPolicy><policyMap><policyEntries>{}</policyEntries></policyMap></destinationPolicy>".format(
        "".join(
            f'<policyEntry {domain}="&gt;"><deadLetterStrategy><sharedDeadLetterStrategy processNonPersistent="true"/>'
            "</deadLetterStrategy></policyEntry>"
            for domain in ("queue", "topic")
        )
    )
)
_SSL_CONTEXT = (
    f'<sslContext><sslContext keyStore="file:{_ACTIVEMQ}/conf/broker.p12" keyStoreType="PKCS12" '
    f'keyStorePassword="{STORE_PASSWORD}" trustStore="file:{_ACTIVEMQ}/conf/trust.p12" '
    f'trustStoreType="PKCS12" trustStorePassword="{STORE_PASSWORD}"/></sslContext>'
)


def activemq(settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
    """Return how to start ActiveMQ Classic."""
    ports = {"stomp": 61613, "stomp+nio": 61612}
    secure = {"stomp+ssl": 61614, "stomp+nio+ssl": 61615} if settings.tls else {}
    if settings.ws:
        ports["ws"] = 61623
        secure |= {"wss": 61624} if settings.tls else {}
    connectors = ""
    for name, port in {**ports, **secure}.items():
        options = _WEB_OPTIONS if name.startswith("ws") else _TCP_OPTIONS
        if settings.client_certificates and name in secure:
            options += "&amp;needClientAuth=true"
        connectors += _CONNECTOR.format(name=name, port=port, options=options)
    memory = 'percentOfJvmHeap="70"' if settings.memory_limit is None else f'limit="{settings.memory_limit}"'
    elements = _LIMITED_USAGE.format(memory=memory) + f"<transportConnectors>{connectors}</transportConnectors>"
    elements += _KAHADB if settings.persistent else ""
    elements += _DEAD_LETTERS if settings.dead_letter_nonpersistent else ""
    elements += _SSL_CONTEXT if settings.tls else ""
    if settings.users is not None:
        users = "".join(
            f'<authenticationUser username={quoteattr(login)} password={quoteattr(passcode)} groups="users"/>'
            for login, passcode in settings.users.items()
        )
        elements += _AUTHENTICATION.format(users=users)
    xml = _ACTIVEMQ_XML.format(
        advisories=str(settings.advisories).lower(),
        persistent=str(settings.persistent).lower(),
        home=_ACTIVEMQ,
        elements=_with_elements(elements, settings.configuration),
    )
    files = {"activemq.xml": xml.encode(), **_stores(certificates)}
    return Recipe(
        ports={**ports, **secure},
        files={f"{_ACTIVEMQ}/conf/{name}": content for name, content in files.items()},
        environment={"ACTIVEMQ_HEAP": "1g", "ACTIVEMQ_OPTS_MEMORY": "-Xms64M -Xmx1G", **settings.environment},
    )


def _with_elements(defaults: str, more: str) -> str:
    """Return XML elements by name; an element of `more` replaces its namesakes.

    ActiveMQ's schema wants them in the order of the alphabet.

    Raises:
        ConfigurationError: `more` is not XML.
    """
    try:
        added = list(ElementTree.fromstring(f"<more>{more}</more>"))
    except ElementTree.ParseError as error:
        raise ConfigurationError(f"the configuration is not a row of XML elements: {error}") from error
    names = {element.tag for element in added}
    kept = [element for element in ElementTree.fromstring(f"<all>{defaults}</all>") if element.tag not in names]
    elements = sorted((*kept, *added), key=lambda element: element.tag)
    return "\n".join(ElementTree.tostring(element, encoding="unicode").strip() for element in elements)


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

_ARTEMIS_XML = """\
<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
{elements}
  </core>
</configuration>
"""
# The disk usage of a test machine has no limit.
_ARTEMIS_CORE = """\
<name>stompy</name>
<persistence-enabled>{persistent}</persistence-enabled>
<security-enabled>{security}</security-enabled>
<journal-type>NIO</journal-type>
<max-disk-usage>-1</max-disk-usage>
<paging-directory>data/paging</paging-directory>
<bindings-directory>data/bindings</bindings-directory>
<journal-directory>data/journal</journal-directory>
<large-messages-directory>data/large-messages</large-messages-directory>
<acceptors>{acceptors}</acceptors>
<security-settings><security-setting match="#">{permissions}</security-setting></security-settings>
<address-settings><address-setting match="#">
<dead-letter-address>DLQ</dead-letter-address><expiry-address>ExpiryQueue</expiry-address>
<max-size-bytes>{limit}</max-size-bytes><address-full-policy>{policy}</address-full-policy>
<auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>
</address-setting></address-settings>
<addresses>
<address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
<address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
</addresses>
"""
# A name is a queue or a topic by its prefix, as with the other brokers; without prefixes all would be topics.
_ACCEPTOR = (
    '<acceptor name="{name}">tcp://0.0.0.0:{port}?protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/{tls}'
    "</acceptor>"
)
_ARTEMIS_TLS = (
    f";sslEnabled=true;keyStorePath={_ARTEMIS}/etc/broker.p12;keyStoreType=PKCS12;keyStorePassword={STORE_PASSWORD}"
    f";trustStorePath={_ARTEMIS}/etc/trust.p12;trustStoreType=PKCS12;trustStorePassword={STORE_PASSWORD}"
    ";needClientAuth="
)
_PERMISSIONS = (
    "createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue", "deleteDurableQueue", "createAddress",
    "deleteAddress", "consume", "browse", "send", "manage",
)  # fmt: skip
_LOGIN = b"""\
activemq {
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
       org.apache.activemq.jaas.properties.user="artemis-users.properties"
       org.apache.activemq.jaas.properties.role="artemis-roles.properties";
};
"""


def artemis(settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
    """Return how to start Artemis."""
    refuse(settings, "Artemis", "advisories", "dead_letter_nonpersistent")
    ports = {"stomp": 61613, **({"stomp+ssl": 61614} if settings.tls else {})}
    tls = {"stomp": "", "stomp+ssl": f"{_ARTEMIS_TLS}{str(settings.client_certificates).lower()}"}
    core = _ARTEMIS_CORE.format(
        persistent=str(settings.persistent).lower(),
        security=str(settings.users is not None).lower(),
        acceptors="".join(_ACCEPTOR.format(name=name, port=port, tls=tls[name]) for name, port in ports.items()),
        permissions="".join(f'<permission type="{name}" roles="amq"/>' for name in _PERMISSIONS),
        limit=-1 if settings.memory_limit is None else settings.memory_limit,
        policy="PAGE" if settings.memory_limit is None else "BLOCK",
    )
    xml = _ARTEMIS_XML.format(elements=_with_elements(core, settings.configuration))
    files = {"broker.xml": xml.encode(), **_stores(certificates)}
    if settings.users is not None:
        users = {_in_properties(login): _in_properties(passcode) for login, passcode in settings.users.items()}
        files["login.config"] = _LOGIN
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
    lines = {
        "loopback_users.guest": "false",
        "stomp.listeners.tcp.1": "0.0.0.0:61613",
        "web_stomp.tcp.ip": "0.0.0.0",
        "web_stomp.tcp.port": "15674",
        "log.console.level": "info",
    }
    files = {"enabled_plugins": b"[rabbitmq_stomp,rabbitmq_web_stomp].\n"}
    if settings.users is not None:
        lines["load_definitions"] = f"{_ETC}/definitions.json"
        files["definitions.json"] = _definitions(settings.users).encode()
    if settings.memory_limit is not None:
        lines["vm_memory_high_watermark.absolute"] = str(settings.memory_limit)
    if settings.tls:
        ports |= {"stomp+ssl": 61614, "wss": 15673}
        lines |= {
            "stomp.listeners.ssl.1": "0.0.0.0:61614",
            "web_stomp.ssl.ip": "0.0.0.0",
            "web_stomp.ssl.port": "15673",
        }
        for section in ("ssl_options", "web_stomp.ssl"):
            for name, file in (("cacertfile", "ca.pem"), ("certfile", "broker.pem"), ("keyfile", "broker.pem")):
                lines[f"{section}.{name}"] = f"{_ETC}/{file}"
        # For web sockets alone RabbitMQ cannot require a certificate of the client.
        lines["ssl_options.verify"] = "verify_peer" if settings.client_certificates else "verify_none"
        lines["ssl_options.fail_if_no_peer_cert"] = str(settings.client_certificates).lower()
    if certificates is not None:
        files["ca.pem"] = Path(certificates.ca_file).read_bytes()
        files["broker.pem"] = Path(certificates.broker_file).read_bytes()
    for line in settings.configuration.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            lines[name.strip()] = value.strip()
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
