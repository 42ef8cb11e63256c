"""Artemis: its images, its broker.xml, its users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompy.testing.brokers.certificates import STORE_PASSWORD
from stompy.testing.brokers.running import BrokerSettings, Place, Product, Recipe, with_elements

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates

_INSTANCE = "/var/lib/artemis-instance"
_OVERRIDES = f"{_INSTANCE}/etc-override"
"""What lies here takes the place of the instance's own files, in the official images and in the local one."""

_PORTS = {"stomp": 61613}
_TLS_PORTS = {"stomp+ssl": 61614}

_XML = """\
<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
{elements}
  </core>
</configuration>
"""

# A name is a queue or a topic by its prefix, as with the other brokers; without prefixes all would be topics.
_ROUTING = "protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/"

_PERMISSIONS = (
    "createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue", "deleteDurableQueue", "createAddress",
    "deleteAddress", "consume", "browse", "send", "manage",
)  # fmt: skip

_LOGIN = """\
activemq {
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
       org.apache.activemq.jaas.properties.user="artemis-users.properties"
       org.apache.activemq.jaas.properties.role="artemis-roles.properties";
};
"""


class Artemis(Product):
    """ActiveMQ Artemis, now Apache Artemis.

    Args:
        kind: by which it is asked for.
        official_images: see `Product`.
        local_image: see `Product`.
    """

    title = "Artemis"
    unescapes_connect = False

    def __init__(self, kind: str, *, official_images: tuple[str, ...], local_image: str) -> None:
        self.kind = kind
        self.official_images = official_images
        self.local_image = local_image

    def in_container(self, settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
        """Return how to start it.

        Raises:
            ConfigurationError: the setting is another broker's.
        """
        self._refuse_others(settings, advisories=True, dead_letter_nonpersistent=False)
        ports = {**_PORTS, **_TLS_PORTS} if settings.tls else dict(_PORTS)
        place = Place("0.0.0.0", ports, "data", f"{_INSTANCE}/etc")
        files = {"broker.xml": broker_xml(settings, place).encode()}
        if settings.users is not None:
            names = settings.users
            files["login.config"] = _LOGIN.encode()
            files["artemis-users.properties"] = _properties(names).encode()
            files["artemis-roles.properties"] = f"amq = {','.join(_escaped(name) for name in names)}\n".encode()
        if settings.tls and certificates is not None:
            files.update({"broker.p12": certificates.key_store(), "trust.p12": certificates.trust_store()})
        return Recipe(
            ports=ports,
            files={f"{_OVERRIDES}/{name}": content for name, content in files.items()},
            environment={"ANONYMOUS_LOGIN": "true", "EXTRA_ARGS": "--no-autotune --nio", **settings.environment},
        )


def broker_xml(settings: BrokerSettings, place: Place) -> str:
    """Return a broker.xml.

    Raises:
        ConfigurationError: `settings.configuration` is not XML.
    """
    return _XML.format(elements=with_elements("".join(_elements(settings, place)), settings.configuration))


def _elements(settings: BrokerSettings, place: Place) -> list[str]:
    folders = [f"<{kind}-directory>{place.data}/{name}</{kind}-directory>" for kind, name in _FOLDERS.items()]
    return [
        "<name>stompy</name>",
        f"<persistence-enabled>{str(settings.persistent).lower()}</persistence-enabled>",
        f"<security-enabled>{str(settings.users is not None).lower()}</security-enabled>",
        "<journal-type>NIO</journal-type>",
        # No limit for the disk usage of a test machine.
        "<max-disk-usage>-1</max-disk-usage>",
        *folders,
        f"<acceptors>{''.join(_acceptors(settings, place))}</acceptors>",
        _SECURITY,
        f"<address-settings>{_address_setting(settings)}</address-settings>",
        _ADDRESSES,
    ]


_FOLDERS = {
    "paging": "paging",
    "bindings": "bindings",
    "journal": "journal",
    "large-messages": "large-messages",
}

_SECURITY = (
    '<security-settings><security-setting match="#">'
    + "".join(f'<permission type="{name}" roles="amq"/>' for name in _PERMISSIONS)
    + "</security-setting></security-settings>"
)

_ADDRESSES = (
    "<addresses>"
    + "".join(
        f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>' for name in ("DLQ", "ExpiryQueue")
    )
    + "</addresses>"
)


def _acceptors(settings: BrokerSettings, place: Place) -> list[str]:
    acceptors = []
    for name, port in place.ports.items():
        uri = f"tcp://{place.host}:{port}?{_ROUTING}"
        if name in _TLS_PORTS:
            uri += (
                f";sslEnabled=true;keyStorePath={place.stores}/broker.p12;keyStoreType=PKCS12"
                f";keyStorePassword={STORE_PASSWORD};trustStorePath={place.stores}/trust.p12;trustStoreType=PKCS12"
                f";trustStorePassword={STORE_PASSWORD};needClientAuth={str(settings.client_certificates).lower()}"
            )
        acceptors.append(f'<acceptor name="{name}">{uri}</acceptor>')
    return acceptors


def _address_setting(settings: BrokerSettings) -> str:
    full = (
        "<max-size-bytes>-1</max-size-bytes><address-full-policy>PAGE</address-full-policy>"
        if settings.memory_limit is None
        else f"<max-size-bytes>{settings.memory_limit}</max-size-bytes><address-full-policy>BLOCK</address-full-policy>"
    )
    return (
        '<address-setting match="#"><dead-letter-address>DLQ</dead-letter-address>'
        f"<expiry-address>ExpiryQueue</expiry-address>{full}"
        "<auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>"
        "</address-setting>"
    )


def _properties(users: Mapping[str, str]) -> str:
    return "".join(f"{_escaped(login)} = {_escaped(passcode)}\n" for login, passcode in users.items())


def _escaped(value: str) -> str:
    """Write a value as a Java properties file has it: a character that is not plain becomes its number."""
    return "".join(
        character
        if character.isascii() and character.isalnum()
        else "".join(f"\\u{unit:04x}" for unit in _units(character))
        for character in value
    )


def _units(character: str) -> tuple[int, ...]:
    encoded = character.encode("utf-16-be")
    return tuple(int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2))
