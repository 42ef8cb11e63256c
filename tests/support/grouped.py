"""Options as one table, for tests that merge several: the fields of a group, such as `Timeouts`, go into the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def grouped(options: Mapping[str, Any], **groups: type) -> dict[str, Any]:
    """Return the arguments; for `timeouts=Timeouts`, its fields among the options are passed as one `Timeouts`."""
    left = dict(options)
    made = {}
    for name, kind in groups.items():
        own = {each.name: left.pop(each.name) for each in fields(kind) if each.name in left}
        if own:
            made[name] = kind(**own)
    return {**left, **made}
