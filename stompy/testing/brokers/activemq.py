"""ActiveMQ Classic: its images and its activemq.xml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from stompy.testing.brokers.certificates import STORE_PASSWORD
from stompy.testing.brokers.running import BrokerSettings, Place, Product, Recipe, with_elements

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates

_HOME = "/opt/apache-activemq"
_PORTS = {"stomp": 61613, "stomp+nio": 61612}
_TLS_PORTS = {"stomp+ssl": 61614, "stomp+nio+ssl": 61615}
_WEB_PORTS, _WEB_TLS_PORTS = {"ws": 61623}, {"wss": 61624}

_CONNECTOR = '<transportConnector name="{name}" uri="{name}://{host}:{port}?{options}"/>'
# Without it, Nagle's algorithm holds back every second small frame for 40 ms.
_TCP_OPTIONS = "transport.tcpNoDelay=true"
# As much as over TCP; by default it takes 64 KiB, and closes what has been idle for half a minute.
_WEB_OPTIONS = "websocket.maxTextMessageSize=104857600&amp;websocket.idleTimeout=0&amp;websocket.maxIdleTime=0"

# The entry point of the official images looks for the end of the element, written without the space, and puts in a
# plugin of its own that lets nobody in without its users.
_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="
         http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="stompy" useJmx="false" schedulerSupport="true"
          advisorySupport="{advisories}" persistent="{persistent}" dataDirectory={data}>
{elements}
  </broker >
</beans>
"""


class ActiveMQ(Product):
    """ActiveMQ Classic.

    Args:
        kind: by which it is asked for.
        official_images: see `Product`.
        local_image: see `Product`.
    """

    title = "ActiveMQ"

    def __init__(self, kind: str, *, official_images: tuple[str, ...], local_image: str) -> None:
        self.kind = kind
        self.official_images = official_images
        self.local_image = local_image

    def in_container(self, settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
        """Return how to start it; the official images and the local one have the same folders."""
        place = Place("0.0.0.0", default_ports(settings), f"{_HOME}/data", f"{_HOME}/conf")
        files = {"activemq.xml": broker_xml(settings, place).encode(), **stores(settings, certificates)}
        return Recipe(
            ports=place.ports,
            files={f"{_HOME}/conf/{name}": content for name, content in files.items()},
            environment={"ACTIVEMQ_HEAP": "1g", "ACTIVEMQ_OPTS_MEMORY": "-Xms64M -Xmx1G", **settings.environment},
        )


def broker_xml(settings: BrokerSettings, place: Place) -> str:
    """Return an activemq.xml.

    Raises:
        ConfigurationError: `settings.configuration` is not XML.
    """
    return _XML.format(
        advisories=str(settings.advisories).lower(),
        persistent=str(settings.persistent).lower(),
        data=quoteattr(place.data),
        elements=with_elements("".join(_elements(settings, place)), settings.configuration),
    )


def _elements(settings: BrokerSettings, place: Place) -> list[str]:
    memory = 'percentOfJvmHeap="70"' if settings.memory_limit is None else f'limit="{settings.memory_limit}"'
    elements = [
        f"<systemUsage><systemUsage><memoryUsage><memoryUsage {memory}/></memoryUsage>"
        '<storeUsage><storeUsage limit="1 gb"/></storeUsage>'
        '<tempUsage><tempUsage limit="1 gb"/></tempUsage></systemUsage></systemUsage>',
        f"<transportConnectors>{''.join(_connectors(settings, place))}</transportConnectors>",
    ]
    if settings.persistent:
        store = quoteattr(f"{place.data}/kahadb")
        elements.append(f"<persistenceAdapter><kahaDB directory={store}/></persistenceAdapter>")
    if settings.users is not None:
        elements.append(_authentication(settings.users))
    if settings.dead_letter_nonpersistent:
        strategy = '<deadLetterStrategy><sharedDeadLetterStrategy processNonPersistent="true"/></deadLetterStrategy>'
        policies = "".join(f'<policyEntry {what}="&gt;">{strategy}</policyEntry>' for what in ("queue", "topic"))
        elements.append(
            f"<destinationPolicy><policyMap><policyEntries>{policies}</policyEntries></policyMap></destinationPolicy>"
        )
    if settings.tls:
        elements.append(
            f'<sslContext><sslContext keyStore="file:{place.stores}/broker.p12" keyStoreType="PKCS12" '
            f'keyStorePassword="{STORE_PASSWORD}" trustStore="file:{place.stores}/trust.p12" '
            f'trustStoreType="PKCS12" trustStorePassword="{STORE_PASSWORD}"/></sslContext>'
        )
    return elements


def default_ports(settings: BrokerSettings) -> dict[str, int]:
    """Return port by connector, as inside a container."""
    ports = {**_PORTS, **_TLS_PORTS} if settings.tls else dict(_PORTS)
    if settings.ws:
        ports.update({**_WEB_PORTS, **_WEB_TLS_PORTS} if settings.tls else _WEB_PORTS)
    return ports


def _connectors(settings: BrokerSettings, place: Place) -> list[str]:
    connectors = []
    for name, port in place.ports.items():
        options = _WEB_OPTIONS if name.startswith("ws") else _TCP_OPTIONS
        if settings.client_certificates and (name in _TLS_PORTS or name in _WEB_TLS_PORTS):
            options += "&amp;needClientAuth=true"
        connectors.append(_CONNECTOR.format(name=name, host=place.host, port=port, options=options))
    return connectors


def _authentication(users: Mapping[str, str]) -> str:
    entries = "".join(
        f'<authenticationUser username={quoteattr(login)} password={quoteattr(passcode)} groups="users"/>'
        for login, passcode in users.items()
    )
    return (
        '<plugins><simpleAuthenticationPlugin anonymousAccessAllowed="false">'
        f"<users>{entries}</users></simpleAuthenticationPlugin></plugins>"
    )


def stores(settings: BrokerSettings, certificates: Certificates | None) -> dict[str, bytes]:
    """Return the key stores that `broker_xml` names, by file; none without TLS."""
    if not settings.tls or certificates is None:
        return {}
    return {"broker.p12": certificates.key_store(), "trust.p12": certificates.trust_store()}
