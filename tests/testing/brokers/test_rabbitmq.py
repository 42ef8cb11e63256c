"""RabbitMQ's configuration."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from stompy.errors import ConfigurationError
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.rabbitmq import RabbitMQ, definitions
from stompy.testing.brokers.running import BrokerSettings

PRODUCT = RabbitMQ("rabbitmq4", official_images=("official:4",), local_image="local:4")


def conf(settings: BrokerSettings) -> dict[str, str]:
    text = PRODUCT.in_container(settings, None).files["/etc/rabbitmq/rabbitmq.conf"].decode()
    return dict(line.split(" = ", 1) for line in text.splitlines())


def test_the_stomp_plugins_are_on_and_guest_may_come_from_anywhere() -> None:
    recipe = PRODUCT.in_container(BrokerSettings(), None)
    assert recipe.files["/etc/rabbitmq/enabled_plugins"] == b"[rabbitmq_stomp,rabbitmq_web_stomp].\n"
    assert conf(BrokerSettings())["loopback_users.guest"] == "false"
    assert conf(BrokerSettings())["stomp.listeners.tcp.1"] == "0.0.0.0:61613"
    assert recipe.hostname == "localhost"


def test_its_urls_name_the_virtual_host_that_it_has() -> None:
    assert (PRODUCT.url_path("stomp"), PRODUCT.url_path("stomp+ssl")) == ("/%2F", "/%2F")
    assert (PRODUCT.url_path("ws"), PRODUCT.url_path("wss")) == ("/ws", "/ws")


def test_users_are_imported_with_salted_hashes_and_guest_is_not_among_them() -> None:
    users = {"ann": "sé:c", "bob": "x"}
    files = PRODUCT.in_container(BrokerSettings(users=users), None).files
    assert conf(BrokerSettings(users=users))["load_definitions"] == "/etc/rabbitmq/definitions.json"
    assert "sé:c".encode() not in files["/etc/rabbitmq/definitions.json"]
    imported = json.loads(definitions(users))
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
    files = PRODUCT.in_container(settings, certificates).files
    certificates.close()
    named = {value for name, value in found.items() if name.endswith("file")}
    assert named == {"/etc/rabbitmq/ca.pem", "/etc/rabbitmq/broker.pem", "/etc/rabbitmq/broker.key"}
    assert named <= files.keys()


def test_more_lines_take_the_place_of_ours() -> None:
    settings = BrokerSettings(memory_limit=1000, configuration="# a remark\nloopback_users.guest = true\na.b=c = d\n")
    found = conf(settings)
    assert (found["loopback_users.guest"], found["a.b"]) == ("true", "c = d")
    assert found["vm_memory_high_watermark.absolute"] == "1000"


@pytest.mark.parametrize("options", [{"advisories": False}, {"dead_letter_nonpersistent": True}])
def test_settings_of_activemq_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(ConfigurationError, match="RabbitMQ has no setting"):
        PRODUCT.in_container(BrokerSettings.of(options), None)
