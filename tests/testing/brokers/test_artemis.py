"""Artemis's configuration."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import PurePosixPath

import pytest

from stompy.errors import ConfigurationError
from stompy.testing.brokers.artemis import Artemis
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.running import BrokerSettings

PRODUCT = Artemis("artemis", official_images=("official:1",), local_image="local:1")
NS = {"c": "urn:activemq:core"}


def files(settings: BrokerSettings, certificates: Certificates | None = None) -> dict[str, bytes]:
    found = PRODUCT.in_container(settings, certificates).files
    assert {str(PurePosixPath(path).parent) for path in found} == {"/var/lib/artemis-instance/etc-override"}
    return {PurePosixPath(path).name: content for path, content in found.items()}


def core(settings: BrokerSettings) -> ElementTree.Element:
    found = ElementTree.fromstring(files(settings)["broker.xml"]).find("c:core", NS)
    assert found is not None
    return found


def text(settings: BrokerSettings, path: str) -> str:
    found = core(settings).find(path, NS)
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
    found = files(BrokerSettings(users={"ann lee": "a:b=\\#é\U0001f600", "bob": "plain9"}))
    assert found["artemis-users.properties"].decode() == (
        "ann\\u0020lee = a\\u003ab\\u003d\\u005c\\u0023\\u00e9\\ud83d\\ude00\nbob = plain9\n"
    )
    assert found["artemis-roles.properties"].decode() == "amq = ann\\u0020lee,bob\n"
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
    assert {"broker.p12", "trust.p12"} <= files(settings, certificates).keys()
    certificates.close()


@pytest.mark.parametrize("options", [{"advisories": False}, {"dead_letter_nonpersistent": True}])
def test_settings_of_the_other_activemq_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(ConfigurationError, match="Artemis has no setting"):
        PRODUCT.in_container(BrokerSettings.of(options), None)


def test_more_of_its_configuration_takes_the_place_of_ours() -> None:
    assert text(BrokerSettings(configuration="<journal-type>MAPPED</journal-type>"), "c:journal-type") == "MAPPED"
