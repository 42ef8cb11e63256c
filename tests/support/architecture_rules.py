"""The architecture rules, as functions over a source tree; standard library only.

`read_sources` takes the folder that holds the `stompy` package, and `tree_of` makes modules of what it returns; each
rule takes these and gives back one line for each breach, so that the rules can be tried with a breach planted.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

PACKAGE = "stompy"

SHARED = frozenset(
    {
        "arguments",
        "errors",
        "exports",
        "types",
        "backoff",
        "closable",
        "deadline",
        "default",
        "secret",
        "printable",
        "forks",
        "installed",
        "locks",
        "threads",
        "values",
        "world",
    }
)
"""What everybody may import."""

CORE = frozenset({"connection", "dialects", "link", "protocol", "frames", "transport"})

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "arguments": frozenset(),
    "errors": frozenset(),
    "types": frozenset(),
    "backoff": frozenset(),
    "closable": frozenset(),
    "deadline": frozenset(),
    "default": frozenset(),
    "secret": frozenset(),
    "printable": frozenset(),
    "exports": frozenset(),
    "forks": frozenset(),
    "installed": frozenset(),
    "locks": frozenset(),
    "threads": frozenset(),
    "values": frozenset(),
    "world": frozenset(),
    "frames": frozenset(),
    "transport": frozenset(),
    "protocol": frozenset({"frames"}),
    "dialects": frozenset({"protocol", "frames"}),
    "link": frozenset({"dialects", "protocol", "frames", "transport"}),
    "connection": CORE - {"connection"},
    "outbox": CORE,
    "worker": CORE,
    "telemetry": CORE | {"worker"},
    "broker": frozenset({"protocol", "frames", "transport"}),
    "compat": CORE | {"worker"},
    "spark": CORE | {"worker"},
    "testing": CORE | {"worker", "outbox", "broker"},
    "cli": CORE | {"worker", "outbox", "broker", "spark"},
    "__main__": frozenset({"cli"}),
    # The public package exports what most users need; the rest is imported from its own module.
    "": CORE | {"worker", "outbox", "telemetry"},
}
"""Folder or root module to the folders it may import besides SHARED and itself; the public package is ""."""

TYPES_ONLY: Mapping[str, frozenset[str]] = {"errors": frozenset({"frames"}), "types": frozenset({"frames"})}
"""What may be named in annotations alone: an error carries a frame, and frames/ raises errors."""

CIRCLES: Mapping[str, int] = {
    "errors": 1,  # an error names its frame, and frames/ raises errors
    "frames": 3,
    "link": 4,  # a link, its reader and writer, and its receipts
    "connection": 5,  # events name the connection; messages, subscriptions and the router each other
    "broker": 2,  # a queue and its consumers
}
"""Folder to the number of its modules that may be in circles of imports; none runs, as annotations make each."""

REACHES: Mapping[str, int] = {
    "forks": 1,  # a lock of the standard library, after a fork
    "transport": 1,  # whether a lock of the standard library is held
    "link": 1,  # the same
}
"""Folder to the number of its uses of private names of other modules' objects; a smaller number is always welcome."""

MOST_IN_CIRCLES, MOST_REACHES = 15, 3
"""The sums of these two tables, at most."""

