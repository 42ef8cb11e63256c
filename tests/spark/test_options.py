from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from stompy.errors import ConfigurationError
from stompy.spark import options as kinds
from stompy.spark.options import Option, option, own_options, parse, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Options that another kind has too."""

    destination: str = option(kinds.text, None, "where from", required=True)
    max_messages: int | None = option(kinds.count, None, "the most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(Shared):
    """Options of a kind."""

    idle_timeout: float = option(kinds.seconds, "5", "the wait")
    tags: Mapping[str, str] = option(kinds.headers, "{}", "of its own")


def test_a_table_is_made_from_a_dataclass() -> None:
    assert [(one.name, one.field, one.required) for one in table_of(Made)] == [
        ("destination", "destination", True),
        ("maxMessages", "max_messages", False),
        ("idleTimeout", "idle_timeout", False),
        ("tags", "tags", False),
    ]
    assert [one.name for one in own_options(Made)] == ["idleTimeout", "tags"]
    assert own_options(Shared) == table_of(Shared)


def given(**options: str) -> dict[str, str]:
    return {"destination": "/queue/a", **options}


def test_names_have_no_case_and_may_be_written_with_underscores() -> None:
    for name in ("maxMessages", "maxmessages", "max_messages", "MAX_MESSAGES"):
        assert parse(Made, given(**{name: "7"})).max_messages == 7


def test_defaults_are_parsed_too() -> None:
    assert parse(Made, given()) == Made(destination="/queue/a", max_messages=None, idle_timeout=5.0, tags={})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option 'maxmesages'; did you mean maxMessages\?"):
        parse(Made, given(maxmesages="1"))
    with pytest.raises(ConfigurationError, match="there are destination, idleTimeout, maxMessages, tags"):
        parse(Made, given(zzz="1"))


def test_an_option_that_is_left_out_of_the_kind_is_unknown() -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'tags'"):
        parse(Made, given(tags="{}"), without=["tags"])


def test_a_required_option_that_is_missing_is_named_with_what_it_is() -> None:
    with pytest.raises(ConfigurationError, match="option destination is missing: where from"):
        parse(Made, {})


def test_an_option_under_two_spellings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="maxMessages is given twice"):
        parse(Made, given(max_messages="1", maxmessages="2"))


def test_a_wrong_value_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(Made, given(max_messages="sesame"))
    assert str(caught.value) == "option maxMessages must be a whole number of 1 or more"


@pytest.mark.parametrize(
    ("kind", "value", "parsed"),
    [
        (kinds.seconds, "1.5s", 1.5),
        (kinds.seconds, "200ms", 0.2),
        (kinds.seconds, "5m", 300.0),
        (kinds.seconds, "2 H", 7200.0),
        (kinds.size, "8m", 8 << 20),
        (kinds.size, "64kb", 64 << 10),
        (kinds.size, "12", 12),
        (kinds.count, "3", 3),
        (kinds.number, "0", 0),
        (kinds.flag, "TRUE", True),
        (kinds.flag, "no", False),
        (kinds.choice("auto", "none"), "Auto", "auto"),
        (kinds.headers, '{"client-id": "etl"}', {"client-id": "etl"}),
        (kinds.positions, "Earliest", {"": kinds.EARLIEST}),
        (kinds.positions, "latest", {"": kinds.LATEST}),
        (kinds.positions, '{"/a": 7, "/b": -2, "/c": -1}', {"/a": 7, "/b": kinds.EARLIEST, "/c": kinds.LATEST}),
    ],
)
def test_values(kind: kinds.Parse, value: str, parsed: object) -> None:
    assert kind(value) == parsed


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (kinds.seconds, "soon"),
        (kinds.seconds, "-1"),
        (kinds.size, "1.5m"),
        (kinds.size, "0"),
        (kinds.count, "0"),
        (kinds.count, "²"),
        (kinds.flag, "maybe"),
        (kinds.text, ""),
        (kinds.choice("auto", "none"), "some"),
        (kinds.headers, "client-id:etl"),
        (kinds.headers, '{"n": 1}'),
        (kinds.positions, "oldest"),
        (kinds.positions, "7"),
        (kinds.positions, '{"/a": -3}'),
        (kinds.positions, '{"/a": true}'),
        (kinds.positions, '{"/a": "7"}'),
    ],
)
def test_wrong_values(kind: kinds.Parse, value: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        kind(value)


def test_the_name_of_an_option_is_that_of_its_field_in_camel_case() -> None:
    assert Option("max_offsets_per_trigger", kinds.count, None, "").name == "maxOffsetsPerTrigger"
