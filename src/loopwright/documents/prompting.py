"""Prompts and judges of native documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..agents.calling import MAX_ROUNDS
from ..agents.steps import ToolPrompt
from ..errors import listed, nearest
from ..evaluators.judge import Judge
from ..evaluators.questions import Question, YesNo, preset_question
from ..evaluators.votes import votes_of
from ..models import Timers
from ..nodes.answers import Answer, answer
from ..nodes.validating import criteria_of
from ..prompts import Asking, Prompt, Text
from ..step import digest_of
from .native import Action
from .native_agents import ReasoningSpec
from .native_confidence import ConfidenceSpec
from .native_judging import JudgeSpec
from .native_models import VoterSpec
from .native_nodes import PresetSpec
from .tooling import tools_named

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_judge", "compile_prompt"]


def compile_prompt(compiler: Compiler, spec: Action, name: str, at: Path_) -> Prompt | None:
    """Compile a prompt; None if problems were found."""
    reading = _reading(compiler, spec, at)
    if reading is None:
        return None
    said = spec.prompt or ""
    text = compiler.filled(
        (*at, "prompt"), f"{said.rstrip()}\n\n{reading.said}" if reading.said else said
    )
    system = compiler.filled((*at, "system"), spec.system or "")
    schema = spec.output.get("schema") if isinstance(spec.output, dict) else None
    if spec.output is not None and not (isinstance(schema, dict) and len(spec.output) == 1):
        compiler.problem((*at, "output"), "the output of a prompt is {schema: a JSON Schema}")
        return None
    asking = asked(compiler, spec, at, schema)
    if asking is None:
        return None
    carried = spec.conversation == "carried"
    tools = tools_named(compiler, spec.tools or [], (*at, "tools"))
    if spec.max_tool_rounds is not None and not spec.tools:
        compiler.problem((*at, "max_tool_rounds"), "max_tool_rounds needs tools")
        return None
    if carried and spec.tools:
        compiler.problem((*at, "conversation"), "a prompt with tools is fresh in each round")
        return None
    if tools is None:
        return None
    read = None if reading.kind == "text" else lambda reply: reading.read(reply.text)
    if tools:
        rounds = spec.max_tool_rounds or MAX_ROUNDS
        made: Prompt = ToolPrompt(
            text, tools, max_rounds=rounds, name=name, system=system, asking=asking, read=read
        )
    else:
        made = Prompt(text, name=name, system=system, asking=asking, carried=carried, read=read)
    if read is not None:
        made.fingerprint = digest_of("answer", reading.kind, reading.said, made.fingerprint)
    return made


def _reading(compiler: Compiler, spec: Action, at: Path_) -> Answer | None:
    """Return how the reply of a prompt is read; None if problems were found."""
    kind = spec.answer or "text"
    if spec.output is not None and kind != "text":
        compiler.problem(
            (*at, "answer"), f"answer: {kind} and output are two ways to read one reply; keep one"
        )
        return None
    for name, owner in (("options", "classification"), ("preset", "criteria")):
        if getattr(spec, name) is not None and kind != owner:
            compiler.problem((*at, name), f"{name} belong to answer: {owner}, not to {kind}")
            return None
    if kind != "criteria":
        return answer(kind, spec.options or ())
    preset = spec.preset or PresetSpec()
    found = compiler.attempt(
        (*at, "preset"), lambda: criteria_of(preset.level, preset.context, preset.weights)
    )
    return None if found is None else Answer(kind, found.said, found.read)


def compile_judge(compiler: Compiler, spec: JudgeSpec, at: Path_) -> Judge | None:
    """Compile a judge; None if problems were found."""
    given = [n for n in ("criterion", "criteria", "preset") if getattr(spec, n)]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "has none"
        compiler.problem(at, f"a judge needs one of criterion, criteria and preset, and {found}")
        return None
    if spec.weights and not spec.preset:
        compiler.problem(
            (*at, "weights"), "weights belong to a preset; name one, like quality/moderate"
        )
        return None
    question: Question | None = YesNo() if spec.style == "yes_no" else None
    if spec.preset:
        name, weights = spec.preset, spec.weights
        question = compiler.attempt((*at, "preset"), lambda: preset_question(name, weights))
    named = _criteria(compiler, spec, at)
    votes = compiler.attempt(
        at, lambda: votes_of(spec.max_votes, spec.accept_lead, spec.reject_lead, spec.confirm)
    )
    temperature = 0.0 if spec.temperature is None else spec.temperature
    asking = asked(
        compiler, spec, at, None, temperature=temperature, max_tokens=spec.max_tokens or 512
    )
    if asking is None or votes is None or (spec.preset and question is None):
        return None
    return Judge(
        named,
        asking=asking,
        goal=spec.goal or "",
        votes=votes,
        question=question,
        self_test=spec.self_test,
    )


def _criteria(compiler: Compiler, spec: JudgeSpec, at: Path_) -> dict[str, Text]:
    """Return the criteria of a judge by name, those compiled that are templates."""
    if spec.preset:
        return {spec.preset: ""}
    if spec.criterion:
        return {spec.criterion: _criterion(compiler, spec.criterion, (*at, "criterion"))}
    listed = spec.criteria or []
    if isinstance(listed, dict):
        places: list[tuple[str, str, str | int]] = [
            (name, text, name) for name, text in listed.items()
        ]
    else:
        places = [(text, text, i) for i, text in enumerate(listed)]
    return {name: _criterion(compiler, text, (*at, "criteria", key)) for name, text, key in places}


def _criterion(compiler: Compiler, text: str, at: Path_) -> Text:
    """Return a criterion, compiled if it is a template."""
    return compiler.filled(at, text) if "{{" in text or "{%" in text else text


def asked(
    compiler: Compiler,
    spec: Action | JudgeSpec | VoterSpec | ConfidenceSpec | ReasoningSpec,
    at: Path_,
    schema: Any = None,
    **fixed: Any,
) -> Asking | None:
    """Return how a model is asked: the step's own settings, then the document's, then the caller's."""
    defaults = compiler.defaults
    settings = compiler.project.settings
    models = _models(compiler, spec, at)
    if models is None:
        return None
    temperature = spec.temperature if spec.temperature is not None else defaults.get("temperature")
    tokens = spec.max_tokens if spec.max_tokens is not None else defaults.get("max_tokens")
    url = spec.model_url or defaults.get("model_url") or settings.model_url or ""
    key = spec.api_key_env or defaults.get("api_key_env") or ""
    return Asking(
        tuple(models), fixed.get("temperature", temperature), fixed.get("max_tokens", tokens),
        schema, url, key, timeouts=timers(spec.call_timeout or defaults.get("call_timeout")),
    )  # fmt: skip


