"""Agents of documents: phased agents and reasoning agents."""

from __future__ import annotations

from ...agents.phased.agent import PhasedAgent
from ...agents.phased.phase import PHASES
from ...agents.reasoning.agent import ReasoningAgent
from ...records.codec import Json
from ..schema.document import Action
from ..schema.traverse import phases_of
from ..yaml.source import Location
from .compilation import Compilation
from .evaluators import compile_evaluators
from .prompts import compile_settings
from .tools import resolve_tools

__all__ = ["compile_phased", "compile_reasoning"]

PHASE_NAMES = (
    "loop",
    "task",
    "plan",
    "results",
)  # names in the templates of phases, beside those of the steps before


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
    evaluate = compile_evaluators(inner, spec.evaluate, path)
    capabilities = [
        one
        for i, reference in enumerate(spec.capabilities)
        if (one := _capability(compilation, reference, (*path, "capabilities", i))) is not None
    ]
    if len(compilation.problems) > before:
        return None
    if not compilation.project.execute:
        capabilities = []  # a document that is only checked imports none of them
    planning, execution, refinement = spec.token_split
    values = spec.model_fields_set - {*PHASES, "evaluate", "capabilities", "token_split"}
    fields = {field: value for field in values if (value := getattr(spec, field)) is not None}
    result: PhasedAgent | None = compilation.attempt(
        path,
        lambda: PhasedAgent(
            **steps, name=name, evaluate=evaluate, capabilities=capabilities,
            token_split=(planning, execution, refinement), **fields,
        ),
    )  # fmt: skip
    if result is not None and result.warning:
        note = compilation.source.problem((*path, "max_iterations"), result.warning)
        compilation.project.notes.append(note)
    return result


def _capability(compilation: Compilation, reference: str, at: Location) -> object:
    result = compilation.function(at, reference)
    if result is None or not compilation.project.execute:
        return result
    return compilation.attempt(at, result)


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
            notice_lead=spec.notice_lead, max_prompt_chars=spec.max_prompt_chars, asking=prompt_settings,
            tools=tools, tool_rounds=spec.max_tool_rounds,
        ),
    )  # fmt: skip
