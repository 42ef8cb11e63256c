"""What `dir` and `import *` show of each module of stomp.py, as JSON; standard library only.

PYTHON tests/compat/names.py         of the stomp.py that this Python has
"""

from __future__ import annotations

import json
import pkgutil
import warnings
from importlib import import_module, util


def modules(package: str) -> list[str]:
    """Return the names of a package's modules, the empty one for the package itself."""
    walked = pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
    return ["", *(each.name.removeprefix(f"{package}.") for each in walked)]


def names(package: str, parts: list[str]) -> dict[str, dict[str, list[str]]]:
    """Return by module what `dir` shows and what `import *` binds, without names that begin with two underscores."""
    found = {}
    for name in parts:
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
    print(json.dumps(names("stomp", modules("stomp"))))
