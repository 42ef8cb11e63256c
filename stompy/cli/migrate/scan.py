"""Find what a program uses of stomp.py, in its syntax tree. Nothing of it is run or imported."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stompy.cli.migrate import advice
from stompy.cli.migrate.advice import Advice
from stompy.cli.migrate.bindings import Bindings, in_module, tail

_UNKNOWN = Advice("not a name of stomp.py 8 or 9; the adapter does not have it", hand=True)
_UNKNOWN_MEMBER = Advice("not a member of a connection of stomp.py 8 or 9; the adapter does not have it", hand=True)
_IN_A_TEXT = re.compile(r"stomp(\.[A-Za-z_]\w*)+")
_COLLECTIONS = frozenset(dir(list)) | frozenset(dir(dict)) | frozenset(dir(set))


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One use of stomp.py.

    Attributes:
        line: where, from 1.
        name: what is used.
        text: what to write instead.
        hand: whether somebody has to look at it.
    """

    line: int
    name: str
    text: str
    hand: bool


def uses_of(source: str | bytes) -> list[Use]:
    """Return the uses in a program, in the order of its lines.

    Raises:
        SyntaxError, ValueError, RecursionError: it is not a program of this version of Python.
    """
    tree = ast.parse(source)
    bindings = Bindings(tree)
    if not bindings.imports and not any(map(_imports_by_text, ast.walk(tree))):
        return []
    return sorted(set(_Scan(tree, bindings).uses()))


def _imports_by_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and tail(node.func) in ("import_module", "__import__")
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and str(node.args[0].value).split(".")[0] == "stomp"
    )


