"""Every command that the command line prints as a next step works as it is printed, in the same folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loopwright import resume_sync
from loopwright.ui.cli import main
from ui.asking import ASKS

FOLDERS = ("plain", "a folder with spaces")
JOURNALS = ("", "sqlite:runs.db", "sqlite:my runs/all.db")
SATISFIED = """
schema: loopwright/1
name: grows
steps:
  - name: grow
    loop:
      execute: {set: "{{ loop.iteration }}"}
      evaluate: {check: {contains: "2"}}
      until: [passed, {max_iterations: 3}]
"""
LIST = """
schema: loopwright/1
name: lists
steps:
  - name: each
    each:
      items: [one, two]
      on_failure: continue
      execute: {shell: 'test "$ITEM" = one', env: {ITEM: "{{ loop.current }}"}}
"""
STEPS = """
from loopwright import Loop, MaxIterations, run_sync

def grow(value, ctx):
    if value == "broken":
        raise ValueError("it is broken")
    return f"{value} {ctx.iteration}"

def asking(value, ctx):
    return ctx.ask({"kind": "free"}, "what now?")

loop = Loop(grow, until=MaxIterations(2), name="l")
"""
GUARDED = """
if __name__ == "__main__":
    import sys
    run_sync({step}, sys.argv[1], journal=sys.argv[2], run_id="r1")
