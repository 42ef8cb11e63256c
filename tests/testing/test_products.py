"""The files with which a container of each broker is started."""

from __future__ import annotations

import base64
import hashlib
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from stompy.errors import ConfigurationError
from stompy.testing.brokers import BrokerSettings, Certificates
from stompy.testing.products import PRODUCTS, STORE_PASSWORD, activemq, artemis, rabbitmq

pytest.importorskip("trustme")
from cryptography.hazmat.primitives.serialization import pkcs12


@pytest.fixture
def made() -> Iterator[Certificates]:
    certificates = Certificates()
    yield certificates
    certificates.close()


# ActiveMQ

XML = "/opt/apache-activemq/conf/activemq.xml"
BEANS = {"b": "http://activemq.apache.org/schema/core"}


def activemq_broker(settings: BrokerSettings) -> ElementTree.Element:
    recipe = activemq(settings, None)
    found = ElementTree.fromstring(recipe.files[XML]).find("b:broker", BEANS)
    assert found is not None
    return found


def connectors(settings: BrokerSettings) -> dict[str, str]:
    found = activemq_broker(settings).iterfind("b:transportConnectors/b:transportConnector", BEANS)
    return {each.attrib["name"]: each.attrib["uri"] for each in found}


def test_stomp_is_switched_on_whatever_the_image_has() -> None:
    assert connectors(BrokerSettings()) == {
        "stomp": "stomp://0.0.0.0:61613?transport.tcpNoDelay=true",
        "stomp+nio": "stomp+nio://0.0.0.0:61612?transport.tcpNoDelay=true",
    }
    assert activemq(BrokerSettings(), None).ports == {"stomp": 61613, "stomp+nio": 61612}


def test_websocket_is_switched_on_if_wanted() -> None:
    found = connectors(BrokerSettings(ws=True, tls=True, client_certificates=True))
    assert found["ws"].startswith("ws://0.0.0.0:61623?websocket.maxTextMessageSize=104857600")
    assert found["wss"].startswith("wss://0.0.0.0:61624?websocket.maxTextMessageSize=104857600")
    assert ["needClientAuth=true" in found[name] for name in ("ws", "wss")] == [False, True]


def test_the_entry_point_of_the_official_images_finds_nothing_to_change() -> None:
    assert b"</broker>" not in activemq(BrokerSettings(), None).files[XML]


def test_it_keeps_messages_in_memory_unless_told() -> None:
    assert activemq_broker(BrokerSettings()).attrib["persistent"] == "false"
    assert activemq_broker(BrokerSettings()).find("b:persistenceAdapter", BEANS) is None
    kept = activemq_broker(BrokerSettings(persistent=True))
    store = kept.find("b:persistenceAdapter/b:kahaDB", BEANS)
    assert store is not None
    assert (kept.attrib["persistent"], store.attrib["directory"]) == ("true", "/opt/apache-activemq/data/kahadb")


def test_users_are_written_as_they_are() -> None:
    users = {"ann": "a\"b'<&>", "bob": "é:\\"}
    found = activemq_broker(BrokerSettings(users=users)).iter(f"{{{BEANS['b']}}}authenticationUser")
    assert {each.attrib["username"]: each.attrib["password"] for each in found} == users


def test_without_users_there_is_no_plugin_that_asks_for_them() -> None:
    assert activemq_broker(BrokerSettings()).find("b:plugins", BEANS) is None


def test_limits_advisories_and_dead_letters_are_settings() -> None:
    found = activemq_broker(BrokerSettings(memory_limit=65536, advisories=False, dead_letter_nonpersistent=True))
    memory = found.find("b:systemUsage/b:systemUsage/b:memoryUsage/b:memoryUsage", BEANS)
    strategies = list(found.iter(f"{{{BEANS['b']}}}sharedDeadLetterStrategy"))
    assert memory is not None
    assert memory.attrib == {"limit": "65536"}
    assert found.attrib["advisorySupport"] == "false"
    assert [each.attrib["processNonPersistent"] for each in strategies] == ["true", "true"]


def test_tls_brings_connectors_and_stores() -> None:
    settings = BrokerSettings(tls=True, client_certificates=True)
    found = connectors(settings)
    assert [name for name, uri in found.items() if "needClientAuth=true" in uri] == ["stomp+ssl", "stomp+nio+ssl"]
    context = activemq_broker(settings).find("b:sslContext/b:sslContext", BEANS)
    assert context is not None
    assert context.attrib["keyStore"] == "file:/opt/apache-activemq/conf/broker.p12"
    certificates = Certificates()
    files = activemq(settings, certificates).files
    certificates.close()
    assert {Path(name).name for name in files} == {"activemq.xml", "broker.p12", "trust.p12"}


