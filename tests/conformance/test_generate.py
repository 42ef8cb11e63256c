from __future__ import annotations

import re

import pytest

from tests.conformance.generate import Row, page, problems, read_rows, read_untestable, roles_held

BOTH = Row("ABC-01", "Things", "Say | it.", "1.0, 1.2", "MUST", "client, broker")
CODEC = Row("ABC-02", "Things", "Write it.", "all", "MAY", "codec, client, broker")
GAP = Row("A-01", "Gaps", "We do this.", topic="Case")
ROWS = [BOTH, CODEC, GAP]
HELD = {
    "ABC-01": {"tests/protocol/test_client.py::test_a", "tests/broker/test_router.py::test_b"},
    "ABC-02": {"tests/frames/test_parser.py::test_c"},
    "A-01": {"tests/property/test_x.py::test_d"},
}


def test_nothing_is_amiss_where_every_row_is_held_for_its_roles() -> None:
    assert list(problems(ROWS, HELD, {})) == []


@pytest.mark.parametrize(
    ("tests", "untestable", "words"),
    [
        ({**HELD, "A-01": set()}, {}, "A-01 has no test (Case: We do this.)"),
        ({**HELD, "ABC-09": {"tests/x.py::t"}}, {}, "ABC-09 is no row, but tests/x.py::t names it"),
        (HELD, {"ABC-09": "why"}, "ABC-09 is no row, but untestable.json has it"),
        (HELD, {"A-01": "why"}, "A-01 has tests and stands in untestable.json"),
        (
            {**HELD, "ABC-01": {"tests/protocol/test_server.py::test_a"}},
            {},
            "ABC-01 has no test for client (Say | it.)",
        ),
        ({**HELD, "ABC-02": {"tests/link/test_link.py::t"}}, {}, "ABC-02 has no test for broker and codec (Write it.)"),
    ],
)
def test_what_is_amiss_is_told(tests: dict[str, set[str]], untestable: dict[str, str], words: str) -> None:
    assert list(problems(ROWS, tests, untestable)) == [words]


def test_a_row_without_a_test_may_say_why() -> None:
    rest = {name: tests for name, tests in HELD.items() if name != "A-01"}
    assert list(problems(ROWS, rest, {"A-01": "It is a word on words."})) == []
    assert "We do this. <br>*Untestable: It is a word on words.* |" in page(
        ROWS, rest, {"A-01": "It is a word on words."}
    )


def test_the_page_has_a_line_for_each_row() -> None:
    text = page(ROWS, HELD, {})
    assert "\n## Things\n\n| row | applies to | statement |\n| --- |" in text
    assert (
        "\n| ABC-01 | MUST<br>1.0, 1.2<br>client, broker | Say \\| it. <details><summary>tests</summary>"
        "broker/test_router.py: `test_b`<br>protocol/test_client.py: `test_a`</details> |\n"
    ) in text
    assert (
        "\n| A-01 | Case | We do this. <details><summary>tests</summary>property/test_x.py: `test_d`</details> |\n"
        in text
    )


def test_tests_outside_the_known_folders_hold_every_role() -> None:
    assert roles_held({"tests/scenarios/test_x.py::t"}) == {"client", "broker", "codec"}
    assert roles_held(set()) == frozenset()


def test_the_rows_are_numbered_and_whole() -> None:
    rows = read_rows()
    names = [row.id for row in rows]
    assert len(set(names)) == len(names) == 249
    assert all(re.fullmatch(r"(?:[A-Z][A-Z0-9]{2}|A)-\d\d", name) for name in names)
    for row in rows:
        assert row.statement
        assert bool(row.topic) is row.id.startswith("A-")
        assert row.roles <= {"client", "broker", "codec"}
        assert bool(row.roles and row.level and row.versions) is not bool(row.topic)


def test_every_reason_for_no_test_is_a_sentence() -> None:
    assert all(reason.endswith(".") for reason in read_untestable().values())
