"""`python -m stompy`: the `stompy` command."""

from __future__ import annotations

import sys

from stompy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