def test_more_of_its_configuration_takes_the_place_of_ours() -> None:
    settings = BrokerSettings(configuration='<systemUsage sendFailIfNoSpace="true"/>')
    xml = activemq(settings, None).files[XML]
    assert xml.count(b"<systemUsage") == 1
    assert b"sendFailIfNoSpace" in xml


def test_elements_stand_in_the_order_of_their_names() -> None:
    tags = [element.tag.partition("}")[2] for element in activemq_broker(BrokerSettings(configuration="<aFirst/>"))]
    assert tags == sorted(tags)
    assert tags[0] == "aFirst"


def test_what_is_not_xml_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a row of XML elements"):
        activemq(BrokerSettings(configuration="<b>"), None)


def test_the_key_store_holds_the_brokers_key_and_certificate(made: Certificates) -> None:
    files = activemq(BrokerSettings(tls=True), made).files
    store = files["/opt/apache-activemq/conf/broker.p12"]
    key, certificate, _ = pkcs12.load_key_and_certificates(store, STORE_PASSWORD.encode())
    assert key is not None
    assert certificate is not None
    assert key.public_key() == certificate.public_key()
    trusted = pkcs12.load_pkcs12(files["/opt/apache-activemq/conf/trust.p12"], STORE_PASSWORD.encode())
    assert trusted.key is None
    assert [each.friendly_name for each in trusted.additional_certs] == [b"authority"]


# Artemis

CORE = {"c": "urn:activemq:core"}


def artemis_files(settings: BrokerSettings, certificates: Certificates | None = None) -> dict[str, bytes]:
    found = artemis(settings, certificates).files
    assert {str(PurePosixPath(path).parent) for path in found} == {"/var/lib/artemis-instance/etc-override"}
    return {PurePosixPath(path).name: content for path, content in found.items()}


def core(settings: BrokerSettings) -> ElementTree.Element:
    found = ElementTree.fromstring(artemis_files(settings)["broker.xml"]).find("c:core", CORE)
    assert found is not None
    return found


def text(settings: BrokerSettings, path: str) -> str:
    found = core(settings).find(path, CORE)
    assert found is not None
    return found.text or ""


def test_names_say_whether_they_are_queues_or_topics() -> None:
    assert text(BrokerSettings(), "c:acceptors/c:acceptor") == (
        "tcp://0.0.0.0:61613?protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/"
    )


def test_security_and_persistence_are_off_unless_asked_for() -> None:
    off, on = BrokerSettings(), BrokerSettings(users={"ann": "x"}, persistent=True)
    names = ("c:security-enabled", "c:persistence-enabled")
    assert [text(off, name) for name in names] == ["false", "false"]
    assert [text(on, name) for name in names] == ["true", "true"]


def test_users_are_written_as_java_reads_properties() -> None:
    found = artemis_files(BrokerSettings(users={"ann": "a:é\U0001f600", "b": "9"}))
    assert found["artemis-users.properties"].decode() == (
        "\\u0061\\u006e\\u006e = \\u0061\\u003a\\u00e9\\ud83d\\ude00\n\\u0062 = \\u0039\n"
    )
    assert found["artemis-roles.properties"].decode() == "amq = \\u0061\\u006e\\u006e,\\u0062\n"
    assert b"GuestLoginModule" not in found["login.config"]


def test_a_memory_limit_blocks_the_senders() -> None:
    setting = "c:address-settings/c:address-setting/c:"
    limited = BrokerSettings(memory_limit=1000)
    assert text(limited, f"{setting}max-size-bytes") == "1000"
    assert text(limited, f"{setting}address-full-policy") == "BLOCK"
    assert text(BrokerSettings(), f"{setting}address-full-policy") == "PAGE"


@pytest.mark.parametrize("wanted", [True, False])
def test_tls_brings_an_acceptor_and_stores(wanted: bool) -> None:
    settings = BrokerSettings(tls=True, client_certificates=wanted)
    uri = text(settings, "c:acceptors/c:acceptor[@name='stomp+ssl']")
    assert "sslEnabled=true;keyStorePath=/var/lib/artemis-instance/etc/broker.p12;keyStoreType=PKCS12" in uri
    assert uri.endswith(f"needClientAuth={str(wanted).lower()}")
    certificates = Certificates()
    assert {"broker.p12", "trust.p12"} <= artemis_files(settings, certificates).keys()
    certificates.close()