_OF_NAMED_TUPLES = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Documented names of the standard library, which has no others for them."""

MOST_REACHES_OF_TESTS = 121
"""Uses of private names in tests/."""

NAMES_OF_OTHERS = frozenset({"compat"})
"""Folders whose classes have the names of another library."""

PURE = frozenset({"frames", "protocol"})
IMPURE = frozenset({
    "time", "threading", "socket", "ssl", "select", "queue",
    "selectors", "_thread", "asyncio", "concurrent", "multiprocessing", "subprocess",
})  # fmt: skip

WORLD = frozenset({
    "_thread", "asyncio", "concurrent", "fcntl", "mmap", "multiprocessing", "os", "queue", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time",
    "uuid",
})  # fmt: skip
"""What a simulated world has to replace: threads, clocks, randomness, sockets, processes, files."""

OUTSIDE_OF_THE_WORLD = {
    "stompy.world": "it is the seam",
    "stompy.testing.world": "it is what takes their place",
    "stompy.testing.replaced": "it puts that there",
    "stompy.link.receipts": "users may wait for a receipt as for a future of the standard library",
}
"""The modules that import them directly, and why."""

THIRD_PARTY: Mapping[str, frozenset[str]] = {
    "spark": frozenset({"pyspark", "pyarrow"}),
    "telemetry": frozenset({"opentelemetry", "prometheus_client"}),
    "cli": frozenset({"rich"}),
    "transport": frozenset({"websockets"}),
    "testing": frozenset({"pytest", "testcontainers", "docker", "trustme", "cryptography"}),
}
"""Folder to the requirement of its extra; tenacity, the one requirement of the package, is allowed outside PURE."""

INIT_WITH_EXPORTS = frozenset(
    {PACKAGE, f"{PACKAGE}.broker", f"{PACKAGE}.compat", f"{PACKAGE}.spark", f"{PACKAGE}.testing", f"{PACKAGE}.worker"}
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; `via` is how the source writes it."""

    target: str
    line: int
    types_only: bool
    via: str


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    name: str
    is_init: bool
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def folder(self) -> str:
        return folder_of(self.name)

    def at(self, line: int, breach: str) -> str:
        return f"{self.name}:{line}: {breach}"


Tree = Mapping[str, Module]


def folder_of(name: str) -> str:
    """Return the folder or root module of a dotted name within the package, empty for the public package."""
    return name.split(".")[1] if "." in name else ""


def inside(name: str) -> bool:
    return name.split(".")[0] == PACKAGE


Sources = Mapping[Path, str]
"""Path below the package's folder to the text of the file."""


@functools.cache
def read_sources(top: Path) -> Sources:
    """Read every file of the package in `top`."""
    package = top / PACKAGE
    return {path.relative_to(package): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}


def tree_of(sources: Sources) -> Tree:
    """Return the modules that the files make."""
    names = {_module_name(PACKAGE / path): path for path in sources}
    return {name: _module(name, path, sources[path], frozenset(names)) for name, path in names.items()}


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(name: str, path: Path, source: str, known: frozenset[str]) -> Module:
    tree, found = _parse(source)
    # `from stompy.frames import frame` names a module, `from stompy.frames.frame import Frame` what is in one.
    imports = tuple(one if one.target in known else replace(one, target=base) for base, one in found)
    return Module(name, path.name == "__init__.py", tree, imports)


@functools.cache
def _parse(source: str) -> tuple[ast.Module, tuple[tuple[str, Import], ...]]:
    """Parse a source once, however many copies of the tree are read."""
    tree = ast.parse(source)
    return tree, tuple(_imports(tree, types_only=False))


