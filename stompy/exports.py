"""Public packages import a name when it is first asked for, so that importing one of them is fast."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # importing `typing` costs more than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def late(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, and set its `__all__` to these names if it has none.

    Args:
        package: its name.
        modules: module to the public names that it has.
    """
    namespace = vars(sys.modules[package])
    module_of = {name: module for module, names in modules.items() for name in names}
    namespace.setdefault("__all__", sorted(module_of))

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(module_of[name]), name)
        return value

    return find, lambda: sorted({*namespace, *module_of})
