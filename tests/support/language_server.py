"""A language server as an editor uses it: questions about a program at a position, answered by another process."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast


class LanguageServer:
    """The server of a command, for programs in a folder; a context manager. It answers one question at a time."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = command, folder
        self._numbers = itertools.count(1)

    def __enter__(self) -> LanguageServer:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        uri = self._folder.as_uri()
        able = {"textDocument": {"hover": {"contentFormat": ["plaintext"]}}, "workspace": {"configuration": True}}
        workspace = {"rootUri": uri, "workspaceFolders": [{"uri": uri, "name": "tests"}]}
        self._ask("initialize", {"processId": None, "capabilities": able, **workspace})
        self._tell("initialized", {})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, name: str, text: str) -> None:
        """Open a file that only the editor has."""
        document = {"uri": self._uri(name), "languageId": "python", "version": 1, "text": text}
        self._tell("textDocument/didOpen", {"textDocument": document})

    def completions(self, name: str, line: int, column: int) -> set[str]:
        """Return the labels of what an editor offers at a position; both count from 0."""
        found = self._ask("textDocument/completion", self._place(name, line, column))
        return {item["label"] for item in found["items"]}

    def hover(self, name: str, line: int, column: int) -> str:
        """Return what an editor shows for what stands at a position."""
        found = self._ask("textDocument/hover", self._place(name, line, column))
        return str(found["contents"]["value"]) if found else ""

    def _uri(self, name: str) -> str:
        return (self._folder / name).as_uri()

    def _place(self, name: str, line: int, column: int) -> dict[str, Any]:
        return {"textDocument": {"uri": self._uri(name)}, "position": {"line": line, "character": column}}

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        number = next(self._numbers)
        self._write({"id": number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            if "id" in message:  # a question of the server, of which only that for the interpreter matters
                items = message["params"].get("items", ()) if message["method"] == "workspace/configuration" else ()
                answer = [{"pythonPath": sys.executable} if each.get("section") == "python" else {} for each in items]
                self._write({"id": message["id"], "result": answer or None})

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def _write(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        pipe = cast("IO[bytes]", self._process.stdin)
        pipe.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        pipe.flush()

    def _read(self) -> dict[str, Any]:
        pipe = cast("IO[bytes]", self._process.stdout)
        size = 0
        while line := pipe.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        assert size, "the server has ended"
        return cast("dict[str, Any]", json.loads(pipe.read(size)))
