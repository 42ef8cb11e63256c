"""ActiveMQ's configuration, for images and for processes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from stompy.testing.brokers.activemq import ActiveMQ, broker_xml
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.running import BrokerSettings, Place

PRODUCT = ActiveMQ("activemq", official_images=("official:1",), local_image="local:1")
XML = "/opt/apache-activemq/conf/activemq.xml"
NS = {"b": "http://activemq.apache.org/schema/core"}


def broker(settings: BrokerSettings) -> ElementTree.Element:
    recipe = PRODUCT.in_container(settings, None)
    found = ElementTree.fromstring(recipe.files[XML]).find("b:broker", NS)
    assert found is not None
    return found


def connectors(settings: BrokerSettings) -> dict[str, str]:
    found = broker(settings).iterfind("b:transportConnectors/b:transportConnector", NS)
    return {one.attrib["name"]: one.attrib["uri"] for one in found}


def test_stomp_is_switched_on_whatever_the_image_has() -> None:
    assert connectors(BrokerSettings()) == {
        "stomp": "stomp://0.0.0.0:61613?transport.tcpNoDelay=true",
        "stomp+nio": "stomp+nio://0.0.0.0:61612?transport.tcpNoDelay=true",
    }
    assert PRODUCT.in_container(BrokerSettings(), None).ports == {"stomp": 61613, "stomp+nio": 61612}


def test_websocket_is_switched_on_if_wanted() -> None:
    found = connectors(BrokerSettings(ws=True, tls=True, client_certificates=True))
    assert found["ws"].startswith("ws://0.0.0.0:61623?websocket.maxTextMessageSize=104857600")
    assert found["wss"].startswith("wss://0.0.0.0:61624?websocket.maxTextMessageSize=104857600")
    assert ["needClientAuth=true" in found[name] for name in ("ws", "wss")] == [False, True]


def test_the_entry_point_of_the_official_images_finds_nothing_to_change() -> None:
    assert b"</broker>" not in PRODUCT.in_container(BrokerSettings(), None).files[XML]


def test_it_keeps_messages_in_memory_unless_told() -> None:
    assert broker(BrokerSettings()).attrib["persistent"] == "false"
    assert broker(BrokerSettings()).find("b:persistenceAdapter", NS) is None
    kept = broker(BrokerSettings(persistent=True))
    store = kept.find("b:persistenceAdapter/b:kahaDB", NS)
    assert store is not None
    assert (kept.attrib["persistent"], store.attrib["directory"]) == ("true", "/opt/apache-activemq/data/kahadb")


def test_users_are_written_as_they_are() -> None:
    users = {"ann": "a\"b'<&>", "bob": "é:\\"}
    found = broker(BrokerSettings(users=users)).iter(f"{{{NS['b']}}}authenticationUser")
    assert {one.attrib["username"]: one.attrib["password"] for one in found} == users


def test_without_users_there_is_no_plugin_that_asks_for_them() -> None:
    assert broker(BrokerSettings()).find("b:plugins", NS) is None
    assert broker(BrokerSettings(users={})).find("b:plugins", NS) is not None


def test_limits_advisories_and_dead_letters_are_settings() -> None:
    found = broker(BrokerSettings(memory_limit=65536, advisories=False, dead_letter_nonpersistent=True))
    memory = found.find("b:systemUsage/b:systemUsage/b:memoryUsage/b:memoryUsage", NS)
    strategies = list(found.iter(f"{{{NS['b']}}}sharedDeadLetterStrategy"))
    assert memory is not None
    assert memory.attrib == {"limit": "65536"}
    assert found.attrib["advisorySupport"] == "false"
    assert [one.attrib["processNonPersistent"] for one in strategies] == ["true", "true"]


def test_tls_brings_connectors_and_stores() -> None:
    settings = BrokerSettings(tls=True, client_certificates=True)
    found = connectors(settings)
    assert [name for name, uri in found.items() if "needClientAuth=true" in uri] == ["stomp+ssl", "stomp+nio+ssl"]
    context = broker(settings).find("b:sslContext/b:sslContext", NS)
    assert context is not None
    assert context.attrib["keyStore"] == "file:/opt/apache-activemq/conf/broker.p12"
    certificates = Certificates()
    files = PRODUCT.in_container(settings, certificates).files
    certificates.close()
    assert {Path(name).name for name in files} == {"activemq.xml", "broker.p12", "trust.p12"}


def test_more_of_its_configuration_takes_the_place_of_ours() -> None:
    settings = BrokerSettings(configuration='<systemUsage sendFailIfNoSpace="true"/>')
    xml = broker_xml(settings, Place("h", {"stomp": 1}, "d", "s"))
    assert xml.count("<systemUsage") == 1
    assert "sendFailIfNoSpace" in xml
