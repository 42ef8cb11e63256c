"""The public names of stompy with their signatures, as text, a line each.

python -m tests.support.public_api        write tests/public_api.txt anew
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin

import stompy
from stompy.default import DEFAULT

MODULES = ("stompy", "stompy.broker", "stompy.testing", "stompy.worker", "stompy.spark")
"""The public modules; `stompy.compat` has the names and signatures of stomp.py."""
_ASSIGNED = re.compile(r"^        self\.(\w+)\b.*? = ", re.MULTILINE)
PINNED = Path(__file__).parents[1] / "public_api.txt"


def public_api() -> list[str]:
    """Return a line for each public name of `MODULES`, and for each public member of a class."""
    lines: list[str] = []
    seen: dict[int, str] = {}
    for module in MODULES:
        exports = import_module(module)
        for name in sorted(exports.__all__):
            path = f"{module}.{name}"
            if module == "stompy.spark":
                lines += _lines_of_source(path, name)
                continue
            value = getattr(exports, name)
            before = seen.setdefault(id(value), path)
            lines += _lines(path, value) if before == path else [f"{path} = {before}"]
    return lines


def _lines_of_source(path: str, name: str) -> Iterator[str]:
    """Yield the lines of a name of `stompy.spark` as its source has them: pyspark, which it imports, may be missing."""
    top = Path(stompy.__file__).parent / "spark"
    nodes = (node for file in sorted(top.rglob("*.py")) for node in ast.parse(file.read_text(encoding="utf-8")).body)
    named = (ast.FunctionDef, ast.ClassDef)
    (node,) = [node for node in nodes if isinstance(node, named) and node.name == name]
    if isinstance(node, ast.FunctionDef):
        yield f"{path}({ast.unparse(node.args)}) -> {ast.unparse(node.returns) if node.returns else '?'}"
        return
    yield path
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            yield f"{path}.{ast.unparse(member)}"
        elif isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            yield f"{path}.{member.name}({ast.unparse(member.args)})"


def _lines(path: str, value: Any) -> Iterator[str]:
    if get_origin(value) is not None:
        yield path  # an alias of a generic type
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        yield path
        yield from (f"{path}.{name}" for name in value.__members__)
    elif isinstance(value, type):
        yield path + ("" if is_made_inside(value) else _signature(value))
        for name in sorted(_members(value)):
            yield from _member(path, value, name)
    else:
        yield path + (_signature(value) if callable(value) else "")


def is_made_inside(value: type) -> bool:
    """Return whether the docstring says that users do not call the class."""
    return re.search("(made|returned) by `", (value.__doc__ or "").lower()) is not None


def _members(value: type) -> set[str]:
    ours = [base for base in value.__mro__ if base.__module__.startswith("stompy")]
    # An attribute that only says what it is called here is none.
    there = {name for base in ours for name in vars(base) if hasattr(base, name)}
    names = there.union(*(getattr(base, "__annotations__", ()) for base in ours))
    if "__init__" in vars(value) and not is_dataclass(value):
        names |= set(_ASSIGNED.findall(inspect.getsource(vars(value)["__init__"])))
    return {name for name in names if not name.startswith("_")}


def _member(path: str, owner: type, name: str) -> Iterator[str]:
    member = inspect.getattr_static(owner, name, None)
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if isinstance(member, property):
        yield f"{path}.{name}: {member.fget.__annotations__.get('return', '?')}"
    elif inspect.isfunction(member):
        yield f"{path}.{name}{_signature(member)}"
    else:
        annotation = next((_annotations(base)[name] for base in owner.__mro__ if name in _annotations(base)), None)
        yield f"{path}.{name}" + (f": {annotation}" if annotation else "")


def _annotations(value: type) -> dict[str, str]:
    annotations: dict[str, str] = inspect.get_annotations(value)  # texts, as every module of ours asks for
    # Those of a TypedDict are references, of which releases of Python write more or less.
    return {name: getattr(annotation, "__forward_arg__", annotation) for name, annotation in annotations.items()}


def _signature(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return ""  # an exception whose arguments are those of Python's own
    result = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    parts, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        annotation = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parts.append(f"{stars}{parameter.name}{annotation}{default}")
    return f"({', '.join(parts)}){result}"


def _default(value: object) -> str:
    """Return a default as text that is the same on every Python."""
    if value is DEFAULT:
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_default, value))})"
    if value is None or isinstance(value, (str, bytes, int, float)):
        return repr(value)
    return f"{type(value).__name__}()" if is_dataclass(value) else "..."


if __name__ == "__main__":
    PINNED.write_text("\n".join(public_api()) + "\n", encoding="utf-8")
