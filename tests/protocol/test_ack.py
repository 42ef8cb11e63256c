from __future__ import annotations

import pytest

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.grammar import Version
from stompy.protocol.ack import Entry, Ledger, ack_headers
from tests.protocol.exchange import ALL, DRAFT, MODERN, V1_0, V1_1, V1_2

MESSAGE = {"message-id": "m-7", "subscription": "s", "ack": "a-9", "destination": "/q"}


def filled(*deliveries: str) -> Ledger[str]:
    """Return a ledger of deliveries such as `a1`: the first one of subscription `a`."""
    ledger: Ledger[str] = Ledger()
    for token in deliveries:
        ledger.add(token, token[0], f"item {token}")
    return ledger


def tokens(entries: list[Entry[str]]) -> list[str]:
    return [entry.token for entry in entries]


@pytest.mark.requirement("ACK-09", "ACK-10", "ACK-11", "ACK-17", "SUB-16")
@pytest.mark.parametrize(
    ("version", "headers"),
    [
        (DRAFT, {"message-id": "m-7"}),
        (V1_0, {"message-id": "m-7", "subscription": "s"}),
        (V1_1, {"message-id": "m-7", "subscription": "s"}),
        (V1_2, {"id": "a-9"}),
    ],
)
def test_an_ack_names_the_message_as_the_version_wants(version: Version, headers: dict[str, str]) -> None:
    assert ack_headers("ACK", MESSAGE.get, version) == headers
    if version in MODERN:
        assert ack_headers("NACK", MESSAGE.get, version) == headers


def test_in_1_0_an_ack_names_the_subscription_only_if_the_message_does() -> None:
    assert ack_headers("ACK", {"message-id": "m-7"}.get, V1_0) == {"message-id": "m-7"}


@pytest.mark.requirement("ACK-14", "D10-18")
@pytest.mark.parametrize("version", [DRAFT, V1_0], ids=str)
def test_there_is_no_nack_in_1_0(version: Version) -> None:
    with pytest.raises(LocalProtocolError, match="has no NACK"):
        ack_headers("NACK", MESSAGE.get, version)


@pytest.mark.requirement("ACK-09", "ACK-10", "ACK-11")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_message_without_the_header_that_names_it_cannot_be_acknowledged(version: Version) -> None:
    required = ack_headers("ACK", MESSAGE.get, version).keys() - ({"subscription"} if version is V1_0 else set())
    for name in required:
        source = {"id": "ack", "message-id": "message-id", "subscription": "subscription"}[name]
        rest = {key: value for key, value in MESSAGE.items() if key != source}
        with pytest.raises(LocalProtocolError, match=f"no '{source}' header"):
            ack_headers("ACK", rest.get, version)


@pytest.mark.requirement("ACK-17")
def test_in_1_2_the_message_id_is_never_taken_for_the_ack_header() -> None:
    with pytest.raises(LocalProtocolError):
        ack_headers("ACK", {"message-id": "m-7"}.get, V1_2)


@pytest.mark.requirement("ACK-07")
def test_an_individual_ack_takes_one() -> None:
    ledger = filled("a1", "a2", "a3")
    assert tokens(ledger.take("a3", cumulative=False)) == ["a3"]
    assert (len(ledger), ledger.count("a")) == (2, 2)
    assert tokens(ledger.take("a1", cumulative=False)) == ["a1"]
    assert tokens(ledger.take_all()) == ["a2"]


@pytest.mark.requirement("ACK-05", "ACK-06", "ACK-16", "A-16", "A-17")
def test_a_cumulative_ack_takes_what_was_delivered_before_too() -> None:
    ledger = filled("a1", "a2", "a3", "a4")
    assert tokens(ledger.take("a3", cumulative=True)) == ["a1", "a2", "a3"]
    assert tokens(ledger.take("a4", cumulative=True)) == ["a4"]
    assert len(ledger) == 0


@pytest.mark.requirement("ACK-05", "A-18")
def test_a_cumulative_ack_leaves_other_subscriptions_alone() -> None:
    ledger = filled("a1", "b1", "a2", "b2", "a3")
    assert tokens(ledger.take("a2", cumulative=True)) == ["a1", "a2"]
    assert (ledger.count("a"), ledger.count("b")) == (1, 2)
    assert tokens(ledger.take("b2", cumulative=True)) == ["b1", "b2"]


