"""What `dir` and `import *` show of each module of stomp.py, as JSON; standard library only.

PYTHON tests/compat/names.py         of the stomp.py that this Python has
"""

from __future__ import annotations

import json
import warnings
from importlib import import_module, util

MODULES = (
    "", "adapter", "adapter.multicast", "adapter.ws", "colours", "connect", "constants", "exception", "listener", "log",
    "logging", "protocol", "transport", "utils",
)  # fmt: skip


def names(package: str) -> dict[str, dict[str, list[str]]]:
    """Return by module what `dir` shows and what `import *` binds, without names that begin with two underscores."""
    found = {}
    for name in MODULES:
        path = f"{package}.{name}" if name else package
        if util.find_spec(path) is None:
            continue
        star: dict[str, object] = {}
        exec(f"from {path} import *", star)  # noqa: S102
        shown = {"dir": dir(import_module(path)), "star": star}
        found[name] = {kind: sorted(key for key in keys if not key.startswith("__")) for kind, keys in shown.items()}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(names("stomp")))