def _imports(node: ast.AST, *, types_only: bool) -> Iterator[tuple[str, Import]]:
    """Yield each import with its longest reading, and before it the module that it is if that reading names none."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            via = f"import {alias.name}" + (" as" if alias.asname else "")
            yield alias.name, Import(alias.name, node.lineno, types_only, via)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        for alias in node.names:
            via = f"from {base} import {alias.name}"
            yield base, Import(f"{base}.{alias.name}", node.lineno, types_only, via)
    elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"} and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value, Import(first.value, node.lineno, types_only, f"import_module({first.value!r})")
    never_run: set[ast.AST] = set(node.body) if _guards_types(node) else set()
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, types_only=types_only or child in never_run)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _guards_types(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in {
        getattr(node.test, "id", ""),
        getattr(node.test, "attr", ""),
    }


# ------------------------------------------------------------------------------------------------------- the rules


def folders_import_downwards(tree: Tree) -> list[str]:
    """Each folder imports only the folders that MAY_IMPORT names, for annotations too."""
    breaches = []
    for module in tree.values():
        if module.folder not in MAY_IMPORT:
            breaches.append(module.at(1, f"the folder {module.folder} has no row in MAY_IMPORT"))
            continue
        allowed = MAY_IMPORT[module.folder] | SHARED | {module.folder}
        for found in module.imports:
            folder = folder_of(found.target)
            if not inside(found.target) or not folder or folder in allowed:
                continue
            if not (found.types_only and folder in TYPES_ONLY.get(module.folder, frozenset())):
                breaches.append(
                    module.at(found.line, f"{module.folder or 'the public package'} must not import {found.target}")
                )
    return breaches


def pure_folders_stay_pure(tree: Tree) -> list[str]:
    """No clock, lock, socket or thread in frames/ and protocol/, nor through a module of ours that they run."""
    breaches = []
    for module in tree.values():
        if module.folder not in PURE:
            continue
        for found in module.imports:
            if (name := _of_the_world(found)) in IMPURE:
                breaches.append(module.at(found.line, f"pure code must not import {name}"))
            elif not found.types_only and (reached := _impure_reach(tree, found.target)):
                breaches.append(module.at(found.line, f"pure code must not run {reached} through {found.target}"))
    return breaches


def _impure_reach(tree: Tree, start: str) -> str:
    seen, waiting = {start}, [start]
    while waiting:
        module = tree.get(waiting.pop())
        # Violations in a pure module are reported with their line.
        if module is None or module.folder in PURE:
            continue
        for found in (found for found in module.imports if not found.types_only):
            if (name := _of_the_world(found)) in IMPURE:
                return name
            if found.target not in seen:
                seen.add(found.target)
                waiting.append(found.target)
    return ""


def _of_the_world(found: Import) -> str:
    """Return which module of the standard library is imported, directly or through the seam."""
    seam = f"from {PACKAGE}.world import "
    return found.via.removeprefix(seam) if found.via.startswith(seam) else found.target.split(".")[0]


def the_world_comes_through_its_seam(tree: Tree) -> list[str]:
    """Only stompy.world imports what a simulated world has to replace; the others take it from there, by its name."""
    breaches = []
    for module in tree.values():
        for found in module.imports:
            if module.name in OUTSIDE_OF_THE_WORLD:
                continue
            if found.target.split(".")[0] in WORLD:
                breaches.append(module.at(found.line, f"{found.target} is to be imported from stompy.world"))
            elif found.target == f"{PACKAGE}.world" and not found.via.startswith(f"from {PACKAGE}.world import "):
                breaches.append(module.at(found.line, f"a name is to be imported from stompy.world: {found.via}"))
    return breaches


def no_import_cycles(tree: Tree) -> list[str]:
    """No module runs itself again through what it imports; an import inside a function counts."""
    edges = {
        name: {found.target for found in module.imports if not found.types_only and found.target in tree}
        for name, module in tree.items()
    }
    return [f"import cycle: {' -> '.join(cycle)}" for cycle in _cycles(edges)]


def _cycles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield one cycle for each knot: a shortest walk from its first name back to it."""
    reported: set[str] = set()
    for start in sorted(edges):
        if start in reported:
            continue
        came_from: dict[str, str] = {}
        waiting = [start]
        while waiting and start not in came_from:
            name = waiting.pop(0)
            for target in sorted(edges[name] - came_from.keys()):
                came_from[target] = name
                waiting.append(target)
        if start in came_from:
            cycle = [start, came_from[start]]
            while cycle[-1] != start:
                cycle.append(came_from[cycle[-1]])
            reported.update(cycle)
            yield cycle[::-1]


def circles_are_known(tree: Tree) -> list[str]:
    """No more modules of a folder are in circles than CIRCLES says; imports for annotations count."""
    edges = {
        name: {found.target for found in module.imports if found.target in tree} - {name}
        for name, module in tree.items()
    }
    knotted = [name for name in sorted(tree) if name in _reached(edges, name)]
    found = Counter(map(folder_of, knotted))
    return [
        f"{folder}: {number} modules in circles, at most {CIRCLES.get(folder, 0)} may be: "
        + ", ".join(name for name in knotted if folder_of(name) == folder)
        for folder, number in found.items()
        if number > CIRCLES.get(folder, 0)
    ]


