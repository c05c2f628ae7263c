"""Prompts and judges of native documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..evaluators.judge import Judge, votes_of
from ..models import Timers
from ..prompts import Asking, Prompt, Text
from .native import Action, JudgeSpec, VoterSpec

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_judge", "compile_prompt"]


def compile_prompt(compiler: Compiler, spec: Action, name: str, at: Path_) -> Prompt | None:
    """Compile a prompt; None if problems were found."""
    text = compiler.filled((*at, "prompt"), spec.prompt)
    system = compiler.filled((*at, "system"), spec.system or "")
    schema = None
    if isinstance(spec.output, dict):
        schema = spec.output.get("schema")
        if not isinstance(schema, dict) or len(spec.output) != 1:
            compiler.problem((*at, "output"), "the output of a prompt is {schema: a JSON Schema}")
            return None
    asking = asked(compiler, spec, at, schema)
    if asking is None:
        return None
    carried = spec.conversation == "carried"
    return Prompt(text, name=name, system=system, asking=asking, carried=carried)


def compile_judge(compiler: Compiler, spec: JudgeSpec, at: Path_) -> Judge | None:
    """Compile a judge; None if problems were found."""
    criteria = spec.criteria or ([spec.criterion] if spec.criterion else [])
    if not criteria:
        compiler.problem(at, "a judge needs a criterion, or criteria")
        return None
    texts = criteria if isinstance(criteria, dict) else {text: text for text in criteria}
    named = {name: _criterion(compiler, text, (*at, "criterion")) for name, text in texts.items()}
    temperature = 0.0 if spec.temperature is None else spec.temperature
    asking = asked(compiler, spec, at, None, temperature=temperature, max_tokens=spec.max_tokens or 512)
    if asking is None:
        return None
    votes = votes_of(spec.max_votes, spec.accept_lead, spec.reject_lead, spec.confirm)
    return Judge(named, asking=asking, goal=spec.goal or "", votes=votes, style=spec.style)


def _criterion(compiler: Compiler, text: str, at: Path_) -> Text:
    """Return a criterion, compiled if it is a template."""
    return compiler.filled(at, text) if "{{" in text or "{%" in text else text


def asked(
    compiler: Compiler,
    spec: Action | JudgeSpec | VoterSpec,
    at: Path_,
    schema: Any = None,
    **fixed: Any,
) -> Asking | None:
    """Return how a model is asked: the step's own settings, then the document's, then the caller's."""
    defaults = compiler.defaults
    settings = compiler.project.settings
    models = getattr(spec, "models", None) or ([spec.model] if spec.model else None)
    models = models or defaults.get("models") or ([defaults["model"]] if defaults.get("model") else [])
    if settings.model:
        models = [settings.model]
    if not models:
        compiler.problem(at, "no model is named; give model: provider:model here, in the document, or with --model")
        return None
    for name in models:
        if ":" not in name:
            compiler.problem((*at, "model"), f"{name!r} is not a model; write provider:model, like openai:gpt-4o")
            return None
    temperature = spec.temperature if spec.temperature is not None else defaults.get("temperature")
    tokens = spec.max_tokens if spec.max_tokens is not None else defaults.get("max_tokens")
    url = spec.model_url or defaults.get("model_url") or settings.model_url or ""
    return Asking(
        tuple(models), fixed.get("temperature", temperature), fixed.get("max_tokens", tokens),
        schema, url, timeouts=timers(spec.call_timeout or defaults.get("call_timeout")),
    )  # fmt: skip


def timers(call: float | None) -> Timers:
    """Return the timers of calls that may take `call` seconds; None leaves the usual ones."""
    return Timers() if call is None else Timers(call, call, call)
