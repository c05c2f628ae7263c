"""Prompts and judges of documents, the settings of their model calls, and the models of a run."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import (
    ConfigurationError,
    DocumentError,
    Problem,
    StepError,
    TemplateError,
    listed,
    nearest,
)
from ...evaluators.answers import Answer, answer
from ...evaluators.judge import (
    MOST,
    TOKENS,
    Judge,
    JudgeTools,
    measured_votes,
    votes_of,
    with_votes,
)
from ...evaluators.judge_questions import JudgeQuestion, Sentence, preset_question
from ...models import (
    Model,
    Models,
    Redactor,
    Reply,
    ScriptedModel,
    Timers,
    price_of,
    read_prices,
    secrets_in,
)
from ...models.protocol import MAX_TOOL_CALLS, File
from ...models.providers.endpoints import PROVIDER_NAMES, origin_of, owner_of, provider_of
from ...models.registry import MODEL_VARIABLE, model_of_environment, split_model
from ...prompts.prompt import Prompt, Text, file_of
from ...prompts.settings import Conversation, PromptSettings
from ...prompts.tool_prompt import MAX_ROUNDS, Selected, ToolPrompt
from ...records.codec import Json
from ...templates.variables import TemplatedValue
from ...tools.base import Tool
from ...tools.mcp import McpServer
from ..project import SCRIPTED, Project, Settings
from ..schema.document import Action, Document
from ..schema.evaluators import ConfidenceSpec, JudgeSpec, PairJudgeSpec
from ..schema.extensions import VoterSpec
from ..schema.fields import SETTINGS, CacheSpec
from ..schema.models import ConversationSpec, ReasoningSpec
from ..schema.traverse import models_in, variables_in
from ..steps import inside
from ..yaml.reader import Location
from .compilation import Compilation, extension
from .tools import resolve_tools

if TYPE_CHECKING:
    from ...evaluators.pairs import PairJudge

__all__ = [
    "compile_judge",
    "compile_pair_judge",
    "compile_prompt",
    "compile_settings",
    "models_alone",
    "resources",
    "timers",
]


def compile_prompt(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> Prompt | None:
    """Compile a prompt; None if it has problems."""
    result = _reading(compilation, spec, at)
    reading, kind = result or (answer("text"), Prompt)
    # The instruction is part of the template, so that it is part of the recorded request.
    instruction = spec.prompt or ""
    if reading.instruction:
        instruction = f"{instruction.rstrip()}\n\n{reading.instruction}"
    text = compilation.template((*at, "prompt"), instruction)
    system = compilation.template((*at, "system"), spec.system or "")
    output = spec.output if isinstance(spec.output, dict) else {}
    schema, text_field = output.get("schema"), output.get("otherwise", "")
    if spec.output is not None and not (
        isinstance(schema, dict)
        and isinstance(text_field, str)
        and output.keys() <= {"schema", "otherwise"}
    ):
        what = "the output of a prompt must be {schema: JSON_SCHEMA}, or with otherwise: FIELD too"
        compilation.problem((*at, "output"), what)
        result = schema = None
    settings = compile_settings(compilation, spec, at, schema)
    if settings is not None and text_field:
        settings = replace(settings, text_field=text_field)
    tools = _prompt_tools(compilation, spec, at)
    files = _files(compilation, spec, at)
    if result is None or settings is None or tools is None:
        return None
    read = None if reading.kind == "text" else reading.read
    if read is not None and text_field:
        read = functools.partial(_read_or_data, read)
    if tools:
        max_rounds = spec.max_tool_rounds or MAX_ROUNDS
        prompt: Prompt = ToolPrompt(
            text,
            tools,
            max_rounds=max_rounds,
            name=name,
            system=system,
            model_settings=settings,
            read=read,
            files=files,
            files_root=compilation.folder,
        )
    else:
        prompt = kind(
            text,
            name=name,
            system=system,
            model_settings=settings,
            conversation=_conversation(compilation, spec, at),
            read=read,
            files=files,
            files_root=compilation.folder,
        )
    # The output depends on the reading too. A prompt that returns plain text keeps its own fingerprint.
    if read is not None:
        prompt.reading = (reading.kind, reading.instruction)
    return prompt


def _read_or_data(read: Callable[[Reply], Json], reply: Reply) -> Json:
    try:
        return read(reply)
    except StepError:
        return reply.data


def _files(compilation: Compilation, spec: Action, at: Location) -> list[File | TemplatedValue]:
    """Return the files of a prompt; a file that is named without a template is checked now."""
    files: list[File | TemplatedValue] = []
    for i, name in enumerate(spec.files or []):
        place = (*at, "files", i)
        if "{{" in name or "{%" in name:
            template = compilation.template(place, name)
            # Such a template is an address, whatever its values are.
            if not name.startswith(("https://", "http://")):
                template = _confined(template, compilation.folder, compilation.sent(name, place))
            files.append(template)
            continue
        file = compilation.attempt(place, functools.partial(file_of, name), own=True)
        if file is None:
            continue
        # A missing file is reported before any model is called.
        if file.path and not compilation.sent(name, place).is_file():
            compilation.problem(place, f"{name!r} is not a file in the document's folder", own=True)
        files.append(file)
    return files


def _confined(template: TemplatedValue, folder: Path, allowed: Path) -> TemplatedValue:
    """Return a template of a path or address that refuses paths outside the folder that was approved."""

    def path(values: Json) -> Json:
        name = template.fill(values)
        file = file_of(name)
        if file.path and inside(folder, str(file.path), allowed) is None:
            raise TemplateError(f"the file {name!r} is outside {allowed}")
        return name

    return replace(template, fill=path)


def _is_carried(spec: Action) -> bool:
    value = spec.conversation
    return value.carry if isinstance(value, ConversationSpec) else value == "carried"


def _conversation(compilation: Compilation, spec: Action, at: Location) -> Conversation | None:
    """Return the limits of a carried conversation; None without one, or with problems."""
    if not _is_carried(spec):
        return None
    value = spec.conversation
    limits = value.model_dump(exclude={"carry"}) if isinstance(value, ConversationSpec) else {}
    return compilation.attempt((*at, "conversation"), lambda: Conversation(**limits))


def _prompt_tools(
    compilation: Compilation, spec: Action, at: Location
) -> list[Tool | McpServer | Selected] | None:
    """Return the tools of a prompt; None if its tool settings have problems."""
    tools = _own_tools(compilation, spec, at)
    if tools and _is_carried(spec):
        # The messages of tool calls are not part of a carried conversation.
        message = "a prompt with tools cannot carry its conversation; remove tools or conversation"
        compilation.problem((*at, "conversation"), message)
        return None
    return tools


def _own_tools(
    compilation: Compilation, spec: Action | JudgeSpec, at: Location
) -> list[Tool | McpServer | Selected] | None:
    """Return the tools that a prompt or a judge names; None if there are problems."""
    for key in ("max_tool_rounds", "max_tool_calls_per_reply"):
        if getattr(spec, key) is not None and not spec.tools:
            compilation.problem((*at, key), f"{key} needs tools")
            return None
    return resolve_tools(compilation, spec.tools or [], (*at, "tools"))


def _reading(
    compilation: Compilation, spec: Action, at: Location
) -> tuple[Answer, Callable[..., Prompt]] | None:
    """Return how the reply of a prompt is read, and what makes the prompt; None with problems."""
    kind = spec.answer or "text"
    if spec.output is not None and kind not in ("text", "binary", "classification"):
        compilation.problem(
            (*at, "answer"), f"answer: {kind} and output both read the reply; keep one"
        )
        return None
    for name, owner in (("options", "classification"), ("preset", "criteria")):
        if getattr(spec, name) is not None and kind != owner:
            compilation.problem((*at, name), f"{name} belong to answer: {owner}, not to {kind}")
            return None
    if kind == "criteria":
        result: tuple[Answer, Callable[..., Prompt]] | None
        result = extension("criteria")(compilation, spec, at)
        return result
    return answer(kind, spec.options or ()), Prompt


def compile_judge(compilation: Compilation, spec: JudgeSpec, at: Location) -> Judge | None:
    """Compile a judge; None if it has problems."""
    keys = [n for n in ("criterion", "criteria", "preset") if getattr(spec, n)]
    if len(keys) != 1:
        problem = f"has {' and '.join(keys)}" if keys else "has none"
        compilation.problem(
            at, f"a judge needs one of criterion, criteria and preset, but {problem}"
        )
        return None
    question: JudgeQuestion | None = extension("yes_no")() if spec.style == "yes_no" else None
    if spec.impossible:
        if spec.preset or spec.style == "yes_no":
            compilation.problem(
                (*at, "impossible"), "a preset and style yes_no have no such answer; use criteria"
            )
            return None
        question = Sentence(impossible=True)
    if spec.preset:
        name, weights = spec.preset, spec.weights
        question = compilation.attempt((*at, "preset"), lambda: preset_question(name, weights))
    criteria = _criteria(compilation, spec, at)
    votes = compilation.attempt(
        at, lambda: votes_of(spec.max_votes, spec.accept_lead, spec.reject_lead, spec.confirm)
    )
    # Not the document's temperature: it is meant for prompts, and a verdict should not vary.
    temperature = 0.0 if spec.temperature is None else spec.temperature
    prompt_settings = compile_settings(
        compilation, spec, at, None, temperature=temperature, cap=TOKENS
    )
    tools = _own_tools(compilation, spec, at)
    if prompt_settings is None or votes is None or (spec.preset and question is None):
        return None
    if tools is None:
        return None
    judge_tools = JudgeTools.of(
        tools,
        spec.max_tool_rounds or MAX_ROUNDS,
        spec.max_tool_calls_per_reply or MAX_TOOL_CALLS,
    )
    weights = None if spec.preset else spec.weights
    judge = compilation.attempt(
        (*at, "weights"),
        lambda: Judge(
            criteria,
            model_settings=prompt_settings,
            goal=spec.goal or "",
            votes=votes,
            question=question,
            self_test=spec.self_test,
            weights=weights,
            tools=judge_tools,
        ),
    )
    return None if judge is None else _as_measured(compilation, spec, judge, at)


def _as_measured(
    compilation: Compilation, spec: JudgeSpec, judge: Judge, at: Location
) -> Judge | None:
    """Return a judge with the voting rule of its measurement; None if it has problems."""
    name = spec.measured
    if name is None:
        if spec.alpha is not None or spec.accept_unattainable:
            key = "alpha" if spec.alpha is not None else "accept_unattainable"
            compilation.problem((*at, key), f"{key} needs measured, the report of measure judge")
        return judge
    place = (*at, "measured")
    if spec.accept_lead > 1 or spec.reject_lead > 1 or spec.confirm:
        compilation.problem(
            place, "measured decides the leads; remove accept_lead, reject_lead and confirm"
        )
        return None
    report = compilation.json_file(name, place)
    if report is None:
        return None
    alpha, most = spec.alpha or 0.05, spec.max_votes or MOST
    rule = compilation.attempt(
        place,
        lambda: measured_votes(
            report,
            judge.identity,
            alpha=alpha,
            most=most,
            accept=spec.accept_unattainable,
            where=name,
        ),
    )
    return None if rule is None else with_votes(judge, rule.votes, rule.unattainable)


def compile_pair_judge(
    compilation: Compilation, spec: PairJudgeSpec, at: Location
) -> PairJudge | None:
    """Compile the judge of a duel; None if it has problems."""
    from ...evaluators.pairs import PairJudge, check_measured

    temperature = 0.0 if spec.temperature is None else spec.temperature
    settings = compile_settings(compilation, spec, at, None, temperature=temperature, cap=TOKENS)
    if settings is None:
        return None
    criterion = _criterion(compilation, spec.criterion, (*at, "criterion"))
    judge = PairJudge(criterion, model_settings=settings, goal=spec.goal or "")
    if (name := spec.measured) is not None:
        place = (*at, "measured")
        report = compilation.json_file(name, place)
        if report is None:
            return None
        compilation.attempt(place, lambda: check_measured(report, judge.identity, where=name))
    return judge


def _criteria(compilation: Compilation, spec: JudgeSpec, at: Location) -> dict[str, Text]:
    """Return the criteria of a judge by name; templates are compiled."""
    if spec.preset:
        return {spec.preset: ""}
    if spec.criterion:
        return {spec.criterion: _criterion(compilation, spec.criterion, (*at, "criterion"))}
    criteria = spec.criteria or []
    if isinstance(criteria, dict):
        places: list[tuple[str, str, str | int]] = [
            (name, text, name) for name, text in criteria.items()
        ]
    else:
        places = [(text, text, i) for i, text in enumerate(criteria)]
    return {
        name: _criterion(compilation, text, (*at, "criteria", key)) for name, text, key in places
    }


def _criterion(compilation: Compilation, text: str, at: Location) -> Text:
    """Return a criterion, compiled if it is a template."""
    return compilation.template(at, text) if "{{" in text or "{%" in text else text


def compile_settings(
    compilation: Compilation,
    spec: Action | JudgeSpec | PairJudgeSpec | VoterSpec | ConfidenceSpec | ReasoningSpec,
    at: Location,
    schema: Json = None,
    *,
    cap: int | None = None,
    **fixed: Json,
) -> PromptSettings | None:
    """Return the settings of model calls: those of the step, then of the document, then of the caller.

    `cap` replaces the document's limit of tokens for a step that sets none.
    """
    defaults = compilation.defaults
    settings = compilation.project.settings
    models = _models(compilation, spec, at)
    if models is None:
        return None
    temperature = spec.temperature if spec.temperature is not None else defaults.get("temperature")
    tokens = spec.max_tokens if spec.max_tokens is not None else defaults.get("max_tokens")
    url = spec.model_url or defaults.get("model_url") or settings.model_url or ""
    # With scripted replies no key is sent, so there is nothing to approve.
    key = spec.api_key_env or defaults.get("api_key_env") or ""
    if key and settings.replies is None:
        place: Location = (*at, "api_key_env") if spec.api_key_env else at
        compilation.attempt(place, lambda: _record_key(compilation, key, url, models))
    own = {name: value for name in SETTINGS if (value := getattr(spec, name)) is not None}
    more = {n: v for n in SETTINGS if (v := own.get(n, defaults.get(n))) is not None}
    # The document's `accept` is for texts: half a JSON value or half a verdict is useless.
    if spec.on_cutoff is None and (cap or schema) and more.get("on_cutoff") == "accept":
        del more["on_cutoff"]
    if isinstance(more.get("cache"), CacheSpec):
        more["cache"] = more["cache"].model_dump()
    result = compilation.attempt(
        at,
        lambda: PromptSettings(
            tuple(models),
            temperature=fixed.get("temperature", temperature),
            max_tokens=spec.max_tokens if cap else tokens,
            schema=schema,
            base_url=url,
            api_key_env=key,
            timeouts=timers(
                spec.call_timeout or defaults.get("call_timeout"),
                spec.answer_timeout or defaults.get("answer_timeout"),
            ),
            headers=more.pop("extra_headers", {}),
            on_cutoff=more.pop("on_cutoff", ""),
            cache=more.pop("cache", None),
            sampling=more,
            cap=cap,
            max_tool_calls_per_reply=getattr(spec, "max_tool_calls_per_reply", None)
            or MAX_TOOL_CALLS,
        ),
    )
    if result is None:
        return None
    compilation.project.asks.append((compilation.source.problem(at, ""), result))
    if result.cache is not None:
        from ...models.cache import NEVER_KEPT, Caching  # few documents have one

        caching = Caching.of(result.cache)
        if caching.where != "off" and not caching.keeps(result.temperature, result.sampling):
            what = f"no reply can be kept, {NEVER_KEPT}"
            compilation.project.notes.append(
                compilation.source.problem(at, what, code="cache_unused")
            )
    return result


def _record_key(compilation: Compilation, key: str, url: str, models: list[str]) -> None:
    """Record the host that receives a key, for the approval. A provider's own key needs no approval.

    Raises:
        ConfigurationError: If a provider's own key would be sent to another host.
    """
    for name in models:
        provider = provider_of(name)
        address = url or (provider.base_url if provider is not None else "")
        if not address:
            continue  # an unknown provider is reported elsewhere
        place, owner = origin_of(address), owner_of(key)
        if owner is None:
            compilation.project.keys.append(f"{key} to {place}")
        # A document of somebody else could otherwise send the user's key to its own server.
        elif place != origin_of(owner.base_url):
            raise ConfigurationError(
                f"{key} belongs to {origin_of(owner.base_url)} and is not sent to {place}; store that "
                "endpoint's key in another variable"
            )


def _models(
    compilation: Compilation,
    spec: Action | JudgeSpec | PairJudgeSpec | VoterSpec | ConfidenceSpec | ReasoningSpec,
    at: Location,
) -> list[str] | None:
    """Return the models in order: those of the caller, the step or the document; None if there are problems."""
    defaults, settings = compilation.defaults, compilation.project.settings
    models = getattr(spec, "models", None) or ([spec.model] if spec.model else None)
    models = (
        models or defaults.get("models") or ([defaults["model"]] if defaults.get("model") else [])
    )
    # The caller's model replaces those of every step: `--model` must reach judges and voters too.
    if settings.model:
        models = [settings.model]
    if not models and settings.replies is not None:
        models = [SCRIPTED]
    if not models and (own := settings.environ.get(MODEL_VARIABLE, "").strip()):
        models = [own]
    # To find further problems in the rest of the document.
    if not models and compilation.gaps.head:
        return [SCRIPTED]  # a head with problems can have set one
    if not models:
        compilation.problem(
            at,
            "no model is set; set model: provider:model here or in the document, use --model, or set "
            f"{MODEL_VARIABLE} in the environment",
        )
        return None
    for name in models:
        if problem := _problem_of_model(name, settings.providers):
            wrong = Problem(compilation.source.file, 0, 0, "", f"--model: {problem}")
            if not settings.model:
                of_step = getattr(spec, "models", None) or spec.model
                of_document: Location = ("model",) if defaults.get("model") else ("models",)
                place = (*at, "model") if of_step else of_document
                wrong = compilation.source.problem(place, problem)
            # Every step receives the model of the caller or of the document; one report is enough.
            if wrong not in compilation.project.problems:
                compilation.project.problems.append(wrong)
            return None
    return list(models)


def _problem_of_model(name: str, providers: Sequence[str] | None) -> str:
    """Return the problem of the name of a model, or ""."""
    providers = PROVIDER_NAMES if providers is None else providers
    provider, colon, _ = name.partition(":")
    if not colon:
        return f"{name!r} is not a model; write provider:model, like openai:gpt-4o"
    if not providers or provider in providers:
        return ""
    hint = nearest(provider, providers) or listed(provider, providers, lead="there are")
    return f"the provider {provider!r} is not available{hint}"


def timers(call: float | None, answer: float | None = None) -> Timers:
    """Return the time limits of one call and of one answer with all its calls, in seconds; None is the default."""
    # A single call cannot take longer than the answer that it belongs to.
    if answer is not None:
        call = min(answer, call or answer)
    return _DEFAULT_TIMERS if call is None else Timers(call, call, call, answer)


_DEFAULT_TIMERS = Timers()


def resources(document: Document, settings: Settings, project: Project) -> dict[str, Json]:
    """Return the resources for `run(resources=…)`; problems are added to the project."""
    prices: dict[str, Json] = {}
    for item in project.documents.values():
        prices |= {
            name: value if isinstance(value, str) else value.model_dump()
            for name, value in item.prices.items()
        }
    named = {name for item in project.documents.values() for name in variables_in(item)}
    # Also the variables that the document passes on: a command may print them.
    redactor = Redactor(secrets_in(settings.environ, named))
    try:
        model = _model(settings, named)
        # Scripted replies cost nothing, so they need no price.
        if settings.replies is None:
            _priced(document, settings, project, prices)
        result = Models(model, prices=prices, transcript=_transcript(settings), redactor=redactor)
    except ConfigurationError as error:
        project.problems.append(Problem(settings.replies or "", 0, 0, "", str(error)))
        return {}
    except DocumentError as error:
        project.problems += error.problems
        return {}
    scripted = SCRIPTED if settings.replies is not None else ""
    default = settings.model or document.model or (document.models or [scripted])[0]
    return {
        "models": result,
        "model": default,
        **({"redactor": redactor} if redactor else {}),
        **({"cache": settings.cache} if settings.cache else {}),
    }


def models_alone(settings: Settings) -> dict[str, Json]:
    """Return the resources for `run(resources=…)` of a Python step, which has no document.

    Raises:
        ConfigurationError, DocumentError: for replies that cannot be read.
    """
    redactor = Redactor(secrets_in(settings.environ))
    models = Models(_model(settings), transcript=_transcript(settings), redactor=redactor)
    scripted = SCRIPTED if settings.replies is not None else ""
    return {
        "models": models,
        "model": settings.model or scripted,
        "model_url": settings.model_url or "",
    }


def _model(settings: Settings, named: Collection[str] = ()) -> Model:
    """Return the model: scripted, or a provider's with the keys of providers and those in `named`."""
    if settings.replies is not None:
        try:
            text = Path(settings.replies).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            wording = f"cannot be read: {why}; --replies expects a file of scripted replies"
            raise DocumentError([Problem(settings.replies, 0, 0, "", wording)]) from error
        return ScriptedModel(text, file=settings.replies)
    return model_of_environment(settings.environ, named, allowed=settings.allowed_hosts)


