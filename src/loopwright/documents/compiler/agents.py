"""Agents of documents: phased agents, reasoning agents, and tasks for coding agents."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ...agents.phased import PHASES_CAPPED, PhasedAgent
from ...agents.reasoning import ReasoningAgent
from ...coding.agents.calls import is_missing
from ...coding.agents.manifest import Manifest, load_manifest
from ...coding.agents.step import AgentStep, agent
from ...records.codec import Json
from ..schema.document import Action
from ..schema.models import AgentWaitsSpec, CodingAgentSpec
from ..schema.traverse import phases_of
from ..yaml.reader import Location
from .compilation import Compilation
from .evaluators import compile_evaluators
from .prompts import compile_settings
from .tools import command_value, compile_sandbox, resolve_tools

__all__ = ["compile_agent", "compile_phased", "compile_reasoning"]

# Names in the templates of phases, in addition to the names of the steps before.
PHASE_NAMES = ("loop", "task", "plan", "results")


def compile_phased(
    compilation: Compilation, action: Action, name: str, at: Location
) -> PhasedAgent | None:
    """Compile a phased agent; None if it has problems."""
    assert action.phased is not None
    spec, path = action.phased, (*at, "phased")
    before = len(compilation.problems)
    inner = compilation.with_names(PHASE_NAMES)
    steps: dict[str, Json] = {
        phase: inner.action(action, phase, (*path, phase)) for phase, action in phases_of(spec)
    }
    evaluate = compile_evaluators(inner, spec, path)
    if spec.role not in (None, spec.preset) and "preset" in spec.model_fields_set:
        compilation.problem((*path, "role"), f"preset is {spec.preset!r}; set only one of them")
    capabilities: list[Json] = []
    for i, reference in enumerate(spec.capabilities):
        at = (*path, "capabilities", i)
        one = compilation.function(at, reference)
        if one is not None and compilation.project.execute:
            one = compilation.attempt(at, one)
        if one is not None:
            capabilities.append(one)
    if len(compilation.problems) > before:
        return None
    # A check imports no Python, so the objects are placeholders that the agent would refuse.
    if not compilation.project.execute:
        capabilities = []
    planning, execution, refinement = spec.token_split
    # Only fields that are set: the preset of the agent supplies the others.
    values = spec.model_fields_set - {*steps, "evaluate", "capabilities", "token_split", "role"}
    fields = {field: value for field in values if (value := getattr(spec, field)) is not None}
    if spec.role is not None:
        fields["preset"] = spec.role
    result: PhasedAgent | None = compilation.attempt(
        path,
        lambda: PhasedAgent(
            **steps, name=name, evaluate=evaluate, capabilities=capabilities,
            token_split=(planning, execution, refinement), **fields,
        ),
    )  # fmt: skip
    for code, sentence in result.warnings if result is not None else ():
        if code == PHASES_CAPPED:  # `lints` reports the others
            note = compilation.source.problem((*path, "max_iterations"), sentence, code=code)
            compilation.project.notes.append(note)
    return result


def compile_reasoning(
    compilation: Compilation, action: Action, name: str, at: Location
) -> ReasoningAgent | None:
    """Compile a reasoning agent; None if it has problems."""
    assert action.reasoning is not None
    spec, path = action.reasoning, (*at, "reasoning")
    prompt = compilation.template((*path, "prompt"), spec.prompt) if spec.prompt else ""
    system = compilation.template((*path, "system"), spec.system) if spec.system else ""
    prompt_settings = compile_settings(compilation, spec, path)
    tools = resolve_tools(compilation, spec.tools, (*path, "tools"))
    if prompt_settings is None or tools is None:
        return None
    return compilation.attempt(
        path,
        lambda: ReasoningAgent(
            prompt, name=name, role=spec.role, goal=spec.goal, backstory=spec.backstory,
            system=system, max_iterations=spec.max_iterations, mode=spec.mode,
            notice_lead=spec.notice_lead, max_prompt_chars=spec.max_prompt_chars, model_settings=prompt_settings,
            tools=tools, tool_rounds=spec.max_tool_rounds,
        ),
    )  # fmt: skip


# The options that are passed on as they are, if the document sets them.
_PLAIN = (
    "model", "session", "permissions", "max_turns", "max_usd", "timeout", "idle_timeout", "pass_env", "home",
    "args", "billing", "count_notional", "stream", "workspace", "idempotent",
)  # fmt: skip


def compile_agent(
    compilation: Compilation, action: Action, name: str, at: Location
) -> AgentStep | None:
    """Compile a task for a coding agent; None if it has problems."""
    assert action.agent is not None
    spec, path = action.agent, (*at, "agent")
    prompt = compilation.template((*path, "prompt"), spec.prompt)
    env = {k: command_value(compilation, (*path, "env", k), v) for k, v in spec.env.items()}
    for i, word in enumerate(spec.args):
        if "{{" in word or "{%" in word:
            message = "args cannot contain template values; pass values through env or the prompt"
            compilation.problem((*path, "args", i), message)
    manifest = _manifest(compilation, spec, path)
    if spec.cwd is not None or spec.workspace == "here":
        # A document of somebody else must not work in other folders.
        cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
    if manifest is None:
        return None
    # The user approves which variables the program receives. A manifest could have the name of another program.
    names = manifest.keys if spec.pass_env is None else spec.pass_env
    compilation.project.keys += [f"{variable} to the agent {spec.cli}" for variable in names]
    # A path may be one of the workspace, which a setup makes.
    if "/" not in manifest.program[0] and "PATH" not in spec.env:
        compilation.need((*path, "cli"), partial(_missing, manifest))
    options: dict[str, Any] = {
        key: value
        for key in _PLAIN
        if key in spec.model_fields_set and (value := getattr(spec, key)) is not None
    }
    options["sandbox"] = compile_sandbox(compilation, spec.sandbox)
    options["waits"] = (
        spec.waits.model_dump() if isinstance(spec.waits, AgentWaitsSpec) else spec.waits
    )
    output = spec.output if isinstance(spec.output, str) else spec.output["schema"]
    price = None if spec.price is None else {"input": spec.price.input, "output": spec.price.output}
    if spec.cwd is not None or spec.workspace == "here":
        options["cwd"] = cwd
    step = compilation.attempt(
        path,
        lambda: agent(manifest, prompt, name=name, env=env, output=output, price=price, **options),
    )
    if step is not None:
        compilation.project.coding.append((compilation.source.problem(path, ""), step))
    return step


def _missing(manifest: Manifest) -> str:
    """Return the sentence on a program that is not installed, or ""."""
    if not is_missing(manifest.program[0], {}):
        return ""
    hint = f"; install it with: {manifest.install}" if manifest.install else ""
    return f"there is no program {manifest.program[0]!r} on PATH{hint}"


def _manifest(compilation: Compilation, spec: CodingAgentSpec, path: Location) -> Manifest | None:
    if "/" in spec.cli or spec.cli.endswith((".yaml", ".yml")):
        # Reported here, because a file outside the project is not read.
        before = len(compilation.problems)
        file = Path(compilation.inside(spec.cli, (*path, "cli")))
        if len(compilation.problems) > before:
            return None
        project = compilation.project
        # Read once: the approval covers the bytes that the run uses. The reader of manifests reports a missing file.
        if file not in project.contents and (file.is_file() or project.settings.recorded.has(file)):
            project.contents[file] = project.content(file)
        content = project.contents.get(file)
        return compilation.attempt(
            (*path, "cli"), lambda: load_manifest(str(file), content=content)
        )
    return compilation.attempt((*path, "cli"), lambda: load_manifest(spec.cli))