class _Scan:
    def __init__(self, tree: ast.Module, bindings: Bindings) -> None:
        self._tree = tree
        self._bindings = bindings
        self._versions = bindings.versions()
        self._subclass = ""

    def uses(self) -> Iterator[Use]:
        yield from self._visit(self._tree, in_subclass=False)

    def _visit(self, node: ast.AST, *, in_subclass: bool) -> Iterator[Use]:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self._import(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node, in_subclass)
        elif isinstance(node, ast.ClassDef):
            in_subclass = node.name in self._bindings.subclasses
            if node.name in self._bindings.listeners:
                yield from self._listener(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from self._text(node, node.value)
        elif isinstance(node, (ast.Starred, ast.Compare)):
            yield from self._version(node)
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = self._bindings.path(node)
            if name is not None:
                yield from self._named(node, name)
                return
            if isinstance(node, ast.Attribute):
                yield from self._member(node, in_subclass)
                if tail(node.value) == "transport" and isinstance(node.value, ast.Attribute):
                    node = node.value  # the member says it
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, in_subclass=in_subclass)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Use]:
        for alias in node.names:
            if getattr(node, "level", 0) or (getattr(node, "module", None) or alias.name).split(".")[0] != "stomp":
                continue
            new = copy.copy(node)
            new.names = [alias]
            before = ast.unparse(new)
            after = before.replace(" stomp", " stompy.compat", 1)
            if isinstance(node, ast.Import) and alias.asname is None:
                after = f"import stompy.compat{alias.name[5:]}" + (" as stomp" if alias.name == "stomp" else "")
                if "." in alias.name:
                    after = "import stompy.compat as stomp`, and `" + after
            yield _use(node, before, Advice(f"`{after}`; natively `import stompy`"))
            if isinstance(node, ast.ImportFrom) and alias.name != "*":
                full = f"{node.module}.{alias.name}"
                if _advice_of(full.partition(".")[2]) is _UNKNOWN:
                    yield _use(node, full, _UNKNOWN)

    def _named(self, node: ast.AST, path: str) -> Iterator[Use]:
        found = _advice_of(path)
        if found is not None:
            yield _use(node, f"stomp.{path}", found)

    def _member(self, node: ast.Attribute, in_subclass: bool) -> Iterator[Use]:
        name = node.attr
        if tail(node.value) == "transport":
            if name in advice.TRANSPORT:
                yield _use(node, f"transport.{name}", advice.TRANSPORT[name])
            elif self._is_connection(getattr(node.value, "value", node.value), in_subclass):
                yield _use(node, f"transport.{name}", advice.PRIVATE if name.startswith("_") else _UNKNOWN)
        elif self._is_connection(node.value, in_subclass):
            own = isinstance(node.ctx, ast.Store) or name in self._bindings.own_members
            if name in advice.MEMBERS and not (own and in_subclass and not isinstance(node.value, ast.Call)):
                yield _use(node, f"{ast.unparse(node.value)}.{name}", advice.MEMBERS[name])
            elif (
                not own
                and name not in advice.CALLBACKS
                and not (in_subclass and tail(node.value) == "self")
                and name not in _COLLECTIONS
            ):
                found = advice.PRIVATE if name.startswith("_") else _UNKNOWN_MEMBER
                yield _use(node, f"{ast.unparse(node.value)}.{name}", found)

    def _is_connection(self, node: ast.AST, in_subclass: bool) -> bool:
        if in_subclass and isinstance(node, ast.Name) and node.id == "self":
            return True
        if in_subclass and isinstance(node, ast.Call) and tail(node.func) == "super":
            return True
        return self._bindings.is_connection(node)

    # Calls.

    def _call(self, node: ast.Call, in_subclass: bool) -> Iterator[Use]:
        if self._bindings.version(node.func) is not None and self._bindings.name(node.func) is not None:
            yield from self._construction(node)
        elif isinstance(node.func, ast.Attribute) and self._is_connection(node.func.value, in_subclass):
            yield from self._method(node, node.func.attr, ast.unparse(node.func.value))
        if _imports_by_text(node):
            found = Advice('`stompy.compat.install()` before it makes "stomp" the adapter', hand=True)
            yield _use(node, ast.unparse(node), found)

    def _construction(self, node: ast.Call) -> Iterator[Use]:
        name = tail(node.func)
        if node.args:
            yield _use(node, f"{name}(host_and_ports)", advice.ARGUMENTS["host_and_ports"])
        for keyword in node.keywords:
            if keyword.arg is not None:
                found = advice.ARGUMENTS.get(keyword.arg, advice.GONE_ARGUMENT)
                yield _use(keyword, f"{name}({keyword.arg}=)", found)

    def _method(self, node: ast.Call, method: str, receiver: str) -> Iterator[Use]:
        parameters = _PARAMETERS.get(method)
        if parameters is None:
            return
        for keyword in node.keywords:
            name = f"{receiver}.{method}({keyword.arg}=)"
            if keyword.arg is None or keyword.arg in parameters:
                continue
            if method == "connect" and keyword.arg in advice.MISSPELT:
                meant = advice.MISSPELT[keyword.arg]
                yield _use(keyword, name, Advice(f"this is sent as a header; `{meant}=` was meant", hand=True))
            elif method == "set_ssl":
                yield _use(keyword, name, Advice("no argument of `set_ssl`: a TypeError", hand=True))
            else:
                yield _use(keyword, name, Advice(f'`headers={{"{keyword.arg}": ...}}`: a keyword header'))
        yield from self._special(node, method, receiver)

    def _special(self, node: ast.Call, method: str, receiver: str) -> Iterator[Use]:
        name = f"{receiver}.{method}"
        arguments = _arguments(node, _PARAMETERS[method])
        open_ended = arguments is None
        given = arguments or {}
        if method in ("begin", "commit", "abort") and isinstance(given.get("transaction"), ast.Dict):
            yield _use(node, name, Advice("takes the id of the transaction, not a dict of headers", hand=True))
        elif method == "connect" and not open_ended and "wait" not in given:
            yield _use(
                node, name, Advice("without `wait=True` it returns before the login; `stompy.connect` always waits")
            )
        elif method == "send" and not open_ended and not {"destination", "body"} <= given.keys():
            yield _use(node, name, Advice("needs a destination and a body: a TypeError or an empty message", hand=True))
        elif method == "subscribe":
            yield from self._subscription(node, name, given, open_ended)
        elif method in ("ack", "nack"):
            yield from self._acknowledgement(node, name, given)
        elif method == "set_ssl":
            yield from _tls(node, name, given)

    def _subscription(self, node: ast.Call, name: str, given: dict[str, ast.expr], open_ended: bool) -> Iterator[Use]:
        if not open_ended and "id" not in given and self._versions and "1.0" not in self._versions:
            yield _use(node, name, Advice("needs an id since STOMP 1.1: a TypeError", hand=True))
        mode = given.get("ack")
        if isinstance(mode, ast.Constant):
            text = _MODES.get(
                str(mode.value), Advice('unknown: use "auto", "client" or "client-individual"', hand=True)
            )
            yield _use(mode, f"{name}(ack={mode.value!r})", text)

    def _acknowledgement(self, node: ast.Call, name: str, given: dict[str, ast.expr]) -> Iterator[Use]:
        header = _key(given.get("id"))
        if self._versions == {"1.1"}:
            if header == "ack":
                yield _use(
                    node,
                    name,
                    Advice('a message of STOMP 1.1 has no "ack" header: use "message-id", or Connection12', hand=True),
                )
            if not node.keywords and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
                yield _use(node, name, Advice("needs a subscription in STOMP 1.1: a TypeError", hand=True))
        elif self._versions == {"1.2"}:
            if header == "message-id":
                yield _use(node, name, Advice('the id of STOMP 1.2 is the "ack" header, not "message-id"', hand=True))
            if len(node.args) > 1 and _key(node.args[1]) == "subscription":
                yield _use(node, name, Advice("the second argument in STOMP 1.2 is a transaction", hand=True))

    # Listeners and texts.

    def _listener(self, node: ast.ClassDef) -> Iterator[Use]:
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name in advice.CALLBACKS:
                expected, found = advice.CALLBACKS[member.name]
                yield _use(member, f"{node.name}.{member.name}", _fitting(member, expected) or found)
            elif isinstance(member, ast.AsyncFunctionDef) and member.name in advice.CALLBACKS:
                yield _use(member, f"{node.name}.{member.name}", Advice("a coroutine is never awaited", hand=True))

    def _text(self, node: ast.Constant, text: str) -> Iterator[Use]:
        if text == "stomp.py":
            yield _use(node, repr(text), advice.LOGGING)
        elif text in advice.HEADERS:
            yield _use(node, repr(text), advice.HEADERS[text])
        elif _IN_A_TEXT.fullmatch(text) and in_module(text.partition(".")[2])[1] in advice.NAMES:
            yield _use(node, repr(text), Advice("a text that names stomp.py, for example to patch it", hand=True))

    def _version(self, node: ast.Starred | ast.Compare) -> Iterator[Use]:
        operands = [node.value] if isinstance(node, ast.Starred) else [node.left, *node.comparators]
        numbers = not any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in operands)
        for operand in operands:
            value = operand.value if isinstance(operand, ast.Subscript) else operand
            if numbers and self._bindings.path(value) == "__version__":
                yield _use(
                    node, "stomp.__version__", Advice("a text since stomp.py 8.2, no tuple of numbers", hand=True)
                )


