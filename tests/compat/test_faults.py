"""What goes wrong with stomp.py works with stompy.compat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.compat.faults import FAULTS

TOP = Path(__file__).parents[2]


LIBRARIES = {"stomp": ("1.5", "1"), "stompy.compat": ("20", "3")}
"""Seconds of patience, and attempts."""


def run(folder: Path) -> dict[str, dict[str, str]]:
    """Run all faults with both libraries at the same time."""
    processes = {
        library: subprocess.Popen(
            [sys.executable, "-m", "tests.compat.faults", library, *limits, *map(str, sorted(folder.glob("*.pem")))],
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for library, limits in LIBRARIES.items()
    }
    return {library: json.loads(process.communicate()[0]) for library, process in processes.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "authority.pem"))
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    outcomes = run(folder)
    for _ in range(2):
        if "" not in outcomes["stomp"].values() and not any(outcomes["stompy.compat"].values()):
            break
        again = run(folder)  # on a busy machine a race may end the other way
        for fault in FAULTS:
            outcomes["stomp"][fault] = outcomes["stomp"][fault] or again["stomp"][fault]
            if not again["stompy.compat"][fault]:
                outcomes["stompy.compat"][fault] = ""
    return outcomes


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", FAULTS)
def test_stomp_py_has_the_fault_and_stompy_compat_has_not(both: dict[str, dict[str, str]], fault: str) -> None:
    assert both["stomp"][fault] != "", "stomp.py does not have this fault anymore"
    assert both["stompy.compat"][fault] == ""
