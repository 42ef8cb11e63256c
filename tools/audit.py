"""Ask whether a known vulnerability is in what is installed here.

Usage::

    python tools/audit.py

pip-audit asks for the advisories of each package. Where they cannot be reached, as without a network, this says so and
ends well: nothing was found, and nothing was looked for. A vulnerability ends it with code 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

TOLERATED: dict[str, str] = {}
"""By the id of an advisory the reason why it does not matter here."""


def asked() -> str:
    """Return pip-audit's report on this environment, as JSON; empty if it failed."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--skip-editable", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if not done.stdout.strip():
        print(done.stderr.strip()[-2000:], file=sys.stderr)
    return done.stdout


def judged(answer: str) -> tuple[str, list[str]]:
    """Return what the answer comes to in words, and the vulnerabilities that matter."""
    try:
        packages: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return "pip-audit could not reach its data: nothing was audited", []
    looked_at = [one for one in packages if "skip_reason" not in one]
    found = [
        f"{one['name']} {one['version']}: {flaw['id']} (fixed in {', '.join(flaw['fix_versions']) or 'no version'})"
        for one in looked_at
        for flaw in one["vulns"]
        if flaw["id"] not in TOLERATED
    ]
    if not looked_at:
        return f"the advisories of none of {len(packages)} packages could be reached: nothing was audited", []
    return f"{len(looked_at)} of {len(packages)} packages audited, {len(found)} vulnerabilities", found


def main() -> int:
    """Audit, and return the exit status."""
    words, found = judged(asked())
    print(f"audit of the requirements: {words}")
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
