"""A worker runs what it trusts: steps of its own folders as they were when it started, and documents by their digest."""

from __future__ import annotations

import json
import os
import py_compile
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from loopwright import Context, Loop, MaxIterations, Usage, step
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit
from loopwright.cluster.carried import _digest
from loopwright.cluster.trust import TrustedDigests, shared_digests
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal
from loopwright.records.codec import Json

from .waiting import serving, until, until_status

FLOWS = """
import functools
import os
import subprocess
from os import system
from pathlib import Path

import loopwright


class Caller:
    def __call__(self, value):
        return os.system(value)


class Kept:
    @staticmethod
    def call(value):
        return os.system(value)

    double = loopwright.step(lambda value: value * 2, name="double", fingerprint="double/1")


caller = Caller()
partial = functools.partial(os.system)


def plain(value):
    return os.system(value)


@loopwright.step(name="good", fingerprint="good/1", idempotent=True)
def good(value):
    return value
"""
EVIL = """
from pathlib import Path
import loopwright
Path({canary!r}).touch()
good = loopwright.step(lambda value: value, name="good", fingerprint="good/1")
"""


class Machine:
    """A worker's machine: its folder of modules, and a file that exists once something else has run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.canary = folder / "canary"
        self.evil = EVIL.format(canary=str(self.canary))
        self.write("root/flows.py", FLOWS)

    def write(self, name: str, text: str) -> Path:
        """Write a file below the folder of the machine."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    async def submitted(
        self,
        source: Mapping[str, Json],
        changed: Callable[[Machine], object] = lambda _: None,
        **options: object,
    ) -> str:
        """Return why a worker does not run a submission; "" if it ran. `changed` is called once it has started."""
        journal, deliverer = MemoryJournal(), InMemoryDeliverer()
        worker = Worker(
            journal=journal, root=self.root, deliverer=deliverer, **{"drain": 0.0, **options}
        )
        async with serving(worker):
            changed(self)
            named = Submission(str.upper, source=source, pinned=False)
            command = f"touch {self.canary}"
            run_id = await submit(named, command, journal=journal, deliverer=deliverer)
            assert worker.runs is not None

            async def known() -> bool:
                assert worker.runs is not None
                row = await journal.find(run_id)
                return row.status != "queued" or run_id in await worker.runs.returns([run_id])

            await until(known)
            if reasons := await worker.runs.returns([run_id]):
                assert (await journal.find(run_id)).status == "queued"
                return reasons[run_id][0]
            await until_status(journal, run_id, "satisfied", "exhausted", "failed")
        return ""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose modules are forgotten after the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(sys.modules)
    yield Machine(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _later(name: str) -> Callable[[Machine], object]:
    return lambda machine: machine.write(name, machine.evil)


def _outside(machine: Machine) -> None:
    """A module and a package in another folder, with links to them."""
    machine.write("outside/linked.py", machine.evil)
    machine.write("outside/linked_package/__init__.py", machine.evil)
    for name in ("linked.py", "linked_package"):
        (machine.root / name).symlink_to(machine.folder / "outside" / name)


def _cached(machine: Machine) -> None:
    """A bytecode file of other code, with the time and the size of its source."""
    source = machine.write("root/cached.py", machine.evil)
    target = py_compile.compile(str(source), doraise=True)
    state = source.stat()
    harmless = "import loopwright\ngood = loopwright.step(lambda value: value, name='good', fingerprint='good/1')\n"
    source.write_text(harmless + "#" * (state.st_size - len(harmless)))
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert Path(target).exists()


def _nothing(_: Machine) -> None:
    """Nothing is prepared."""


REFERENCES = {
    "a function of the standard library": ("subprocess:getoutput", "no folder of --root"),
    "a builtin": ("builtins:exec", "no folder of --root"),
    "a chain to another module": ("flows:os.system", "part before 'system' is a module"),
    "a chain through a step": ("flows:good.function", "part before 'function' is a FunctionStep"),
    "a chain through an imported class": ("flows:Path.home", "part before 'home' is a type"),
    "the namespace of the module": ("flows:__dict__", "there is no '__dict__'"),
    "a function that the module imports": ("flows:system", "is a builtin_function_or_method"),
    "a plain function of the module": ("flows:plain", "a function with the decorator @step"),
    "a static method": ("flows:Kept.call", "is a staticmethod"),
    "a partial": ("flows:partial", "is a partial"),
    "an object that can be called": ("flows:caller", "is a Caller"),
    "a class": ("flows:Caller", "is a type"),
    "a module that was imported": ("flows:subprocess", "is a module"),
    "the program of the worker": ("__main__:run", "no folder of --root"),
    "a path": ("../outside:good", "is not the name of a step"),
    "an address of a file": ("file:///etc/passwd", "is not the name of a step"),
    "no attribute": ("flows", "is not the name of a step"),
    "loopwright itself": ("loopwright.recipes:generate", "no folder of --root"),
}


@pytest.mark.parametrize("name", REFERENCES)
async def test_a_reference_runs_only_steps_of_the_modules_of_a_root(
    machine: Machine, name: str
) -> None:
    """Whatever else a submitter names is not called, and the run waits with the reason."""
    reference, reason = REFERENCES[name]
    assert reason in await machine.submitted({"python": reference})
    assert not machine.canary.exists()


FILES: dict[str, tuple[str, Callable[[Machine], object], Callable[[Machine], object], str]] = {
    "a module that was added": ("late:good", _nothing, _later("root/late.py"), "was added after"),
    "a module that was changed": (
        "early:good",
        lambda machine: machine.write("root/early.py", FLOWS),
        _later("root/early.py"),
        "early.py was changed after this worker started",
    ),
    "an import that was changed": (
        "importing:good",
        lambda machine: [
            machine.write("root/importing.py", f"import imported\n{FLOWS}"),
            machine.write("root/imported.py", ""),
        ],
        _later("root/imported.py"),
        "imported.py was changed",
    ),
    "a package whose import was changed": (
        "package.inner:good",
        lambda machine: [
            machine.write("root/package/__init__.py", "from . import other\n"),
            machine.write("root/package/inner.py", FLOWS),
            machine.write("root/package/other.py", ""),
        ],
        _later("root/package/other.py"),
        "other.py was changed",
    ),
    "a link to a file": ("linked:good", _outside, _nothing, "is in no folder of --root"),
    "a link to a folder": ("linked_package:good", _outside, _nothing, "is in no folder of --root"),
    "a folder without code": (
        "empty:good",
        lambda machine: (machine.root / "empty").mkdir(),
        _nothing,
        "is a folder, and not a module",
    ),
    "a part of a namespace elsewhere": (
        "spread.evil:good",
        lambda machine: [
            (machine.root / "spread").mkdir(),
            machine.write("elsewhere/spread/evil.py", machine.evil),
            sys.path.append(str(machine.folder / "elsewhere")),
        ],
        _nothing,
        "is in no folder of --root",
    ),
    "the name of a loaded module": ("json:good", _later("root/json.py"), _nothing, "json is "),
    "a module beside a loaded package": (
        "email.added:good",
        lambda machine: [
            machine.write("root/email/__init__.py", machine.evil),
            machine.write("root/email/added.py", machine.evil),
        ],
        _nothing,
        "the module email is ",
    ),
    "the name of what Python contains": (
        "sys:good",
        _later("root/sys.py"),
        _nothing,
        "the module sys is ",
    ),
}


@pytest.mark.parametrize("name", FILES)
async def test_a_module_runs_only_with_the_contents_that_it_had(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No code is run of a file that was changed, added or is elsewhere, also not by an import."""
    monkeypatch.setattr("sys.path", list(sys.path))
    reference, before, after, reason = FILES[name]
    before(machine)
    assert reason in await machine.submitted({"python": reference}, after)
    assert not machine.canary.exists()


async def test_files_beside_the_modules_are_not_run(machine: Machine) -> None:
    """A root is no site folder, and a cached bytecode file is not read; the steps beside them run."""
    for name in ("sitecustomize.py", "usercustomize.py", "__main__.py", "conftest.py"):
        machine.write(f"root/{name}", machine.evil)
    machine.write("root/evil.pth", f"import pathlib; pathlib.Path({str(machine.canary)!r}).touch()")
    _cached(machine)
    assert await machine.submitted({"python": "flows:good"}) == ""
    assert await machine.submitted({"python": "cached:good"}) == ""
    assert not machine.canary.exists()


@pytest.mark.parametrize(
    "reference",
    ["flows:good", "flows:Kept.double", "package.inner:good", "plain.folder.inner:good"],
)
async def test_honest_references_run(machine: Machine, reference: str) -> None:
    """Steps of modules, classes, packages and folders without `__init__.py` run."""
    machine.write("root/package/__init__.py", "from . import other\n")
    machine.write("root/package/other.py", "")
    for folder in ("package", "plain/folder"):
        machine.write(f"root/{folder}/inner.py", FLOWS)
    path = list(sys.path)
    assert await machine.submitted({"python": reference}) == ""
    assert sys.path == path


async def test_a_file_that_changed_runs_under_its_trusted_digest(machine: Machine) -> None:
    """The reason names the digest; a worker that trusts it runs the file."""

    def changed(machine: Machine) -> object:
        return machine.write("root/late.py", FLOWS)

    reason = await machine.submitted({"python": "late:good"}, changed)
    digest = reason.rpartition("--trust ")[2]
    assert len(digest) == 16
    (machine.root / "late.py").unlink()
    assert await machine.submitted({"python": "late:good"}, changed, trust=[digest]) == ""


async def test_a_registered_step_needs_no_root(machine: Machine) -> None:
    """A worker that was given a function by its program runs it under its name, whatever the submission calls it."""
    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    own = Loop(lambda n: n + 1, until=MaxIterations(1), name="own")
    worker = Worker(journal=journal, root=machine.root, steps=[own], deliverer=deliverer)
    async with serving(worker):
        named = Submission(own, source={"python": "elsewhere:own"})
        run_id = await submit(named, 1, journal=journal, deliverer=deliverer)
        await until_status(journal, run_id, "exhausted")


async def test_a_python_step_has_the_limits_and_the_cache_of_its_submission(
    machine: Machine,
) -> None:
    """Those of the command line, as on the machine of the person who submits it."""
    seen = []

    def spend(value: int, ctx: Context) -> int:
        seen.append(ctx.run.resources.get("cache"))
        ctx.spend(Usage(calls=1))
        return value

    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    paid = step(spend, reserve=Usage(calls=1))
    own = Loop(paid, adapt=lambda last: last.output, until=MaxIterations(5), name="own")
    worker = Worker(journal=journal, steps=[own], deliverer=deliverer)
    async with serving(worker):
        source = {"python": "flows:own", "max_calls": 2, "cache": "store"}
        run_id = await submit(
            Submission(own, source=source), 1, journal=journal, deliverer=deliverer
        )
        await until_status(journal, run_id, "exhausted")
    assert (await journal.find(run_id)).reason == "budget"
    assert seen == ["store"] * 2


HEAD = "schema: loopwright/1\nname: hostile\n"
DOCUMENTS = {
    "a command": "steps: [{name: a, shell: 'touch CANARY'}]",
    "a function": "steps: [{name: a, python: 'subprocess:getoutput'}]",
    "a module that travels": "steps: [{name: a, python: 'evil:good'}]",
    "a function as a tool": "tools: {t: {python: 'os:system'}}\n"
    "steps: [{name: a, tool: t, arguments: {command: 'touch CANARY'}}]",
    "a command as a tool": "tools: {t: {commands: [[touch, CANARY]]}}\n"
    "steps: [{name: a, tool: t, arguments: {command: 'touch CANARY'}}]",
    "an MCP server": "servers: {s: {command: [touch, CANARY]}}\n"
    "steps: [{name: a, tool: s.t, arguments: {}}]",
    "tests in a loop": "steps: [{name: a, loop: {execute: {set: 1}, evaluate: {tests: 'touch CANARY'}, "
    "until: [passed, {max_iterations: 1}]}}]",
    "a called document": "steps: [{name: a, workflow: inner}]",
}


def _carried(text: str, canary: Path, **settings: Json) -> dict[str, Json]:
    files = {
        "main.yaml": (HEAD + text).replace("CANARY", str(canary)),
        "inner.yaml": f"{HEAD}steps: [{{name: a, shell: 'touch {canary}'}}]",
        "evil.py": EVIL.format(canary=str(canary)),
    }
    digest = _digest("main.yaml", files, settings)
    return {
        **settings,
        "carried": {"main": "main.yaml", "files": files, "acts": False, "digest": digest},
    }


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_a_document_that_acts_waits_for_trust(machine: Machine, name: str) -> None:
    """The worker reads what the document does from its contents; a root is no trust in documents."""
    reason = await machine.submitted(_carried(DOCUMENTS[name], machine.canary))
    assert "does not trust the commands and Python code of hostile" in reason, reason
    assert not machine.canary.exists()


async def test_functions_of_the_submitter_wait_for_trust(machine: Machine) -> None:
    """`--agent` names functions of the person who runs a document; a submitter is not the person of the worker."""
    text = "steps: [{name: a, python: 'subprocess:getoutput'}]"
    source = _carried(text, machine.canary, agents={"custom": "subprocess:getoutput"})
    assert "does not trust" in await machine.submitted(source)
    assert not machine.canary.exists()


async def test_a_digest_stands_for_its_own_document(machine: Machine) -> None:
    """A trusted digest runs neither another file of its own nor one that an untrusted run left on the machine."""
    honest = _carried("steps: [{name: a, shell: 'echo honest'}]", machine.canary)
    hostile = _carried(DOCUMENTS["a command"], machine.canary)
    trusted = honest["carried"]["digest"]
    assert await machine.submitted(honest, trust=[trusted]) == ""
    assert "does not trust" in await machine.submitted(hostile, trust=[trusted])
    left = hostile["carried"]["digest"][:32]
    for main in ("inner.yaml", f"../{left}/main.yaml", "evil.py"):
        forged = {"carried": {**honest["carried"], "main": main}}
        assert "do not match their digest" in await machine.submitted(forged, trust=[trusted])
    assert not machine.canary.exists()


async def test_a_digest_of_an_earlier_version_is_accepted(machine: Machine) -> None:
    """A run that was submitted before the name of the document was part of the digest continues."""
    source = _carried("steps: [{name: a, set: 1}]", machine.canary)
    data = source["carried"]
    source["carried"] = {**data, "digest": _digest("", data["files"], {})}
    assert await machine.submitted(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        {"carried": {"main": "main.yaml"}},
        {"carried": []},
        {"carried": {"main": 1, "files": 2, "acts": 3, "digest": 4}},
        {"file": "/etc/passwd"},
        {"python": ["flows:good"]},
        {"documents": {"main": "steps"}, "file": "main.yaml"},
    ],
    ids=json.dumps,
)
async def test_a_row_of_another_form_waits(machine: Machine, source: dict[str, Json]) -> None:
    """Whatever a row says, the worker serves on and the run waits with a reason."""
    assert await machine.submitted(source)


def test_digests_of_a_fleet_are_read_from_a_file_or_folder(tmp_path: Path) -> None:
    """A line is a digest; what follows `#` is for people. The files are read for each question."""
    first, second, third = ("a" * 16, "b" * 64, "c" * 20)
    folder = tmp_path / "trusted"
    folder.mkdir()
    (folder / "one").write_text(f"# approved by Ada\n{first}  # nightly\n\n{second}\n")
    assert shared_digests(folder / "one") == [first, second]
    trusts = TrustedDigests([], approved=lambda: shared_digests(folder))
    assert trusts(first + "0" * 48)
    assert not trusts(third + "0" * 44)
    (folder / "two").write_text(third)
    assert trusts(third + "0" * 44)


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("a" * 12, 0o644, "line 1: 'aaaaaaaaaaaa' is not a digest; use 16 or more"),
        ("all", 0o644, "line 1: 'all' is not a digest"),
        ("a" * 16, 0o646, "every user may write"),
        (None, 0o644, "cannot be read: No such file"),
    ],
)
def test_a_file_of_digests_that_is_not_sound_trusts_nothing(
    tmp_path: Path, text: str | None, mode: int, problem: str
) -> None:
    """A short digest could be met by another document, and a file that everybody may write is no trust."""
    file = tmp_path / "trusted"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(ConfigurationError, match=problem):
        shared_digests(file)