def _models(
    compiler: Compiler,
    spec: Action | JudgeSpec | VoterSpec | ConfidenceSpec | ReasoningSpec,
    at: Path_,
) -> list[str] | None:
    """Return the models to ask, in order: those of the caller, the step or the document; None with a problem."""
    defaults, settings = compiler.defaults, compiler.project.settings
    models = getattr(spec, "models", None) or ([spec.model] if spec.model else None)
    models = (
        models or defaults.get("models") or ([defaults["model"]] if defaults.get("model") else [])
    )
    if settings.model:
        models = [settings.model]
    if not models:
        compiler.problem(
            at,
            "no model is named; give model: provider:model here, in the document, or with --model",
        )
        return None
    for name in models:
        if ":" not in name:
            compiler.problem(
                (*at, "model"), f"{name!r} is not a model; write provider:model, like openai:gpt-4o"
            )
            return None
        provider = name.partition(":")[0]
        if settings.providers and provider not in settings.providers:
            hint = nearest(provider, settings.providers)
            hint = hint or listed(provider, settings.providers, lead="there are")
            compiler.problem((*at, "model"), f"there is no provider {provider!r}{hint}")
            return None
    return list(models)


def timers(call: float | None) -> Timers:
    """Return the timers of calls that may take `call` seconds; None leaves the usual ones."""
    return _USUAL if call is None else Timers(call, call, call)


_USUAL = Timers()
