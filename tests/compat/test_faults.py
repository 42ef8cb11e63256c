"""What goes wrong with stomp.py works with stompy.compat."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.compat.faults import FAULTS

TOP = Path(__file__).parents[2]


@functools.cache
def outcomes(folder: Path) -> dict[str, dict[str, str]]:
    """Run all faults with both libraries at the same time."""
    authority, certificate = folder / "authority.pem", folder / "server.pem"
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(authority))
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    processes = {
        library: subprocess.Popen(
            [sys.executable, "-m", "tests.compat.faults", library, patience, str(authority), str(certificate)],
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for library, patience in (("stomp", "1.5"), ("stompy.compat", "20"))
    }
    return {library: json.loads(process.communicate()[0]) for library, process in processes.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return outcomes(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("fault", FAULTS)
def test_stomp_py_has_the_fault_and_stompy_compat_has_not(both: dict[str, dict[str, str]], fault: str) -> None:
    assert both["stomp"][fault] != "", "stomp.py does not have this fault anymore"
    assert both["stompy.compat"][fault] == ""