@pytest.mark.requirement("ACK-16")
def test_a_cumulative_ack_passes_over_what_was_acknowledged_already() -> None:
    ledger = filled("a1", "a2", "a3")
    ledger.take("a2", cumulative=False)
    assert tokens(ledger.take("a3", cumulative=True)) == ["a1", "a3"]


@pytest.mark.requirement("A-43", "ACK-01")
@pytest.mark.parametrize("cumulative", [True, False])
def test_an_unknown_message_cannot_be_acknowledged(cumulative: bool) -> None:
    ledger = filled("a1")
    ledger.take("a1", cumulative=cumulative)
    for token in ("a1", "zz", ""):
        with pytest.raises(RemoteProtocolError, match="there is no unacknowledged message"):
            ledger.take(token, cumulative=cumulative)


@pytest.mark.requirement("A-35", "ACK-10")
def test_a_1_1_ack_must_name_the_subscription_of_the_message() -> None:
    ledger = filled("a1", "b1")
    assert ledger.find("a1", subscription="a") == ledger.find("a1")
    assert ledger.find("a1").item == "item a1"
    with pytest.raises(RemoteProtocolError, match="'a1' does not belong to the subscription"):
        ledger.find("a1", subscription="b")
    with pytest.raises(RemoteProtocolError, match="no unacknowledged message 'zz'"):
        ledger.find("zz", subscription="a")
    assert len(ledger) == 2


def test_an_offending_token_is_shown_cut() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        filled().take("x" * 10_000, cumulative=False)
    assert len(str(caught.value)) < 200


@pytest.mark.requirement("TXN-08", "A-18")
def test_an_aborted_acknowledgement_is_back_in_its_place() -> None:
    ledger = filled("a1", "a2", "b1", "a3", "a4")
    first = ledger.take("a2", cumulative=True)
    second = ledger.take("a4", cumulative=False)
    ledger.add("a5", "a", "item a5")
    ledger.restore([*second, *first])
    assert tokens(ledger.take("a3", cumulative=True)) == ["a1", "a2", "a3"]
    assert tokens(ledger.take_all()) == ["b1", "a4", "a5"]


@pytest.mark.requirement("TXN-08")
def test_an_aborted_acknowledgement_can_be_made_again() -> None:
    ledger = filled("a1", "b1")
    ledger.restore(ledger.take("a1", cumulative=True) + ledger.take("b1", cumulative=True))
    assert tokens(ledger.take("b1", cumulative=True)) == ["b1"]
    assert tokens(ledger.take("a1", cumulative=True)) == ["a1"]


def test_restoring_nothing_changes_nothing() -> None:
    ledger = filled("a1")
    ledger.restore([])
    assert tokens(ledger.take_all()) == ["a1"]


@pytest.mark.requirement("ACK-13")
def test_what_was_delivered_stays_in_the_ledger_whatever_becomes_of_the_subscription() -> None:
    ledger = filled("a1", "a2")
    # The ledger does not see UNSUBSCRIBE: it ends the deliveries, not what was delivered.
    assert tokens(ledger.take("a2", cumulative=True)) == ["a1", "a2"]


@pytest.mark.requirement("ACK-02", "ACK-04", "ACK-13")
def test_at_the_end_everything_unacknowledged_comes_out_in_the_order_of_delivery() -> None:
    ledger = filled("a1", "b1", "a2", "c1", "b2")
    ledger.take("a1", cumulative=False)
    assert [entry.item for entry in ledger.take_all()] == ["item b1", "item a2", "item c1", "item b2"]
    assert (len(ledger), ledger.count("a"), ledger.count("none")) == (0, 0, 0)
    assert ledger.take_all() == []


def test_cumulative_acks_of_many_deliveries_take_linear_time() -> None:
    ledger = filled(*(f"a{number}" for number in range(20_000)))
    for number in range(0, 20_000, 2):
        assert len(ledger.take(f"a{number + 1}", cumulative=True)) == 2
    assert len(ledger) == 0
