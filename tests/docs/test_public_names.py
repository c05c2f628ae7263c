"""The public names of Loopwright: which there are, that each is documented, and that its examples run."""

from __future__ import annotations

import doctest
import enum
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from docs.test_reference import reference
from loopwright.conditions import base

PACKAGE = Path(__file__).parents[2] / "src" / "loopwright"
MODULES = list(reference.MODULES)

# The names that each module promises. A module may have more; a name that does not exist yet is not required.
PROMISED = {
    "loopwright": """
        Loop Workflow step sequence parallel fallback retry with_timeout for_each prompt judge check checklist score
        rubric tool shell agent run run_sync stream resume resume_sync ScoreAtLeast Passed Judged AllCriteriaMet OutputMatches
        MaxIterations Timeout Deadline Budget NoImprovement RepeatedOutput Degrading PhaseLimit Condition AllOf AnyOf
        Context Iteration History Evaluation Criterion Result Failure Usage Status Reason Stop Models ModelSettings
        File PhasedAgent ReasoningAgent LoopwrightError NotSatisfied TextDelta IterationEnded RunEnded
        until tests OnStall NoChange NoProgress Workspace Impossible Undecided change_limits change_limits_sync fork fork_sync keep_or_revert_loop metric sealed_metric Measure Metric MetricScore Confirm Early
        MetricAtLeast MetricAtMost MemoryJournal Optimise gepa""",
    "loopwright.search": "Optimise gepa",
    "loopwright.evaluators": """
        judge rubric check checklist score metric gates test_report json_schema similarity trend agreement read_score
        read_verdict read_yes_no""",
    "loopwright.adapters": "feedback keep_input use_output merge rotate improve",
    "loopwright.recipes": "confidence_loop improvement_loop checklist_loop strategy_loop",
    "loopwright.models": """
        Models ModelSettings ProviderModel ScriptedModel Model Request Reply Message ToolDefinition ToolCall File Policy Timers
        Price PROVIDERS read_value own_words""",
    "loopwright.agents": "PhasedAgent ReasoningAgent Capability tool_prompt Lifecycle LifecycleListener",
    "loopwright.coding.agents": "agent AgentStep Manifest load_manifest manifest_names",
    "loopwright.tools": "tool command_tool mcp_server shell",
    "loopwright.journal": "open_journal Journal Entry MemoryJournal",
    "loopwright.memory": "open_memory Memory Lesson",
    "loopwright.documents": "load check convert export_schema",
    "loopwright.testing": "ScriptedModel run_virtual VirtualClock assert_replays",
    "loopwright.interop": "Adapter as_step as_evaluator",
    "loopwright.progress": "rich_rows tqdm_bar notebook plain",
    "loopwright.insight": """
        StoppingPolicy Recordings recordings_of replay selected measure_judge JudgeMeasurement compare Comparison""",
}
# Loopwright creates these; a program only reads them.
CREATED = {
    "Context", "Loaded", "Question", "RunInfo", "Result", "History", "LocalActions", "MemoryLog", "Move", "OpenMemory",
    "Recorded", "ScoreReading", "Verdict",
}  # fmt: skip


def names_of(module: str) -> list[tuple[str, str]]:
    return [(module, name) for name in reference.public_names(module)]


PUBLIC = [pair for module in MODULES for pair in names_of(module)]
DOCUMENTED = [
    (module, name)
    for module, name in PUBLIC
    if inspect.isclass(value := getattr(import_module(module), name)) or inspect.isfunction(value)
]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_once_and_in_order(module: str) -> None:
    """`__all__` is sorted: constants, classes, functions; and each of its names can be imported."""
    target = import_module(module)
    names = reference.public_names(module)
    assert [name for name in names if not hasattr(target, name)] == []
    assert [name for name in names if inspect.ismodule(getattr(target, name))] == []
    if hasattr(target, "__all__"):
        kinds = {name: 0 if name.isupper() else 1 if name[0].isupper() else 2 for name in names}
        assert names == sorted(set(names), key=lambda name: (kinds[name], name))