def _reached(edges: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges[waiting.pop()] - reached:
            reached.add(target)
            waiting.append(target)
    return reached


def private_names_stay_private(tree: Tree) -> list[str]:
    """A folder uses private names of objects of other modules at most as often as REACHES says."""
    found: dict[str, list[str]] = {}
    for module in tree.values():
        for node in reaches_of(module.tree):
            found.setdefault(module.folder, []).append(module.at(node.lineno, ast.unparse(node)))
    return [
        f"{folder}: {len(reaches)} reaches into private names, at most {REACHES.get(folder, 0)} may be: "
        + "; ".join(reaches)
        for folder, reaches in found.items()
        if len(reaches) > REACHES.get(folder, 0)
    ]


def reaches_of(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Yield each use of a private name of an object of another module."""
    own = _own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            base = node.value.func if isinstance(node.value, ast.Call) else node.value
            if not (isinstance(base, ast.Name) and base.id in own | {"self", "cls", "super"}):
                yield node


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in _OF_NAMED_TUPLES


def _own_names(tree: ast.Module) -> set[str]:
    """Return the modules that a module imports, and the attributes that its classes and functions define."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == f"{PACKAGE}.world":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_private(node.value):
            names.add(node.value)  # in __slots__
    return names


def public_classes_have_names_of_their_own(tree: Tree) -> list[str]:
    """No two folders have a public class of the same name."""
    found: dict[str, list[Module]] = {}
    for module in tree.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not _is_private(node.name) and module.folder not in NAMES_OF_OTHERS:
                found.setdefault(node.name, []).append(module)
    return [
        f"{name}: a class in {' and '.join(sorted(module.name for module in modules))}"
        for name, modules in found.items()
        if len({module.folder for module in modules}) > 1
    ]


def imports_are_absolute(tree: Tree) -> list[str]:
    """No relative import."""
    return [
        module.at(found.line, f"relative import: {found.via}")
        for module in tree.values()
        for found in module.imports
        if found.via.startswith("from .")
    ]


def nothing_inside_imports_the_public_package(tree: Tree) -> list[str]:
    """Modules import each other by their full paths, in a way that does not bind the name of the package."""
    return [
        module.at(found.line, f"imports the public package: {found.via}")
        for module in tree.values()
        for found in module.imports
        if found.target == PACKAGE
        or found.via.startswith(f"from {PACKAGE} import")
        or (found.via.startswith(f"import {PACKAGE}.") and not found.via.endswith(" as"))
    ]


def init_files_hold_a_docstring(tree: Tree) -> list[str]:
    """An `__init__` file is its docstring; the public packages add imports, late ones too, and plain names, no code."""
    breaches = []
    for module in tree.values():
        if not module.is_init:
            continue
        if ast.get_docstring(module.tree) is None:
            breaches.append(module.at(1, "an __init__ file has a docstring"))
        exports = module.name in INIT_WITH_EXPORTS
        for statement in module.tree.body:
            if not _may_stand_in_init(statement, exports=exports):
                allowed = "a docstring, imports and plain names" if exports else "a docstring only"
                breaches.append(module.at(statement.lineno, f"an __init__ file holds {allowed}"))
    return breaches


def _may_stand_in_init(statement: ast.stmt, *, exports: bool) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, str)
    if isinstance(statement, ast.ImportFrom):
        return exports or statement.module == "__future__"
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return exports and not statement.orelse and all(map(_may_stand_under_types, statement.body))
    return (
        exports
        and isinstance(statement, ast.Assign)
        and not any(isinstance(node, ast.Call) for node in ast.walk(statement.value))
    )


def _may_stand_under_types(statement: ast.stmt) -> bool:
    lazy = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "(__getattr__, __dir__)"
    return lazy or isinstance(statement, ast.ImportFrom)


def third_party_imports_are_declared(tree: Tree) -> list[str]:
    """Tenacity (outside the pure folders) and the requirement of an extra in its own folder; nothing else."""
    breaches = []
    for module in tree.values():
        allowed = THIRD_PARTY.get(module.folder, frozenset()) | (frozenset() if module.folder in PURE else {"tenacity"})
        for found in module.imports:
            name = found.target.split(".")[0]
            if name == "typing_extensions" and found.types_only:
                continue  # type checkers bring it
            if name and name != PACKAGE and name not in sys.stdlib_module_names and name not in allowed:
                breaches.append(
                    module.at(found.line, f"{module.folder or 'the public package'} must not import {name}")
                )
    return breaches


RULES: tuple[Callable[[Tree], list[str]], ...] = (
    folders_import_downwards,
    pure_folders_stay_pure,
    the_world_comes_through_its_seam,
    no_import_cycles,
    circles_are_known,
    private_names_stay_private,
    public_classes_have_names_of_their_own,
    imports_are_absolute,
    nothing_inside_imports_the_public_package,
    init_files_hold_a_docstring,
    third_party_imports_are_declared,
)
