"""The public names of stomp.py with their signatures; standard library only.

    PYTHON tests/compat/signatures.py       print those of the stomp.py that this Python has, as JSON

`tests/compat/stomp_py.json` holds them for the releases that stompy.compat stands in for.
"""

from __future__ import annotations

import inspect
import json
import re
import socket
import types
from collections.abc import Iterator
from importlib import import_module
from typing import Any

MODULES = (
    "", "adapter", "adapter.multicast", "adapter.ws", "connect", "constants", "exception", "listener", "log", "logging",
    "protocol", "transport", "utils",
)  # fmt: skip
_PLAIN = (str, bytes, bool, int, float, list, tuple, re.Pattern)


def public_names(package: str) -> dict[str, str]:
    """Return path, without the package's name, to signature, or to the type of a constant."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    for name in ("constants", "utils", *MODULES):
        try:
            module = import_module(f"{package}.{name}" if name else package)
        except ImportError:
            continue
        names = dict(_members(module, f"{package}.{name}" if name else package))
        found |= {f"{name}.{key}" if name else key: shown for key, shown in names.items() if key not in shared}
        if name in ("constants", "utils"):
            shared |= names.keys()  # the others import them with a star
    return found


def _members(module: types.ModuleType, name: str) -> Iterator[tuple[str, str]]:
    top = name.count(".") == 0
    for key, value in sorted(vars(module).items()):
        if (key.startswith("_") and key != "__version__") or hasattr(socket, key):
            continue
        own = getattr(value, "__module__", name) == name
        if isinstance(value, types.ModuleType):
            if top and value.__name__.startswith(name):
                yield key, "module"
        elif isinstance(value, type):
            if top or own:
                yield key, signature(value)
            if own:
                methods = [name for name in sorted(vars(value)) if not name.startswith("_")]
                yield from ((f"{key}.{method}", signature(getattr(value, method))) for method in methods)
        elif callable(value):
            if own or top or key in ("debug", "info", "warning", "error", "isEnabledFor", "setLevel"):
                yield key, signature(value)
        elif isinstance(value, _PLAIN):
            yield key, type(value).__name__


def signature(value: Any) -> str:
    """Return the signature of a callable without types, or the type of a constant."""
    if isinstance(value, types.ModuleType):
        return "module"
    if not callable(value):
        return type(value).__name__
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return "()"
    return f"({', '.join(map(_parameter, parameters))})"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    default: Any = parameter.default
    if default is parameter.empty:
        return f"{stars}{parameter.name}"
    plain = default is None or type(default) in (*_PLAIN, dict)
    return f"{parameter.name}={repr(default) if plain else getattr(default, '__name__', type(default).__name__)}"


if __name__ == "__main__":
    import stomp

    print(json.dumps({stomp.__version__: public_names("stomp")}, indent=1, sort_keys=True))
