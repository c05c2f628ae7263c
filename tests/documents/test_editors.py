"""Editors complete, explain and check documents: the server that they use for YAML reads the schema beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright.ui.cli import main

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "tests/npm/node_modules/yaml-language-server/bin/yaml-language-server"


class Editor:
    """A client of the server, as an editor is one: it opens documents and asks about places in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            ["node", str(SERVER), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._number = 0
        capabilities = {
            "textDocument": {
                "completion": {"completionItem": {"documentationFormat": ["markdown"]}}
            }
        }
        self.ask(
            "initialize",
            {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities},
        )
        self._send("initialized", {})
        # Catalogues of other schemas are on another host.
        settings = {
            "schemaStore": {"enable": False},
            "validate": True,
            "hover": True,
            "completion": True,
        }
        self._settings = {"yaml": settings}
        self._send("workspace/didChangeConfiguration", {"settings": self._settings})

    def open(self, text: str) -> list[str]:
        """Open a text as a document; return what the server finds wrong with it."""
        self._number += 1
        self.document = {"uri": (self.folder / f"{self._number}.yaml").as_uri()}
        item = self.document | {"languageId": "yaml", "version": 1, "text": text}
        self._send("textDocument/didOpen", {"textDocument": item})
        while True:
            message = self._read()
            parameters = message.get("params", {})
            if message.get("method") == "textDocument/publishDiagnostics" and (
                parameters["uri"] == self.document["uri"]
            ):
                return [problem["message"] for problem in parameters["diagnostics"]]

    def at(self, method: str, line: int, character: int) -> Any:
        """Ask about a place in the document, counted from 0."""
        place = {"position": {"line": line, "character": character}}
        return self.ask(f"textDocument/{method}", {"textDocument": self.document} | place)

    def ask(self, method: str, parameters: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        self._number += 1
        number = self._number
        self._send(method, parameters, id=number)
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.communicate()

    def _send(self, method: str, parameters: Any, **more: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": parameters, **more})

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        """Return the next message; answer the questions of the server on the way."""
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b": ")
            size = int(value) if name == b"Content-Length" else size
        assert size, "the server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(size))
        if "method" in message and "id" in message:
            wanted = message.get("params", {}).get("items", [])
            answer = [self._settings.get(item.get("section")) for item in wanted]
            self._write({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        return message


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a document that `convert` wrote."""
    folder = tmp_path_factory.mktemp("editor")
    (folder / "theirs.yaml").write_text(
        "schema: loopwright/1\nname: greet\nsteps:\n  - {name: one, set: 1}\n"
    )
    assert main(["convert", str(folder / "theirs.yaml"), "-o", str(folder / "loops")]) == 0
    return folder / "loops"


@pytest.fixture(scope="module")
def editor(converted: Path) -> Iterator[Editor]:
    """The server of editors for YAML. Without it tests are skipped, and fail in CI."""
    if not SERVER.exists() or shutil.which("node") is None:
        lack = "NOT TESTED: editors need yaml-language-server: run `make npm`"
        pytest.fail(lack) if os.environ.get("CI") else pytest.skip(lack)
    opened = Editor(converted)
    yield opened
    opened.close()


@pytest.mark.slow
def test_an_editor_completes_explains_and_checks_a_converted_document(
    editor: Editor, converted: Path
) -> None:
    """Through the first line that `convert` writes, without a setting and without another host."""
    text = (converted / "theirs.yaml").read_text()
    assert editor.open(text) == []

    line = text.splitlines().index("  - name: one")
    hover = editor.at("hover", line + 1, 5)["contents"]["value"]
    assert hover.startswith("A value; its templates are rendered.")

    repeated = text.replace("set: 1", "loop: {execute: {set: 1}, until: {max_iterations: 2}}")
    assert editor.open(repeated) == []
    assert "repeat until" in editor.at("hover", line + 1, 5)["contents"]["value"]

    assert editor.open(text + "    \n") == []
    offered = {item["label"] for item in editor.at("completion", line + 2, 4)["items"]}
    assert {"timeout", "needs", "if", "on_failure"} <= offered, offered
    assert "set" not in offered

    (problem,) = editor.open(text.replace("set: 1", "sett: 1"))
    assert "sett" in problem, problem
