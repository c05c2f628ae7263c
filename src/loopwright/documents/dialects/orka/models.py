"""The model and provider of an agent in a loop-node document.

The model is that of the agent, otherwise that of the document (`orchestrator.model`, or `llm`), otherwise that of the
caller. The dialect's own examples set no model for most agents. Agents of OpenAI then use the first model that another
agent of the document names, with a note. Without any model there is an error, unless a file of replies is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import listed, nearest
from ....models.providers.endpoints import PROVIDERS
from ....records.codec import Json
from ...project import Settings

__all__ = ["Chosen", "Defaults", "choose"]

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
