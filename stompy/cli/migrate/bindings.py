"""Which names of a file are of stomp.py, and which hold connections or listeners; from the syntax tree alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stompy.cli.migrate.advice import CONNECTIONS, LISTENERS, MEMBERS, MODULES, NAMES

_ROOTS = ("stompy.compat", "stomp")
_DISTINCTIVE = frozenset(
    ("get_listener", "get_ssl", "is_connected", "remove_listener", "send_frame", "set_listener", "set_ssl")
)
"""Methods that tell a connection, whatever its name."""


def tail(node: ast.AST) -> str:
    """Return the last name of an expression: `conn` of `self.conn`, `conns` of `conns[0]`; else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return tail(node.value)
    return ""


class Bindings:
    """What the names of one file stand for.

    A name is known by its last part, in the whole file; that is coarse, and enough for a report.

    Args:
        tree: of the file.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.imports: dict[str, str] = {}
        """Local names and the full names of what they were imported from."""
        self.own_members: set[str] = set()
        """Members of the file's own subclasses of a connection."""
        self._nodes = list(ast.walk(tree))
        self._classes = {node.name: node for node in self._nodes if isinstance(node, ast.ClassDef)}
        self._holders: set[str] = set()
        self._makers: set[str] = set()
        self.subclasses: set[str] = set()
        self.listeners: set[str] = set()
        for node in self._nodes:
            self._import(node)
        if self.imports:
            self._infer()

    def path(self, node: ast.AST) -> str | None:
        """Return the name in stomp.py that an expression stands for, such as `exception.StompException`.

        It is empty for the package itself, and `None` for anything else.
        """
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return None
        full = ".".join([self.imports[node.id], *names])
        for root in _ROOTS:
            if full == root or full.startswith(f"{root}."):
                return full[len(root) + 1 :]
        return None

    def name(self, node: ast.AST) -> str | None:
        """Return the name in its module that an expression stands for, as `path`; `None` if it is a module."""
        found = self.path(node)
        return None if found is None else in_module(found)[1] or None

    def version(self, node: ast.AST) -> str | None:
        """Return the STOMP version of a connection class, or `None` for what is none."""
        name = self.name(node) or ""
        if name in CONNECTIONS:
            return CONNECTIONS[name]
        return "" if tail(node) in self.subclasses else None

    def versions(self) -> set[str]:
        """Return the versions of the connection classes that the file names."""
        return {CONNECTIONS[name] for node in self._nodes if (name := self.name(node) or "") in CONNECTIONS}

    def is_connection(self, node: ast.AST) -> bool:
        """Whether an expression is a connection, or a collection of some."""
        if isinstance(node, ast.Call):
            return self.version(node.func) is not None or tail(node.func) in self._makers
        return tail(node) in self._holders

    def is_listener(self, node: ast.AST) -> bool:
        """Whether an expression is a class of listeners."""
        return (self.name(node) or "") in LISTENERS or tail(node) in self.listeners

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name):
                    top = alias.name.split(".")[0]
                    self.imports[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if alias.name == "*" and _is_ours(node.module or ""):
                    self.imports.update({name: f"{node.module}.{name}" for name in NAMES})
                elif _is_ours(full):
                    self.imports[alias.asname or alias.name] = full

    def _infer(self) -> None:
        before = -1
        while before != (before := len(self._holders) + len(self._makers) + len(self.subclasses) + len(self.listeners)):
            for node in self._nodes:
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef):
            if any(self.version(base) is not None for base in node.bases):
                self.subclasses.add(node.name)
                self.own_members |= set(_members(node))
            if any(self.is_listener(base) for base in node.bases):
                self.listeners.add(node.name)
            self._own_listener(node)
        elif isinstance(node, ast.Assign) and self.is_connection(node.value):
            for target in node.targets:
                self._hold(target)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension)):
            source = node.iter if isinstance(node, (ast.For, ast.comprehension)) else node.value
            if source is not None and self.is_connection(source):
                self._hold(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars and self.is_connection(node.context_expr):
            self._hold(node.optional_vars)
        elif isinstance(node, ast.arg) and node.annotation and self._names_connection(node.annotation):
            self._holders.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(
                isinstance(each, ast.Return) and each.value and self.is_connection(each.value)
                for each in ast.walk(node)
            ):
                self._makers.add(node.name)
        elif isinstance(node, ast.Call):
            self._learn_call(node)

    def _learn_call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _DISTINCTIVE and tail(node.func.value) not in ("self", "transport"):
                self._hold(node.func.value)
            if node.func.attr in ("append", "add") and node.args and self.is_connection(node.args[0]):
                self._hold(node.func.value)
            if node.func.attr == "set_listener" and len(node.args) > 1 and isinstance(node.args[1], ast.Call):
                self._listen(node.args[1].func)
        parameters = self._parameters(tail(node.func))
        for argument, parameter in zip(node.args, parameters, strict=False):
            if self.is_connection(argument):
                self._holders.add(parameter)
        self._holders |= {
            each.arg for each in node.keywords if each.arg in parameters and self.is_connection(each.value)
        }

    def _own_listener(self, node: ast.ClassDef) -> None:
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and tail(call.func) == "set_listener" and len(call.args) > 1:
                listener = call.args[1]
                if isinstance(listener, ast.Name) and listener.id == "self":
                    self.listeners.add(node.name)

    def _listen(self, node: ast.AST) -> None:
        if tail(node) in self._classes:
            self.listeners.add(tail(node))

    def _parameters(self, name: str) -> list[str]:
        """Return the parameters of a class of the file, which are those of its `__init__`."""
        if name not in self._classes:
            return []
        for member in self._classes[name].body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                return [each.arg for each in member.args.args][1:]
        return []

    def _hold(self, node: ast.AST) -> None:
        name = tail(node)
        if name and name not in ("self", "cls") and name not in MEMBERS:
            self._holders.add(name)

    def _names_connection(self, annotation: ast.AST) -> bool:
        return any(self.version(each) is not None for each in ast.walk(annotation))


def in_module(path: str) -> tuple[str, str]:
    """Return the module of a name of stomp.py, and the name in it, which is empty for a module.

    Attributes of a name, such as those of an object of a module, do not belong to it.
    """
    names = path.split(".") if path else []
    module = ""
    while names and f"{module}.{names[0]}".lstrip(".") in MODULES:
        module = f"{module}.{names.pop(0)}".lstrip(".")
    return module, names[0] if names else ""


def _is_ours(name: str) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in _ROOTS)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield each.name
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr
