"""What editors show of options: each call offers every one by its name, with its type and its docstring."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jedi
import pytest

import stompy
from stompy.connection.connecting import ConnectOptions
from stompy.dialects.options import OtherSendOptions, SendOptions
from stompy.worker.task import TaskArguments
from tests.support.language_server import LanguageServer
from tests.support.options import chosen

TOP = Path(__file__).parents[2]

GIVEN = """import stompy

connection = stompy.connect("stomp://localhost")
worker = stompy.Worker("stomp://localhost")
outbox = stompy.Outbox("box", "stomp://localhost")


def given(message: stompy.Message, context: stompy.TaskContext, transaction: stompy.Transaction) -> None:
    """
CALLS: dict[str, Any] = {
    "connection.send('/queue/a', b'', ": SendOptions,
    "connection.send_async('/queue/a', b'', ": SendOptions,
    "connection.request('/queue/a', b'', ": SendOptions,
    "transaction.send('/queue/a', b'', ": SendOptions,
    "transaction.forward(message, '/queue/a', ": SendOptions,
    "context.send('/queue/a', b'', ": SendOptions,
    "outbox.put('/queue/a', b'', ": SendOptions,
    "message.reply(b'', ": SendOptions,
    "message.forward('/queue/a', ": SendOptions,
    "worker.task('/queue/a', ": TaskArguments,
    "worker.add(print, '/queue/a', ": TaskArguments,
    "stompy.Worker('stomp://localhost', ": ConnectOptions,
    "stompy.Outbox('box', 'stomp://localhost', ": ConnectOptions,
    "stompy.connect('stomp://localhost', ": ConnectOptions,
}
"""The start of a call, and its options."""

DESCRIBED: list[tuple[Any, Callable[..., Any]]] = [
    (SendOptions, stompy.Connection.send),
    (TaskArguments, stompy.Worker.task),
    (ConnectOptions, stompy.connect),
]
"""Options, and the function whose docstring has them too, as editors show it while a call is typed."""


def types_of(options: Any) -> dict[str, str]:
    """Return the annotation of each option, as it is written."""
    return {name: getattr(each, "__forward_arg__", each) for name, each in options.__annotations__.items()}


def plain(text: str) -> str:
    """Return a docstring on one line, without code marks, in lower case."""
    return " ".join(re.sub(r"\\?[`*]|\\(?=_)", "", text).split()).lower()


def docstrings_of(options: Any) -> dict[str, str]:
    """Return the docstring of each option."""
    (made,) = ast.parse(inspect.getsource(options)).body
    assert isinstance(made, ast.ClassDef)
    found = docstrings_of(OtherSendOptions) if options is SendOptions else {}
    for key, text in zip(made.body, made.body[1:], strict=False):
        if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(key.target)] = plain(str(text.value.value))
    return found


def arguments_of(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield the arguments that a docstring describes."""
    text = inspect.getdoc(function) or ""
    for name, told in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.split("Args:")[1], re.M):
        yield name, plain(told)


@pytest.fixture(scope="module", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this process a cache of its own: Jedi reads what another process has not written to the end yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jedi.settings, "cache_directory", str(tmp_path_factory.mktemp("jedi")))
        yield


@pytest.mark.parametrize(("options", "function"), DESCRIBED, ids=lambda value: value.__name__)
def test_an_option_has_one_description(options: Any, function: Callable[..., Any]) -> None:
    told = dict(arguments_of(function))
    assert {name: told.get(name) for name in types_of(options)} == docstrings_of(options)


@pytest.mark.parametrize("call", CALLS)
def test_jedi_completes_every_option_with_its_type(call: str) -> None:
    text = f"{GIVEN}{call}"
    script = jedi.Script(f"{text})\n", path=TOP / "edited.py", project=jedi.Project(TOP))
    found = {each.name: each.description for each in script.complete(*end_of(text))}
    for name, annotation in types_of(CALLS[call]).items():
        assert found.get(f"{name}=", "").startswith(f"param {name}: {annotation}"), (name, sorted(found))


def end_of(text: str) -> tuple[int, int]:
    """Return line and column of the end; the first line is 1, the first column 0."""
    lines = text.splitlines()
    return len(lines), len(lines[-1])


@pytest.fixture(scope="module")
def pyright() -> Iterator[LanguageServer]:
    program = Path(chosen.browser_libraries, "pyright", "langserver.index.js")
    with LanguageServer(["node", str(program), "--stdio"], TOP) as server:
        yield server


@pytest.mark.needs("browser")
@pytest.mark.parametrize("call", CALLS)
def test_pyright_completes_every_option_and_shows_its_docstring(call: str, pyright: LanguageServer) -> None:
    options, told = types_of(CALLS[call]), docstrings_of(CALLS[call])
    name, text = f"edited_{list(CALLS).index(call)}.py", f"{GIVEN}{call}"
    line, column = end_of(text)
    pyright.open(name, f"{text})\n")
    assert {f"{option}=" for option in options} <= pyright.completions(name, line - 1, column)
    for option in options:
        named = f"{option}_{name}"
        pyright.open(named, f"{text}{option}=None)\n")
        shown = pyright.hover(named, line - 1, column + 1)
        assert re.search(rf"\) {option}: (?!Any|Unknown)", shown), shown
        docstring = plain(shown).rpartition(f" {option}: ")[2]  # of a parameter it shows the first line
        assert told[option] in plain(shown) or told[option].startswith(docstring), shown


@pytest.mark.needs("browser")
def test_pyright_accepts_the_examples() -> None:
    """In strict mode; the settings are in pyproject.toml."""
    program = Path(chosen.browser_libraries, "pyright", "index.js")
    done = subprocess.run(["node", str(program)], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_options_that_are_tested_are_all() -> None:
    """A public function with options of another kind would need a row of its own."""
    kinds = set()
    for name in stompy.__all__:
        value = getattr(stompy, name)
        for function in [value, *vars(value).values()] if inspect.isclass(value) else [value]:
            texts = getattr(inspect.unwrap(function), "__annotations__", {}) if callable(function) else {}
            kinds.update(re.findall(r"Unpack\[(\w+)\]", " ".join(map(str, texts.values()))))
    assert kinds - {"OtherSendOptions"} == {each.__name__ for each in CALLS.values()}
