"""ActiveMQ Classic: its images, its activemq.xml, and how to run it from a folder of jars."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from stompy.testing.brokers.certificates import STORE_PASSWORD
from stompy.testing.brokers.product import Product, Recipe, with_elements
from stompy.testing.brokers.settings import BrokerSettings, Place

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates

HOME_VARIABLE = "STOMPY_ACTIVEMQ_HOME"
"""Names the folder whose lib/ holds the broker's jars, for one that runs as a process."""

_HOME = "/opt/apache-activemq"
_PORTS = {"stomp": 61613, "stomp+nio": 61612}
_TLS_PORTS = {"stomp+ssl": 61614, "stomp+nio+ssl": 61615}

# Without tcpNoDelay, Nagle's algorithm holds back every second small frame for 40 ms.
_CONNECTOR = '<transportConnector name="{name}" uri="{name}://{host}:{port}?transport.tcpNoDelay=true{more}"/>'

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

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n%throwable
"""

_JVM_OPTIONS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts faster, and a test broker never gets hot enough to miss the second compiler
    "-XX:-UsePerfData",  # leaves no file in the system's temporary folder
    # The STOMP transformations and advisory topics make XStream look into the JDK's own classes.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)

_LISTENING = re.compile(r"Listening for connections at: ([a-z+]+)://[^\s:]+:(\d+)")


class ActiveMQ(Product):
    """ActiveMQ Classic.

    Args:
        kind: by which it is asked for.
        official_images: see `Product`.
        local_image: see `Product`.
        home_like: which version of the broker in the folder of `STOMPY_ACTIVEMQ_HOME` is this kind.
    """

    title = "ActiveMQ"

    def __init__(self, kind: str, *, official_images: tuple[str, ...], local_image: str, home_like: str) -> None:
        self.kind = kind
        self.official_images = official_images
        self.local_image = local_image
        self._home_like = home_like

    def in_container(self, settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
        """Return how to start it; the official images and the local one have the same folders."""
        place = Place("0.0.0.0", _ports(settings), f"{_HOME}/data", f"{_HOME}/conf")
        files = {"activemq.xml": broker_xml(settings, place).encode(), **_stores(settings, certificates)}
        return Recipe(
            ports=place.ports,
            files={f"{_HOME}/conf/{name}": content for name, content in files.items()},
            environment={"ACTIVEMQ_HEAP": "1g", "ACTIVEMQ_OPTS_MEMORY": "-Xms64M -Xmx1G", **settings.environment},
        )

    def missing(self) -> str | None:
        """Return why the broker of `STOMPY_ACTIVEMQ_HOME` cannot be run."""
        name = os.environ.get(HOME_VARIABLE)
        if not name:
            return f"{HOME_VARIABLE} is not set (.ci/activemq obtains an ActiveMQ and prints what to set it to)"
        home = Path(name)
        for part in ("activemq-broker", "activemq-console", "activemq-stomp", "activemq-spring"):
            if not any(any((home / "lib" / folder).glob(f"{part}*.jar")) for folder in (".", "optional")):
                return f"no ActiveMQ in '{home}': lib/ has no {part} jar ({HOME_VARIABLE} names the folder)"
        if shutil.which(_java()) is None:
            return f"no Java here: '{_java()}' is not a command"
        if not any((home / "lib").glob(f"activemq-broker-{self._home_like}*.jar")) and self._home_like not in home.name:
            return f"the ActiveMQ in '{home}' is not a {self._home_like}x"
        return None

    def as_process(
        self, settings: BrokerSettings, certificates: Certificates | None, folder: Path, ports: Mapping[str, int]
    ) -> Recipe:
        """Return how to run the broker of `STOMPY_ACTIVEMQ_HOME`; it finds free ports and tells them in its log."""
        home = Path(os.environ[HOME_VARIABLE])
        place = Place("127.0.0.1", ports or dict.fromkeys(_ports(settings), 0), str(folder / "data"), str(folder))
        jars = ":".join(f"{home / 'lib' / part}/*" for part in ("", "optional", "extra"))
        return Recipe(
            ports=place.ports,
            files={
                "activemq.xml": broker_xml(settings, place).encode(),
                "log4j2.properties": _LOGGING.encode(),
                **_stores(settings, certificates),
            },
            environment=settings.environment,
            command=(
                _java(),
                *_JVM_OPTIONS,
                f"-Djava.io.tmpdir={folder / 'tmp'}",
                f"-Dactivemq.home={home}",
                f"-Dactivemq.base={folder}",
                f"-Dactivemq.data={folder / 'data'}",
                "-classpath",
                f"{folder}:{jars}",
                "org.apache.activemq.console.command.ShellCommand",
                "start",
                # Not as_uri(): 6.3 takes file:/... for a local file and refuses file:///... as a remote one.
                f"xbean:file:{quote(str(folder / 'activemq.xml'))}",
            ),
        )

    def found_ports(self, log: str) -> dict[str, int]:
        """Return what the broker says it listens on."""
        return {scheme: int(port) for scheme, port in _LISTENING.findall(log)}


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


def _ports(settings: BrokerSettings) -> dict[str, int]:
    return {**_PORTS, **_TLS_PORTS} if settings.tls else dict(_PORTS)


def _connectors(settings: BrokerSettings, place: Place) -> list[str]:
    wants = "&amp;needClientAuth=true" if settings.client_certificates else ""
    return [
        _CONNECTOR.format(name=name, host=place.host, port=port, more=wants if name in _TLS_PORTS else "")
        for name, port in place.ports.items()
    ]


def _authentication(users: Mapping[str, str]) -> str:
    entries = "".join(
        f'<authenticationUser username={quoteattr(login)} password={quoteattr(passcode)} groups="users"/>'
        for login, passcode in users.items()
    )
    return (
        '<plugins><simpleAuthenticationPlugin anonymousAccessAllowed="false">'
        f"<users>{entries}</users></simpleAuthenticationPlugin></plugins>"
    )


def _stores(settings: BrokerSettings, certificates: Certificates | None) -> dict[str, bytes]:
    if not settings.tls or certificates is None:
        return {}
    return {"broker.p12": certificates.key_store(), "trust.p12": certificates.trust_store()}


def _java() -> str:
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home, "bin", "java")) if java_home else "java"
