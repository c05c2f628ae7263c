"""The fields of loop-node documents, as in the dialect's own project, and the models of their agents.

A field of an agent with a prompt may also be in `params`. Additional fields are `score_scale`, and `timeout`,
`fallback_score` and `timeout_score` of loops, which occur in the dialect's documents but not in its program.

The model is that of the agent, otherwise that of the document (`orchestrator.model`, or `llm`), otherwise that of the
caller. The dialect's own examples set no model for most agents. Agents of OpenAI then use the first model that another
agent of the document names, with a note. Without any model there is an error, unless a file of replies is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ...documents.project import Settings
from ...documents.schema.fields import Identifier, Names, Pause, Seconds
from ...errors import listed, nearest
from ...models.providers.endpoints import PROVIDERS
from ...records.codec import Json
from ..translation import Open

__all__ = [
    "AGENT_FIELDS",
    "IGNORED",
    "MISSING",
    "TYPES",
    "AgentSpec",
    "Chosen",
    "CognitiveSpec",
    "Defaults",
    "ExtractionSpec",
    "LoopNodeDocument",
    "LoopNodeSpec",
    "OrchestratorSpec",
    "SchemaSpec",
    "ScoringSpec",
    "StrategyFields",
    "StructuredSpec",
    "asks_by_prompt",
    "choose",
    "schema_of",
    "text_field",
    "wants_structured_output",
]

REPLIES = "scripted:replies"  # the model of agents whose replies come from a file
_ALIASES = {
    "lmstudio": "lm_studio", "lm-studio": "lm_studio", "openai-compatible": "openai_compatible",
    "openai_compat": "openai_compatible", "custom": "openai_compatible", "google": "gemini", "claude": "anthropic",
}  # fmt: skip


@dataclass(frozen=True)
class Defaults:
    """The provider and model of a document for all its agents, and the first model that an agent names.

    `elsewhere` means that the caller sets the model, `scripted` that the replies come from a file.
    """

    provider: str = ""
    model: str = ""
    other_model: str = ""
    elsewhere: bool = False
    scripted: bool = False

    @classmethod
    def of(cls, value: Mapping[str, Json], settings: Settings) -> Defaults:
        """Return the defaults of a document."""
        places = [value.get("orchestrator"), value.get("llm")]
        values = [place for place in places if isinstance(place, Mapping)]
        model = next((str(p["model"]) for p in values if p.get("model")), "")
        provider = next((str(p["provider"]) for p in values if p.get("provider")), "")
        other_model = next(_models_named(value), "")
        return cls(provider, model, other_model, bool(settings.model), bool(settings.replies))


@dataclass(frozen=True)
class Chosen:
    """A model as `provider:model`, "" if the caller sets it.

    `note` says that it is the model of another agent, `problem` that there is none.
    """

    name: str = ""
    note: str = ""
    problem: str = ""


def _models_named(value: Json) -> Json:
    """Iterate over the models that agents of OpenAI name, in document order."""
    if isinstance(value, Mapping):
        kind, params = str(value.get("type", "")), value.get("params")
        inner = params if isinstance(params, Mapping) else {}
        model = value.get("model") or inner.get("model")
        if kind.startswith("openai") and isinstance(model, str):
            yield model
        for item in value.values():
            yield from _models_named(item)
    elif isinstance(value, list):
        for item in value:
            yield from _models_named(item)


def provider_name(value: str) -> str:
    """Return the name of a provider in Loopwright, "" if there is no such provider."""
    word = value.strip().lower()
    word = _ALIASES.get(word, word)
    return word if word in PROVIDERS else ""


def unknown_provider(value: str) -> str:
    """Return the message for an unknown provider."""
    return f"{value!r} is not a provider{nearest(value, PROVIDERS) or listed(value, PROVIDERS)}"


def choose(kind: str, provider: str, model: str, url: str, defaults: Defaults) -> Chosen:
    """Return the model of an agent."""
    openai = kind.startswith("openai")
    provider_word = provider or ("" if model else defaults.provider)
    # The type `openai-…` names the provider, unless the model is the document's, which may have another.
    if openai and not provider:
        provider_word = provider_word if not model and defaults.model else "openai"
    if not provider_word:
        provider_word = (
            "openai_compatible" if url else "ollama" if kind == "local_llm" else "openai"
        )
    name = provider_name(provider_word)
    if not name:
        return Chosen(provider_word, problem=unknown_provider(provider_word))
    if model or defaults.model:
        return Chosen(f"{name}:{model or defaults.model}")
    if (openai or name == "openai") and defaults.other_model:
        model_name = f"openai:{defaults.other_model}"
        return Chosen(model_name, f"these agents name no model and use {model_name}")
    if defaults.elsewhere or defaults.scripted:
        return Chosen("" if defaults.elsewhere else REPLIES)
    return Chosen(
        problem="has no model; set model: in the agent or in orchestrator, or use --model provider:model"
    )


def _as_branches(value: Json) -> Json:
    """Return the targets of a fork as branches: lists of names."""
    if isinstance(value, list):
        return [[item] if isinstance(item, str) else item for item in value]
    return value


Branches = Annotated[list[list[str]], BeforeValidator(_as_branches)]


class SchemaSpec(Open):
    """The fields of a structured answer: names, and their types in `types` or beside the name."""

    required: Names = Field([])
    optional: dict[str, str] | Names = Field({})
    types: dict[str, str] = Field({})


class StructuredSpec(Open):
    """The structured answer of an agent. In mode `prompt` an answer without data is its text."""

    enabled: bool | None = None
    mode: str = "auto"
    json_schema: dict[str, Json] | None = Field(None, alias="schema")
    strict: bool = False
    coerce_types: bool = True
    require_code_block: bool = False


class OrchestratorSpec(Open):
    """The names of the agents that run, in order."""

    id: Identifier = "workflow"
    strategy: str = ""
    agents: list[str] | None = None
    queue: list[str] | str | None = None  # a text is a label
    model: str | None = None
    provider: str | None = None
    structured_output_defaults: StructuredSpec | None = None


class LoopNodeDocument(Open):
    """A document: an orchestrator and its agents."""

    orchestrator: OrchestratorSpec
    agents: list[dict[str, Json]] = Field(min_length=1)


class AgentSpec(Open):
    """An agent of any type but loop."""

    id: Identifier
    type: str
    prompt: str | None = None
    system_prompt: str | None = None
    model: str | None = None
    llm_model: str | None = None
    provider: str | None = None
    llm_provider: str | None = None
    model_url: str | None = None
    url: str | None = None
    llm_url: str | None = None
    base_url: str | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1)
    timeout: Seconds | None = None
    depends_on: Names = Field([])
    options: list[str] | None = None
    categories: list[str] | None = None
    targets: Branches | None = None
    group: str | None = None
    mode: str | None = None
    max_retries: int | None = Field(None, ge=0)
    retry_delay: Pause | None = None
    decision_key: str | None = None
    routing_map: dict[Json, Names] | None = None
    children: list[Json] | None = None
    scoring_preset: Literal["strict", "moderate", "lenient"] | None = None
    scoring_context: Literal["loop_convergence", "quality", "graphscout", "validation"] | None = (
        None
    )
    evaluation_target: str | None = None
    custom_prompt: str | None = None
    store_structure: Json = None
    structured_output: StructuredSpec | None = None
    custom_weights: dict[str, float] = Field({})
    namespace: str | None = None
    operation: Literal["read", "write"] | None = None
    limit: int | None = Field(None, ge=1, le=100)
    metadata: dict[str, Json] | None = None
    config: dict[str, Json] | None = None


class StrategyFields(Open):
    """One way to find a score."""

    type: str
    patterns: list[str] = Field([])
    key: str = ""
    agents: list[str] = Field([])


class ExtractionSpec(Open):
    """How a score is read."""

    strategies: list[StrategyFields] | None = None
    agreement_fallback: bool = False


class CognitiveSpec(Open):
    """The lessons that are read from the outputs of agents."""

    enabled: bool | None = None
    max_length_per_category: int = Field(300, ge=1)
    extract_patterns: dict[str, Names] = Field({})
    agent_priorities: Json = None


class ScoringSpec(Open):
    """A scoring preset."""

    preset: Literal["strict", "moderate", "lenient"] | None = None
    context: Literal["loop_convergence", "quality", "graphscout", "validation"] | None = None
    custom_weights: dict[str, float] = Field({})


class LoopNodeSpec(Open):
    """A loop over an internal workflow."""

    id: Identifier
    type: Literal["loop"]
    prompt: str | None = None
    depends_on: Names = Field([])
    max_loops: int = Field(5, ge=1, le=1000)
    score_threshold: float = Field(0.8, allow_inf_nan=False)
    score_scale: list[float] | None = Field(None, min_length=2, max_length=2)
    score_extraction_pattern: str | None = None
    score_extraction_key: str | None = None
    score_extraction_config: ExtractionSpec | None = None
    high_priority_agents: Names = Field([])
    scoring: ScoringSpec | None = None
    cognitive_extraction: CognitiveSpec | None = None
    past_loops_metadata: dict[str, Json] | None = None
    persist_across_runs: bool = False
    internal_workflow: dict[str, Json] = Field({})
    timeout: Seconds = 300.0
    fallback_score: float | None = Field(None, ge=0, le=1)
    timeout_score: float | None = Field(None, ge=0, le=1)
    score_missing: Literal["count", "re_ask"] = "count"
    # With `parity` the first score and the last iteration count, as in the dialect's program.
    parity: bool = False

    @model_validator(mode="after")
    def _on_scale(self) -> LoopNodeSpec:
        low, high = self.score_scale or (0.0, 1.0)
        if not low <= self.score_threshold <= high:
            raise PydanticCustomError(
                "threshold",
                "score_threshold: {given} is not between {low} and {high}; write a share such as 0.85, "
                "or set the scale of the scores: score_scale: [0, 100]",
                {"given": f"{self.score_threshold:g}", "low": f"{low:g}", "high": f"{high:g}"},
            )
        return self


# Keys without an effect and without a note: labels, and settings of backends that are not used.
IGNORED = frozenset({
    "orchestrator", "agents", "name", "description", "meta", "metadata", "version", "llm",
    "memory", "memory_config", "memory_preset", "debug", "structured_output_defaults", "params", "depends_on",
    "queue", "strategy",
})  # fmt: skip

AGENT_FIELDS = frozenset(AgentSpec.model_fields)
# The name of the translation by type.
TYPES: Mapping[str, str] = {
    "openai-answer": "answer", "openai-binary": "binary", "openai-classification": "classification",
    "local_llm": "answer", "binary": "rule", "classification": "rule",
    "fork": "fork", "join": "join", "router": "router", "failover": "failover",
    "loop_validator": "validator", "plan_validator": "planned", "validate_and_structure": "structured",
    "memory": "memory", "memory-reader": "memory", "memory-writer": "memory",
}  # fmt: skip
MISSING: Mapping[str, str] = {
    "duckduckgo": "no search engine is connected", "google-search": "no search engine is connected",
    "web_search": "no search engine is connected", "rag": "there is no vector store to search",
    "brain": "its memory of skills needs a separate backend",
    "graph-scout": "a path through agents that is chosen at run time cannot be checked before the run",
    "graph_scout": "a path through agents that is chosen at run time cannot be checked before the run",
    "path_executor": "it runs the plans of graph-scout, which is not supported",
    "invariant_validator": "it checks the execution engine of another program",
    "failing": "it only ever fails", "tool": "no tools are connected",
}  # fmt: skip


# The fields of a structured answer if the document names none.
_DEFAULTS: Mapping[str, SchemaSpec] = {
    "answer": SchemaSpec(
        required=["response"], optional={"confidence": "number", "internal_reasoning": "string"}
    ),
    "binary": SchemaSpec(
        required=["result"],
        optional={"confidence": "number", "reasoning": "string"},
        types={"result": "boolean"},
    ),
    "classification": SchemaSpec(
        required=["category", "confidence"],
        optional={"reasoning": "string", "alternatives": "array"},
        types={"confidence": "number"},
    ),
}
_TYPES = {
    "str": "string", "num": "number", "float": "number", "int": "integer", "bool": "boolean", "list": "array",
    "dict": "object",
}  # fmt: skip
_JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_SCHEMA_KEYS = frozenset({"type", "properties", "$ref", "anyOf", "oneOf", "allOf"})


def wants_structured_output(own: StructuredSpec | None, common: StructuredSpec | None) -> bool:
    """Whether an agent answers with data: it or the document enables this, or it names fields."""
    text = [each.enabled for each in (own, common) if each is not None and each.enabled is not None]
    return text[0] if text else own is not None and own.json_schema is not None


def schema_of(
    kind: str, own: StructuredSpec | None, common: StructuredSpec | None
) -> dict[str, Json]:
    """Return the JSON Schema of an agent's answer: an unchanged schema, or the schema of a list of fields.

    Raises:
        ValidationError: For fields that are not a list of names with their types.
    """
    value = next((e.json_schema for e in (own, common) if e is not None and e.json_schema), None)
    if value is not None and _SCHEMA_KEYS & value.keys():
        return value
    fields = _DEFAULTS[kind] if value is None else SchemaSpec.model_validate(value)
    optional = fields.optional if isinstance(fields.optional, dict) else {}
    optional = optional or dict.fromkeys(fields.optional, "string")
    types = {**optional, **fields.types}
    strict = any(each.strict for each in (own, common) if each is not None)
    properties: dict[str, Json] = {}
    for name in (*fields.required, *optional):
        word = types.get(name, "string").strip().lower()
        word = _TYPES.get(word, word)
        # Models can write any value as text, so an unknown type does not refuse the document.
        properties[name] = {"type": word if word in _JSON_TYPES else "string"}
    return {
        "type": "object",
        "properties": properties,
        "required": list(fields.required),
        "additionalProperties": not strict,
    }


def asks_by_prompt(kind: str, own: StructuredSpec | None, common: StructuredSpec | None) -> bool:
    """Whether only the prompt asks an agent for data, so that no provider enforces it."""
    given = [
        each.mode for each in (own, common) if each is not None and "mode" in each.model_fields_set
    ]
    mode = given[0] if given else "auto"
    return mode == "prompt" or (mode == "auto" and kind == "local_llm")


def text_field(schema: Mapping[str, Json]) -> str:
    """Return the field for the text of a reply without data: `response`, or the only required text."""
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, Mapping) else {}
    required = required if isinstance(required, list) else []
    texts = [
        name
        for name in required
        if isinstance(properties.get(name), Mapping) and properties[name].get("type") == "string"
    ]
    return texts[0] if len(texts) == 1 and "response" not in properties else "response"
