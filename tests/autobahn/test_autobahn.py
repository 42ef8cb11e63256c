"""The Autobahn test suite of WebSocket against both ends of stompy's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.autobahn.echo import HOST, WITHIN, dial, server
from tests.support.options import chosen
from tests.support.peer import until
from tests.support.ports import reserved_port

pytestmark = [pytest.mark.needs("autobahn"), pytest.mark.timeout(1500)]

CASES = {"cases": ["*"], "exclude-cases": ["12.*", "13.*"], "exclude-agent-cases": {}}
"""All but those of compression, which stompy does not offer."""
COUNT = 301
AGENT = "stompy"

NO_ANSWER_BEFORE_THE_END = {"3.2", "3.3", "3.4", "4.1.3", "4.1.4", "4.1.5", "4.2.3", "4.2.4", "4.2.5", "5.15"}
"""A message and a violation follow each other. If they arrive together the WebSocket is closed at once, which RFC 6455
allows (section 7.1.7); the suite would like to have the message back first."""
NO_RULE = {"7.1.6", "7.13.1", "7.13.2"}
"""The suite shows what happens, and judges nothing."""

Report = dict[str, dict[str, Any]]
"""What the suite says of each case."""


def command() -> str:
    return chosen.autobahn


def spec(folder: Path, **more: Any) -> list[str]:
    """Return the arguments that name the settings and the cases."""
    path = folder / "spec.json"
    path.write_text(json.dumps({"outdir": str(folder), **CASES, **more}), encoding="utf-8")
    return ["--spec", str(path)]


def report(folder: Path) -> Report:
    found: Report = json.loads((folder / "index.json").read_text(encoding="utf-8"))[AGENT]
    assert len(found) == COUNT
    return found


def beyond_ok(found: Report) -> dict[str, str]:
    """Return what the suite says of the cases that are not simply passed: of the messages, or of the end."""
    judged = {case: {result["behavior"], result["behaviorClose"]} - {"OK"} for case, result in found.items()}
    return {case: ", ".join(sorted(words)) for case, words in judged.items() if words}


def allowed(found: dict[str, str]) -> dict[str, str]:
    """Return the explained ones of these results."""
    explained = {**dict.fromkeys(NO_ANSWER_BEFORE_THE_END, "NON-STRICT"), **dict.fromkeys(NO_RULE, "INFORMATIONAL")}
    return {case: words for case, words in found.items() if explained.get(case) == words}


@pytest.fixture(scope="module")
def of_the_server(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("server")
    with server() as port:
        settings = spec(folder, servers=[{"agent": AGENT, "url": f"ws://{HOST}:{port}"}])
        with (folder / "log").open("wb") as log:
            subprocess.run([command(), "--mode", "fuzzingclient", *settings], stdout=log, stderr=log, check=True)
    return report(folder)


@pytest.fixture(scope="module")
def of_the_client(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("client")
    with reserved_port() as port, (folder / "log").open("wb") as log:
        settings = spec(folder, url=f"ws://{HOST}:{port}")
        suite = subprocess.Popen(
            [command(), "--mode", "fuzzingserver", "--webport", "0", *settings], stdout=log, stderr=log
        )
        try:
            until(lambda: suite.poll() is not None or listens(port))
            for number in range(1, COUNT + 1):
                tap, transport = dial(port, f"/runCase?case={number}&agent={AGENT}")
                tap.echo(transport)
            _, transport = dial(port, f"/updateReports?agent={AGENT}")
            assert transport.recv() == b""
            transport.close()
        finally:
            suite.terminate()
            suite.wait(WITHIN)
    return report(folder)


def listens(port: int) -> bool:
    try:
        _, transport = dial(port, "/getCaseCount")
    except ConnectionError:
        return False
    assert transport.recv() == str(COUNT).encode()
    transport.close()
    return True


def test_the_server_passes(of_the_server: Report) -> None:
    found = beyond_ok(of_the_server)
    assert found == allowed(found)


def test_the_client_passes_and_takes_text_that_is_not_utf8(of_the_client: Report, of_the_server: Report) -> None:
    """As RabbitMQ sends bytes of all kinds as text; the server shows in which cases the text is not UTF-8."""
    not_utf8 = [case for case, result in of_the_server.items() if result["remoteCloseCode"] == 1007 and case[0] == "6"]
    assert len(not_utf8) == 75
    found = beyond_ok(of_the_client)
    assert found == {**allowed(found), **dict.fromkeys(not_utf8, "FAILED")}
