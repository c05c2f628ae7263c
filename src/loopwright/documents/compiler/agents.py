"""Agents of native documents."""

from __future__ import annotations

from typing import Any

from ...agents.phased.agent import PhasedAgent
from ...agents.phased.phase import PHASES
from ...agents.reasoning.agent import ReasoningAgent
from ..schema.document import Action
from ..schema.traverse import phases_of
from .compilation import Compilation, Path_
from .loops import compile_evaluators
from .prompts import asked
from .tools import tools_named

__all__ = ["compile_phased", "compile_reasoning"]

SEEN = ("loop", "task", "plan", "results")  # what templates of phases see beside what is around


def compile_phased(
    compilation: Compilation, action: Action, name: str, at: Path_
) -> PhasedAgent | None:
    """Compile a phased agent; None if problems were found."""
    assert action.phased is not None
    spec, path = action.phased, (*at, "phased")
    before = len(compilation.problems)
    inner = compilation.knowing(SEEN)
    steps: dict[str, Any] = {  # beside other options of the agent
        phase: inner.action(action, phase, (*path, phase)) for phase, action in phases_of(spec)
    }
    evaluate = compile_evaluators(inner, spec.evaluate, path)
    capabilities = [
        one
        for i, reference in enumerate(spec.capabilities)
        if (one := _capability(compilation, reference, (*path, "capabilities", i))) is not None
    ]
    if len(compilation.problems) > before:
        return None
    if not compilation.project.execute:
        capabilities = []  # only looked at: none of them is imported
    planning, execution, refinement = spec.token_split
    given = spec.model_fields_set - {*PHASES, "evaluate", "capabilities", "token_split"}
    fields = {field: value for field in given if (value := getattr(spec, field)) is not None}
    made: PhasedAgent | None = compilation.attempt(
        path,
        lambda: PhasedAgent(
            **steps, name=name, evaluate=evaluate, capabilities=capabilities,
            token_split=(planning, execution, refinement), **fields,
        ),
    )  # fmt: skip
    if made is not None and made.warning:
        note = compilation.source.problem((*path, "max_iterations"), made.warning)
        compilation.project.notes.append(note)
    return made


def _capability(compilation: Compilation, reference: str, at: Path_) -> Any:
    found = compilation.function(at, reference)
    if found is None or not compilation.project.execute:
        return found
    return compilation.attempt(at, found)


def compile_reasoning(
    compilation: Compilation, action: Action, name: str, at: Path_
) -> ReasoningAgent | None:
    """Compile a reasoning agent; None if problems were found."""
    assert action.reasoning is not None
    spec, path = action.reasoning, (*at, "reasoning")
    prompt = compilation.filled((*path, "prompt"), spec.prompt) if spec.prompt else ""
    system = compilation.filled((*path, "system"), spec.system) if spec.system else ""
    asking = asked(compilation, spec, path)
    tools = tools_named(compilation, spec.tools, (*path, "tools"))
    if asking is None or tools is None:
        return None
    return compilation.attempt(
        path,
        lambda: ReasoningAgent(
            prompt, name=name, role=spec.role, goal=spec.goal, backstory=spec.backstory,
            system=system, max_iterations=spec.max_iterations, mode=spec.mode,
            notice_lead=spec.notice_lead, max_prompt_chars=spec.max_prompt_chars, asking=asking,
            tools=tools, tool_rounds=spec.max_tool_rounds,
        ),
    )  # fmt: skip