def _priced(
    document: Document, settings: Settings, project: Project, prices: Mapping[str, Json]
) -> None:
    """Report a budget in dollars over a model whose price is unknown."""
    capped = settings.max_usd is not None or (document.budget and document.budget.usd is not None)
    # Without a price the budget would never end the run.
    if not capped and not any(loop_capped(d) for d in project.documents.values()):
        return
    stated = read_prices(prices)
    names = {name for d in project.documents.values() for name in models_in(d)}
    if settings.model:
        names = {settings.model}
    for name in sorted(names):
        provider, model = split_model(name)
        own = document.model_url or settings.model_url or ""
        if price_of(provider, model, stated, base_url=own) is None:
            source = next(iter(project.sources.values()))
            what = (
                f"a budget in dollars needs the price of {name}, which is unknown; state it as "
                f"prices: {{{model}: {{input: USD per million tokens, output: …}}}}, or free"
            )
            project.problems.append(source.problem(("prices",), what))


def loop_capped(document: Document) -> bool:
    """Return whether a loop of a document has a budget in dollars."""
    # A search in the JSON covers conditions at every depth, in each of their forms.
    return '"usd"' in json.dumps(document.model_dump(mode="json", exclude_unset=True), default=str)


def _transcript(settings: Settings) -> Callable[[dict[str, Json]], None] | None:
    if settings.transcript is None:
        return None
    path = Path(settings.transcript)

    def write(record: dict[str, Json]) -> None:
        # Opened for each call, so that the transcript is complete after a crash.
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write
