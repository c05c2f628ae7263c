"""Run the code blocks of a page with sybil; docs/style.md describes the fences."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sybil import Document, Example, Region, Sybil

from loopwright.coding.agents import load_manifest
from loopwright.documents.yaml.reader import read
from loopwright.models import ScriptedModel
from loopwright.ui.cli import main
from warm_python import warm_python

FENCE = re.compile(
    r"(?:^<!-- skip: (?P<skip>[^\n]+) -->\n)?"
    r"^(?P<indent>[ \t]*)```(?P<language>\w+)(?: title=\"(?P<title>[^\"\n]*)\")?[ \t]*\n"
    r"(?P<text>.*?)^(?P=indent)```[ \t]*$\n?",
    re.MULTILINE | re.DOTALL,
)
ANY_FENCE = re.compile(r"^[ \t]*```(?!`)", re.MULTILINE)
LANGUAGES = {"python", "yaml", "console", "json", "toml", "text"}
PART = "schema: loopwright/1\nname: part\nmodel: openai:gpt-4o-mini\nsteps:\n  - name: shown\n"
SECONDS = 120
# A command that needs no shell, and the words after it that show its exit code.
CALL = re.compile(r"loopwright (?P<words>[^|&;<>$`*]*)(?P<code>; echo \"exit code \$\?\")?")
_EQUAL = doctest.OutputChecker()
_HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Block:
    """One fence: its language and its text without indentation.

    `title` is the file that the block is written to, or "". `skip` is the reason why it is not run, or "".
    """

    language: str
    text: str
    line: int
    title: str = ""
    skip: str = ""


def blocks_of(text: str) -> Iterator[tuple[int, int, Block]]:
    """Iterate over the fences of a text with their start and end."""
    for match in FENCE.finditer(text):
        indent = len(match["indent"])
        lines = (line[indent:] if line.strip() else "\n" for line in match["text"].splitlines(True))
        number = text.count("\n", 0, match.start("language")) + 1
        block = Block(
            match["language"], "".join(lines), number, match["title"] or "", match["skip"] or ""
        )
        yield match.start(), match.end(), block


def page_of(path: Path, folder: Path) -> Document:
    """Return a page parsed by sybil, whose blocks run in a folder."""

    def parse(document: Document) -> Iterator[Region]:
        assert len(ANY_FENCE.findall(document.text)) == 2 * len(list(blocks_of(document.text))), (
            "a fence has no language, an unknown attribute, or no end"
        )
        for start, end, block in blocks_of(document.text):
            assert block.language in LANGUAGES, f"line {block.line}: {block.language} is not run"
            yield Region(start, end, block, evaluate)

    def setup(namespace: dict[str, object]) -> None:
        namespace.update(__name__="page", _folder=folder, _printed=None)

    made = Sybil([parse], setup=setup).parse(path)
    setup(made.namespace)
    return made


def evaluate(example: Example) -> str | None:
    """Run one block; return what is wrong with it, or nothing."""
    block: Block = example.parsed
    folder: Path = example.namespace["_folder"]
    printed, example.namespace["_printed"] = example.namespace["_printed"], None
    if block.skip:
        return None
    if block.title:
        target = folder / block.title
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, "utf-8")
    if block.language == "text":
        return None if block.title else _compared(block.text, printed)
    if block.language == "python":
        file = f"{example.path}:{block.line}"
        # Without the __future__ imports of this module: readers do not have them.
        code = compile(block.text, file, "exec", dont_inherit=True)
        if not block.title:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, example.namespace)
            example.namespace["_printed"] = printed.getvalue()
        return None
    return {"yaml": _yaml, "console": _console, "json": _json, "toml": _toml}[block.language](
        block, folder
    )


def _compared(wanted: str, got: str | None) -> str | None:
    """Compare what a page shows with what was printed; `...` stands for anything."""
    if got is None:
        return "a text block without a title must follow the Python block that prints it"
    clean = "\n".join(line.rstrip() for line in got.splitlines()) + "\n"
    if _EQUAL.check_output(wanted, clean, _HOW):
        return None
    return f"the page shows:\n{wanted}\nbut it prints:\n{got}"


def _json(block: Block, folder: Path) -> str | None:
    json.loads(block.text)
    return None


def _toml(block: Block, folder: Path) -> str | None:
    tomllib.loads(block.text)
    return None


def _yaml(block: Block, folder: Path) -> str | None:
    """Check a document as `loopwright check` does; a fragment is checked as the part of a step."""
    if block.text.startswith("- {") or block.title.endswith("replies.yaml"):
        ScriptedModel(block.text)
        return None
    value = read(block.text.encode(), "shown.yaml").value
    if isinstance(value, list):  # a script of the fake agent
        return None
    if {"program", "extends"} & set(value):
        load_manifest(str(folder / block.title))
        return None
    complete = {"schema", "$schema", "orchestrator"} & set(value)
    if "steps" in value and not complete:
        return "a document needs its schema line"
    name = block.title or f"block_{block.line}.yaml"
    file = folder / name
    if not complete:
        file.write_text(PART + re.sub(r"^(?=.)", "    ", block.text, flags=re.MULTILINE), "utf-8")
    elif not block.title:
        file.write_text(block.text, "utf-8")
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(out),
    ):
        code = main(["check", name, "--offline"])
    # 1: the document is correct, and something that it needs is missing on this machine
    return None if code in (0, 1) else out.getvalue()


def _console(block: Block, folder: Path) -> str | None:
    """Run each line that begins with `$ ` and compare what it prints with the lines below it."""
    assert block.text.startswith("$ "), "a console block begins with a command"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        while command.endswith("\\"):
            more, _, wanted = wanted.partition("\n")
            command = f"{command[:-1]} {more.strip()}"
        call = CALL.fullmatch(command)
        if call is not None:
            words = ["-m", "loopwright", *shlex.split(call["words"])]
            done = warm_python().run(
                words, cwd=folder, env=environment(folder), timeout=SECONDS, merged=True
            )
            # As shells report the end by a signal.
            code = 128 - done.returncode if done.returncode < 0 else done.returncode
            printed = done.stdout
            if call["code"]:
                code, printed = 0, f"{printed}exit code {code}\n"
        else:
            code, printed = _in_shell(command, folder)
        if code:
            return f"$ {command}\nexit code {code}\n{printed}"
        if wanted.strip() and (wrong := _compared(wanted, printed)):
            return f"$ {command}\n{wrong}"
    return None


def _in_shell(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of commands: no keys, a home of its own, and this interpreter first."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOOPWRIGHT_", "OTEL_")) and not name.endswith("_API_KEY")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return kept | {"PATH": path, "HOME": str(folder / ".home"), "COLUMNS": "100", "NO_COLOR": "1"}
