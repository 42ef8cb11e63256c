"""Public packages import a name when it is first asked for, so that importing one of them is fast."""

from __future__ import annotations

import sys
from importlib import import_module

# Importing `typing` costs more than all the rest. Of `False`, editors on Jedi would not read what it guards.
TYPE_CHECKING = bool()  # noqa: UP018
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def late(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        modules: module to the public names that it has, separated by spaces.
    """
    namespace = vars(sys.modules[package])
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(module_of[name]), name)
        return value

    return find, lambda: sorted({*namespace, *module_of})