"""
UNGUARDED = """
import sys
run_sync({step}, sys.argv[1], journal=sys.argv[2], run_id="r1")
"""
PRINTED = re.compile(r"\bloopwright ((?:[a-z]+)(?: (?:'[^'\n]*'|[^\s';,`)]+))*)")
WAITS = ("worker start", "ui", "watch")  # they go on until somebody ends them
# What a reader puts in place of the words in capitals.
VALUES = {
    "N": "5",
    "FEEDBACK": "longer",
    "VALUE": "7",
    "X": "0.5",
    "RUN": "r1",
    "I": "1",
    "J": "2",
    "FILE": "doc.yaml",
    "SELECTOR": "r1",
}

COMMANDS = (
    ("show", "last"), ("runs",), ("approve", "last"), ("resume", "last", "--yes"), ("rewind", "last", "l/2"),
    ("rewind", "last", "asking"),
)  # fmt: skip

Made = Callable[["Place"], None]


class Place:
    """A folder, the journal of its commands, and the names of its modules, which no other test imports."""

    def __init__(self, folder: Path, journal: str, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capture = folder, capture
        self.url = journal or "sqlite:.loopwright/runs.db"
        self.options = ["--journal", journal] if journal else []
        self.said, self.attribute = "", ""
        self.yes: tuple[
            str, ...
        ] = ()  # of a resume: the code of a recorded program was not approved here
        self.module = f"steps_{abs(hash((str(folder), journal))):x}"

    def call(self, *words: str) -> tuple[int, str]:
        """Call the command line, and return its exit code with everything that it printed."""
        self.capture.readouterr()
        code = main(list(words))
        out, err = self.capture.readouterr()
        self.said += out + err
        return code, out + err

    def step(self) -> Any:
        """Return the step of the Python program, as the program has it."""
        scope: dict[str, Any] = {"__name__": "program"}
        exec(STEPS, scope)
        return scope[self.attribute]

    def program(self, step: str, tail: str, value: str = "x") -> None:
        """Run a Python program as a process of its own."""
        self.attribute, self.yes = step, ("--yes",)
        file = self.folder / f"{self.module}.py"
        file.write_text(STEPS + tail.replace("{step}", step))
        subprocess.run(
            [sys.executable, file.name, value, self.url], cwd=self.folder, check=True, timeout=60
        )

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Put the folder back afterwards: each printed command begins at the same state."""
        copy = Path(tempfile.mkdtemp(dir=self.folder.parent))
        shutil.copytree(self.folder, copy, symlinks=True, dirs_exist_ok=True)
        try:
            yield
        finally:
            for file in self.folder.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            shutil.copytree(copy, self.folder, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(copy)


def document(text: str, *, then: tuple[str, ...] = ()) -> Made:
    def made(place: Place) -> None:
        (place.folder / "doc.yaml").write_text(text)
        place.call("run", "doc.yaml", "--input", "x", "--yes", *place.options)
        if then:
            place.said = ""
            place.call(*then, *place.options)

    return made


def python_step(step: str, value: str = "x") -> Made:
    def made(place: Place) -> None:
        (place.folder / f"{place.module}.py").write_text(STEPS)
        words = ["run", f"{place.module}:{step}", "--input", value, "--run-id", "r1"]
        place.call(*words, *place.options)

    return made


def program(step: str, tail: str, value: str = "x") -> Made:
    return lambda place: place.program(step, tail, value)


def coding(check: str, *options: str) -> Made:
    def made(place: Place) -> None:
        words = ["until", check, "--yes", "--workspace", "copy", "--max", "2", *place.options]
        words += options
        (place.folder / "readme").write_text("x")
        place.call(*words, "--", "sh", "-c", 'touch "part$LOOPWRIGHT_ITERATION"')

    return made


RUNS: dict[str, Made] = {
    "satisfied": document(SATISFIED),
    "exhausted": document(SATISFIED.replace('"2"', '"9"')),
    "suspended": document(ASKS),
    "cancelled": document(ASKS, then=("cancel", "r1")),
    "answered": document(ASKS, then=("approve", "r1", "--yes")),
    "rewound": document(SATISFIED, then=("rewind", "r1", "grow/2")),
    "python step": python_step("loop"),
    "failed python step": python_step("loop", "broken"),
    "asking python step": python_step("asking"),
    "program": program("loop", GUARDED),
    "failed program": program("loop", GUARDED, "broken"),
    "asking program": program("asking", GUARDED),
    "program without a guard": program("loop", UNGUARDED),
    "asking program without a guard": program("asking", UNGUARDED),
    "coding": coding("test -e part2"),
    "exhausted coding": coding("false"),
    "coding that keeps its copy": coding("test -e part2", "--no-merge"),
    "failed coding": coding("echo nothing; exit 1", "--report", "stdout"),
    "failed list": document(LIST),
    "used-up effects": coding("false", "--max-effects", "2"),
}


@pytest.mark.parametrize("kind", RUNS)
def test_next_commands_work_as_printed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No printed command is refused, for any kind of run, folder and journal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    number = list(RUNS).index(kind)
    folder = tmp_path / FOLDERS[number % 2]
    folder.mkdir()
    (folder / "my runs").mkdir()
    monkeypatch.chdir(folder)
    place = Place(folder, JOURNALS[number % 3], capsys)
    RUNS[kind](place)
    seen: set[str] = set()
    _follow(place.said, place, seen)
    for words in COMMANDS:
        with place.unchanged():
            place.said = ""
            place.call(*words, *place.options)
            _follow(place.said, place, seen)
    assert seen, "nothing is printed for such a run"


def test_next_commands_of_a_submitted_run_work_as_printed(
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of a run that waits for a worker, which continues it, name its journal."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    place = Place(folder, postgres_url, capsys)
    (folder / "doc.yaml").write_text(SATISFIED)
    seen: set[str] = set()
    for words in (
        ("submit", "doc.yaml", "--input", "x"),
        ("show", "last"),
        ("runs",),
        ("resume", "last"),
    ):
        place.said = ""
        place.call(*words, *place.options)
        _follow(place.said, place, seen)
    assert seen


def _follow(output: str, place: Place, seen: set[str]) -> None:
    """Try each line of an output that is a next step."""
    for line in output.splitlines():
        if line.startswith("from "):  # what made the run, with words for what is not recorded
            continue
        for match in PRINTED.finditer(line):
            assert line[match.end() :][:1] != ",", f"a list cannot be pasted: {line}"
            command, _, _ = match[1].partition(" with one of")
            options = (
                re.findall(r"^    (--.*)$", output, re.MULTILINE) if match[1] != command else [""]
            )
            for option in options:
                if (printed := f"{command} {option}".strip()) not in seen:
                    seen.add(printed)
                    _works(printed, place, output, as_it_is=line.startswith("continue: "))
    for line in re.findall(r"resume_sync\(step, .*?\)(?= in its Python program)", output):
        if line not in seen:
            seen.add(line)
            names = {"step": place.step(), "resume_sync": resume_sync}
            with place.unchanged():
                assert eval(line, names).run_id == "r1"


def _works(printed: str, place: Place, output: str, *, as_it_is: bool) -> None:
    """Run a printed command on the state in which it was printed; `as_it_is` has no words to replace."""
    values = {} if as_it_is else VALUES
    command = [values.get(word, word) for word in shlex.split(printed)]
    if waits := [one for one in WAITS if f"{printed} ".startswith(f"{one} ")]:
        code, said = place.call(*waits[0].split(), "--help")
    else:
        if command[0] in ("resume", "retry"):
            command += place.yes
        with place.unchanged():
            code, said = place.call(*command)
    assert code != 2, f"loopwright {printed}\n{said}\nprinted in:\n{output}"
