"""What the kinds of brokers share: how elements of a configuration are put together."""

from __future__ import annotations

import pytest

from stompy.errors import ConfigurationError
from stompy.testing.brokers.certificates import Certificates
from stompy.testing.brokers.running import BrokerSettings, Product, Recipe, with_elements


class Plain(Product):
    kind = "plain"
    title = "Plain"
    official_images = ()
    local_image = "plain:1"

    def in_container(self, settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
        self._refuse_others(settings, advisories=True)
        return Recipe(ports={"stomp": 1}, files={})


def test_elements_stand_in_the_order_of_their_names() -> None:
    assert with_elements("<c/><a x='1'/>", "<b/>").split("\n") == ['<a x="1" />', "<b />", "<c />"]


def test_what_is_given_takes_the_place_of_its_namesake() -> None:
    assert with_elements("<a>old</a><b/>", "<a>new</a>") == "<a>new</a>\n<b />"


def test_what_is_not_xml_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a row of XML elements"):
        with_elements("<a/>", "<b>")


def test_a_setting_of_another_broker_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="Plain has no setting 'advisories'"):
        Plain().connectors(BrokerSettings(advisories=False))


def test_its_connectors_are_those_of_the_recipe() -> None:
    assert (Plain().connectors(BrokerSettings()), Plain().url_path("stomp")) == (("stomp",), "")