@pytest.mark.parametrize("options", [{"advisories": False}, {"dead_letter_nonpersistent": True}])
def test_settings_of_the_other_activemq_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(ConfigurationError, match="Artemis has no setting"):
        artemis(BrokerSettings.of(options), None)


def test_an_element_of_broker_xml_takes_the_place_of_ours() -> None:
    assert text(BrokerSettings(configuration="<journal-type>MAPPED</journal-type>"), "c:journal-type") == "MAPPED"


# RabbitMQ


def conf(settings: BrokerSettings) -> dict[str, str]:
    text = rabbitmq(settings, None).files["/etc/rabbitmq/rabbitmq.conf"].decode()
    return dict(line.split(" = ", 1) for line in text.splitlines())


def test_the_stomp_plugins_are_on_and_guest_may_come_from_anywhere() -> None:
    recipe = rabbitmq(BrokerSettings(), None)
    assert recipe.files["/etc/rabbitmq/enabled_plugins"] == b"[rabbitmq_stomp,rabbitmq_web_stomp].\n"
    assert conf(BrokerSettings())["loopback_users.guest"] == "false"
    assert conf(BrokerSettings())["stomp.listeners.tcp.1"] == "0.0.0.0:61613"
    assert recipe.hostname == "localhost"


def test_users_are_imported_with_salted_hashes_and_guest_is_not_among_them() -> None:
    users = {"ann": "sé:c", "bob": "x"}
    files = rabbitmq(BrokerSettings(users=users), None).files
    assert conf(BrokerSettings(users=users))["load_definitions"] == "/etc/rabbitmq/definitions.json"
    assert "sé:c".encode() not in files["/etc/rabbitmq/definitions.json"]
    imported = json.loads(files["/etc/rabbitmq/definitions.json"])
    for user in imported["users"]:
        hashed = base64.b64decode(user["password_hash"])
        assert hashed[4:] == hashlib.sha256(hashed[:4] + users[user["name"]].encode()).digest()
    assert [user["name"] for user in imported["users"]] == ["ann", "bob"]
    assert [right["user"] for right in imported["permissions"]] == ["ann", "bob"]


@pytest.mark.parametrize(("wanted", "verify"), [(True, "verify_peer"), (False, "verify_none")])
def test_tls_brings_listeners_and_files(wanted: bool, verify: str) -> None:
    settings = BrokerSettings(tls=True, client_certificates=wanted)
    found = conf(settings)
    assert (found["stomp.listeners.ssl.1"], found["ssl_options.verify"]) == ("0.0.0.0:61614", verify)
    assert found["ssl_options.fail_if_no_peer_cert"] == str(wanted).lower()
    certificates = Certificates()
    files = rabbitmq(settings, certificates).files
    certificates.close()
    named = {value for name, value in found.items() if name.endswith("file")}
    assert named == {"/etc/rabbitmq/ca.pem", "/etc/rabbitmq/broker.pem"}
    assert named <= files.keys()


def test_more_lines_take_the_place_of_ours() -> None:
    settings = BrokerSettings(memory_limit=1000, configuration="# a remark\nloopback_users.guest = true\na.b=c = d\n")
    found = conf(settings)
    assert (found["loopback_users.guest"], found["a.b"]) == ("true", "c = d")
    assert found["vm_memory_high_watermark.absolute"] == "1000"


@pytest.mark.parametrize("options", [{"advisories": False}, {"dead_letter_nonpersistent": True}])
def test_settings_of_activemq_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(ConfigurationError, match="RabbitMQ has no setting"):
        rabbitmq(BrokerSettings.of(options), None)


def test_the_kinds_and_their_images() -> None:
    assert list(PRODUCTS) == ["activemq", "activemq5", "artemis", "rabbitmq3", "rabbitmq4"]
    # Since 6.2.6 the images of ActiveMQ are named anew; the older name has no newer ones.
    assert PRODUCTS["activemq"].images == ("apache/activemq:6.3.1", "apache/activemq-classic:6.1.7")
    assert PRODUCTS["artemis"].images == ("apache/artemis:2.57.0", "apache/activemq-artemis:2.44.0")
    assert PRODUCTS["rabbitmq4"].images == ("rabbitmq:4",)
