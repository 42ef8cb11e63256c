"""Says when another distribution's package `stompy` is installed with this one: each overwrites files of the other."""

from __future__ import annotations

import sys
import warnings

from stompy.world import os

_OURS = "stompy-client"
_ADVICE = (
    f"one environment can hold only one of them: uninstall both (pip uninstall stompy {_OURS}), then install the one"
    " that you need"
)


def check_alone() -> None:
    """Look for the other distribution beside this package, in one listing of a folder: `importlib.metadata` is slow.

    Raises:
        ImportError: it was installed later, so that its `__init__` is in the place of ours.
    """
    package = sys.modules.get("stompy")
    if package is not None and getattr(package, "__distribution__", None) != _OURS:
        raise ImportError(f"{package.__file__} belongs to another distribution than {_OURS}; {_ADVICE}")
    try:
        found = os.listdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    except OSError:  # in an archive
        return
    for name in found:
        if name.startswith("stompy-") and name.endswith(("dist-info", "egg-info")):
            other = name.removesuffix(".dist-info").removesuffix(".egg-info").replace("-", " ", 1)
            text = f"the distributions {other} and {_OURS} both install the package stompy; {_ADVICE}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


check_alone()  # once; `stompy` and `stompy.errors`, one of which comes first, import this module