@pytest.mark.parametrize("module", PROMISED)
def test_promised_names_are_public(module: str) -> None:
    """A name of the table that the module has is in `__all__`."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} does not exist yet")
    target = import_module(module)
    has = [name for name in PROMISED[module].split() if hasattr(target, name)]
    assert [name for name in has if name not in target.__all__] == []


def test_heavy_modules_load_at_first_use() -> None:
    """`import loopwright` loads no evaluator, agent, prompt, tool or model, and each name then works."""
    code = (
        "import sys, loopwright\n"
        "heavy = 'agents evaluators models prompts templates tools documents'.split()\n"
        "print([name for name in heavy if f'loopwright.{name}' in sys.modules])\n"
        "from loopwright import *\n"
        "print([name for name in loopwright.__all__ if name not in dir(loopwright)])\n"
        "print(judge.__module__, callable(shell), PhasedAgent.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n[]\nloopwright.evaluators.judge True PhasedAgent\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The names that load at first use do not hide a wrong one."""
    import loopwright

    with pytest.raises(AttributeError, match="nothing"):
        loopwright.nothing  # noqa: B018


def test_the_package_is_typed() -> None:
    """Type checkers read the annotations of a package with this file."""
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize(("module", "name"), DOCUMENTED)
def test_every_public_name_has_a_docstring_with_its_arguments(module: str, name: str) -> None:
    """The docstring names each argument, or the public function that creates the object and documents them."""
    value = getattr(import_module(module), name)
    assert getattr(value, "__doc__", None), f"{module}.{name} has no docstring of its own"
    assert missing_arguments(value) == []


@pytest.mark.parametrize("name", reference.public_names("loopwright"))
def test_every_name_of_the_package_has_an_example(name: str) -> None:
    """An example shows how to use each name of `loopwright`."""
    value = getattr(import_module("loopwright"), name)
    assert doctest.DocTestFinder(recurse=False).find(value, name)[0].examples


def missing_arguments(value: object) -> list[str]:
    """Return the arguments of a class or function that its docstring does not name."""
    text = documentation(value)
    if inspect.isclass(value) and (
        issubclass(value, enum.Enum)
        or not inspect.isfunction(value.__init__)  # an exception with a message only
        or getattr(value, "_is_protocol", False)
        or value.__name__ in CREATED
    ):
        return []
    creator = re.search(r"[Ss]ee `(\w+)`", text.partition("\n\n")[0])
    if creator and creator[1] in {name for _, name in PUBLIC}:
        return []
    entries = re.findall(r"^ +((?:\*{0,2}\w+(?:,\s+)?)+):", text, re.MULTILINE)
    named = {name.lstrip("*") for entry in entries for name in re.split(r",\s+", entry)}
    parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    return [
        one.name
        for one in parameters
        if one.name not in named and one.name[0] != "_" and one.name != "self"
        and not (one.kind is one.VAR_POSITIONAL and one.name == "args")
        and not (one.kind is one.VAR_KEYWORD and one.name == "kwargs")
    ]  # fmt: skip


def documentation(value: object) -> str:
    """Return the docstring of a function, or of a class and of the classes that it extends."""
    if not inspect.isclass(value):
        return inspect.getdoc(value) or ""
    kinds = [kind for kind in value.__mro__ if kind.__module__.startswith("loopwright")]
    return "\n".join(inspect.cleandoc(kind.__doc__ or "") for kind in kinds)


def modules_with_examples() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in file.read_text("utf-8"):
            parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("module", list(modules_with_examples()))
def test_the_examples_of_docstrings_run(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example prints what its docstring shows, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LOOPWRIGHT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(base, "TAGS", dict(base.TAGS))  # an example declares a condition
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, count = doctest.testmod(import_module(module), optionflags=flags)
    assert count
    assert failed == 0
