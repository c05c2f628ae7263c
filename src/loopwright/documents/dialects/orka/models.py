"""Which model an agent of a loop-node document asks, and where.

What the agent names wins, then what the document names for all (`orchestrator.model`, or `llm`), then what the caller
gives. That dialect's own examples name no model for most agents: those of OpenAI then ask the model that another one of
the document names first, with a note. What nobody names is an error, unless a file of replies answers in place of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import listed, nearest
from ....models.endpoints import PROVIDERS
from ....records.codec import Json
from ...project import Settings

__all__ = ["Chosen", "Defaults", "choose"]

REPLIES = "scripted:replies"  # the model of agents that a file of replies answers for
_ALIASES = {
    "lmstudio": "lm_studio", "lm-studio": "lm_studio", "openai-compatible": "openai_compatible",
    "openai_compat": "openai_compatible", "custom": "openai_compatible", "google": "gemini", "claude": "anthropic",
}  # fmt: skip


@dataclass(frozen=True)
class Defaults:
    """The provider and model of a document for all its agents, and the first model that an agent names.

    `elsewhere` says that the caller names the model, `scripted` that no model is asked at all.
    """

    provider: str = ""
    model: str = ""
    named: str = ""
    elsewhere: bool = False
    scripted: bool = False

    @classmethod
    def of(cls, value: Mapping[str, Json], settings: Settings) -> Defaults:
        """Return the defaults of a document."""
        places = [value.get("orchestrator"), value.get("llm")]
        values = [place for place in places if isinstance(place, Mapping)]
        model = next((str(p["model"]) for p in values if p.get("model")), "")
        provider = next((str(p["provider"]) for p in values if p.get("provider")), "")
        named = next(_models_named(value), "")
        return cls(provider, model, named, bool(settings.model), bool(settings.replies))


@dataclass(frozen=True)
class Chosen:
    """A model as `provider:model`, "" if the caller names it.

    `note` says that another agent named it, `problem` that there is none.
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
    value = provider or ("" if model else defaults.provider)
    if openai and not provider:
        value = value if not model and defaults.model else "openai"
    if not value:
        value = "openai_compatible" if url else "ollama" if kind == "local_llm" else "openai"
    name = provider_name(value)
    if not name:
        return Chosen(value, problem=unknown_provider(value))
    if model or defaults.model:
        return Chosen(f"{name}:{model or defaults.model}")
    if (openai or name == "openai") and defaults.named:
        asked = f"openai:{defaults.named}"
        return Chosen(asked, f"these agents name no model and use {asked}")
    if defaults.elsewhere or defaults.scripted:
        return Chosen("" if defaults.elsewhere else REPLIES)
    return Chosen(
        problem="has no model; set model: in the agent or in orchestrator, or use --model provider:model"
    )