_PARAMETERS: dict[str, tuple[str, ...]] = {
    "connect": ("username", "passcode", "wait", "headers", "with_connect_command"),
    "disconnect": ("receipt", "headers"),
    "send": ("destination", "body", "content_type", "headers"),
    "subscribe": ("destination", "id", "ack", "headers"),
    "unsubscribe": ("destination", "id", "headers"),
    "ack": ("id", "subscription", "transaction", "receipt"),
    "nack": ("id", "subscription", "transaction", "receipt"),
    "begin": ("transaction", "headers"),
    "commit": ("transaction", "headers"),
    "abort": ("transaction", "headers"),
    "set_ssl": (
        "for_hosts",
        "key_file",
        "cert_file",
        "ca_certs",
        "cert_validator",
        "ssl_version",
        "password",
        "verify",
    ),
}
_MODES = {
    "auto": Advice('the default; a message counts as received once it is sent: `ack="client-individual"` loses none'),
    "client": Advice("acknowledges all messages before it too; natively the same"),
    "client-individual": Advice(
        "the same natively; `with message:` acknowledges at its end, and rejects when it raises"
    ),
}


def _use(node: ast.AST, name: str, found: Advice) -> Use:
    return Use(getattr(node, "lineno", 1), name, found.text, found.hand)


def _advice_of(path: str) -> Advice | None:
    """Return what to write instead of a name, `None` for a module."""
    module, name = in_module(path)
    if not name:
        return None
    if module == "colours" and name.isupper():
        return advice.COLOUR
    if module == "constants" and name.startswith(("HDR_", "CMD_")):
        return advice.CONSTANT
    return advice.NAMES.get(name, _UNKNOWN)


def _arguments(node: ast.Call, parameters: tuple[str, ...]) -> dict[str, ast.expr] | None:
    """Return the arguments of a call by name; `None` if some come from a sequence or a mapping."""
    if any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords):
        return None
    return {
        **dict(zip(parameters, node.args, strict=False)),
        **{each.arg: each.value for each in node.keywords if each.arg},
    }


def _key(node: ast.expr | None) -> str:
    """Return the header that an expression looks up: `"ack"` of `headers["ack"]` and of `headers.get("ack")`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Call) and tail(node.func) == "get" and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return ""


def _tls(node: ast.Call, name: str, given: dict[str, ast.expr]) -> Iterator[Use]:
    if "ca_certs" not in given and "verify" not in given:
        found = "the broker's certificate is verified against the system's authorities; for others pass `ca_certs=`"
        yield _use(node, name, Advice(found, hand=True))
    if isinstance(verify := given.get("verify"), ast.Constant) and verify.value is False:
        found = "no protection; if you must, natively `stompy.Tls(insecure_skip_verification=True)`"
        yield _use(node, f"{name}(verify=False)", Advice(found, hand=True))


def _fitting(method: ast.FunctionDef, expected: int) -> Advice | None:
    """Return what is wrong with the arguments of a listener's method, if anything is."""
    static = any(tail(each) == "staticmethod" for each in method.decorator_list)
    positional = len(method.args.posonlyargs) + len(method.args.args) - (not static)
    required = positional - len(method.args.defaults)
    if required <= expected and (positional >= expected or method.args.vararg is not None):
        return None
    takes = {0: "no argument", 1: "one argument"}[expected]
    more = ": `frame`, with `.headers` and `.body`" if expected and required > 1 else ""
    return Advice(f"is called with {takes}{more}", hand=True)
