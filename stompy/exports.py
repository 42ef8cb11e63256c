"""Public packages import a name when it is first asked for, so that importing one of them is fast.

This is the first module of ours that a process runs: of the `stompy` command, it ends a Ctrl-C without a traceback.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` makes enumerations: longer than all the rest
import sys

# Importing `typing` costs more than all the rest. Of `False`, editors on Jedi would not read what it guards.
TYPE_CHECKING = bool()  # noqa: UP018
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _is_command() -> bool:
    """Return whether this process runs the `stompy` script or `python -m stompy`, and no other program."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_name == "_run_module_as_main":
        return bool(frame.f_locals.get("mod_name") == "stompy")
    return "stompy.__main__" in frame.f_code.co_names


# Until the command handles Ctrl-C, and after that, it ends the process.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def late(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, and set its `__all__` to these names if it has none.

    Args:
        package: its name.
        modules: module to the public names that it has, separated by spaces.
    """
    namespace = vars(sys.modules[package])
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    namespace.setdefault("__all__", sorted(module_of))

    def find(name: str) -> object:
        from importlib import import_module

        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(module_of[name]), name)
        return value

    return find, lambda: sorted({*namespace, *module_of})
