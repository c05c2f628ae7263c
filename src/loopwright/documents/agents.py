"""Agents of native documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..agents.phased import PhasedAgent
from ..agents.phases import PHASES
from ..agents.reasoning import ReasoningAgent
from .loops import compile_evaluators
from .native import PhasedSpec
from .native_agents import ReasoningSpec
from .prompting import asked
from .tooling import tools_named
from .walking import phases_of

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_phased", "compile_reasoning"]

SEEN = ("loop", "task", "plan", "results")  # what templates of phases see beside what is around


def compile_phased(
    compiler: Compiler, spec: PhasedSpec, name: str, path: Path_
) -> PhasedAgent | None:
    """Compile a phased agent; None if problems were found."""
    before = len(compiler.problems)
    inner = compiler.knowing(SEEN)
    steps = {
        phase: inner.action(action, phase, (*path, phase)) for phase, action in phases_of(spec)
    }
    evaluate = compile_evaluators(inner, spec.evaluate, path)
    capabilities = [
        one
        for i, reference in enumerate(spec.capabilities)
        if (one := _capability(compiler, reference, (*path, "capabilities", i))) is not None
    ]
    if len(compiler.problems) > before:
        return None
    if not compiler.project.execute:
        capabilities = []  # only looked at: none of them is imported
    planning, execution, refinement = spec.token_split
    given = spec.model_fields_set - {*PHASES, "evaluate", "capabilities", "token_split"}
    fields = {field: value for field in given if (value := getattr(spec, field)) is not None}
    made: PhasedAgent | None = compiler.attempt(
        path,
        lambda: PhasedAgent(
            **steps, name=name, evaluate=evaluate, capabilities=capabilities,
            token_split=(planning, execution, refinement), **fields,
        ),
    )  # fmt: skip
    if made is not None and made.warning:
        note = compiler.source.problem((*path, "max_iterations"), made.warning)
        compiler.project.notes.append(note)
    return made


def _capability(compiler: Compiler, reference: str, at: Path_) -> Any:
    found = compiler.function(at, reference)
    if found is None or not compiler.project.execute:
        return found
    return compiler.attempt(at, found)


def compile_reasoning(
    compiler: Compiler, spec: ReasoningSpec, name: str, path: Path_
) -> ReasoningAgent | None:
    """Compile a reasoning agent; None if problems were found."""
    prompt = compiler.filled((*path, "prompt"), spec.prompt) if spec.prompt else ""
    system = compiler.filled((*path, "system"), spec.system) if spec.system else ""
    asking = asked(compiler, spec, path)
    tools = tools_named(compiler, spec.tools, (*path, "tools"))
    if asking is None or tools is None:
        return None
    return compiler.attempt(
        path,
        lambda: ReasoningAgent(
            prompt, name=name, role=spec.role, goal=spec.goal, backstory=spec.backstory,
            system=system, max_iterations=spec.max_iterations, mode=spec.mode,
            notice_lead=spec.notice_lead, max_prompt_chars=spec.max_prompt_chars, asking=asking,
            tools=tools, tool_rounds=spec.max_tool_rounds,
        ),
    )  # fmt: skip
