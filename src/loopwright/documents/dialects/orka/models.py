"""Which model an agent of a loop-node document asks, and where.

What the agent names wins, then what the document names for all (`orchestrator.model`, or `llm`), then what the caller
gives. That dialect's own examples name no model for most agents: those of OpenAI then ask the model that another one of
the document names first, with a note. What nobody names is an error, unless a file of replies answers in place of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import listed, nearest
from ....models.endpoints import PROVIDERS
from ...project import Settings

__all__ = ["Chosen", "Defaults", "choose"]

REPLIES = "scripted:replies"  # the model of agents that a file of replies answers for
_ALIASES = {
    "lmstudio": "lm_studio", "lm-studio": "lm_studio", "openai-compatible": "openai_compatible",
    "openai_compat": "openai_compatible", "custom": "openai_compatible", "google": "gemini", "claude": "anthropic",
}  # fmt: skip


@dataclass(frozen=True)
class Defaults:
    """What a document names for all of its agents, and the first model that one of them names.

    `elsewhere` says that the caller names the model, `scripted` that no model is asked at all.
    """

    provider: str = ""
    model: str = ""
    named: str = ""
    elsewhere: bool = False
    scripted: bool = False

    @classmethod
    def of(cls, value: Mapping[str, Any], settings: Settings) -> Defaults:
        """Return the defaults of a document."""
        places = [value.get("orchestrator"), value.get("llm")]
        given = [place for place in places if isinstance(place, Mapping)]
        model = next((str(p["model"]) for p in given if p.get("model")), "")
        provider = next((str(p["provider"]) for p in given if p.get("provider")), "")
        named = next(_named(value), "")
        return cls(provider, model, named, bool(settings.model), bool(settings.replies))


@dataclass(frozen=True)
class Chosen:
    """A model as `provider:model`, "" if the caller names it.

    `note` says that another agent named it, `problem` that there is none.
    """

    name: str = ""
    note: str = ""
    problem: str = ""


def _named(value: Any) -> Any:
    """Iterate over the models that agents of OpenAI name, in document order."""
    if isinstance(value, Mapping):
        kind, params = str(value.get("type", "")), value.get("params")
        inner = params if isinstance(params, Mapping) else {}
        model = value.get("model") or inner.get("model")
        if kind.startswith("openai") and isinstance(model, str):
            yield model
        for item in value.values():
            yield from _named(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)


def provider_name(given: str) -> str:
    """Return a provider by the name that is used here, "" if it is not known."""
    word = given.strip().lower()
    word = _ALIASES.get(word, word)
    return word if word in PROVIDERS else ""


def unknown_provider(given: str) -> str:
    """Return what is wrong with a provider's name."""
    return f"{given!r} is no provider{nearest(given, PROVIDERS) or listed(given, PROVIDERS)}"


def choose(kind: str, provider: str, model: str, url: str, defaults: Defaults) -> Chosen:
    """Return the model of an agent."""
    openai = kind.startswith("openai")
    given = provider or ("" if model else defaults.provider)
    if openai and not provider:
        given = given if not model and defaults.model else "openai"
    if not given:
        given = "openai_compatible" if url else "ollama" if kind == "local_llm" else "openai"
    name = provider_name(given)
    if not name:
        return Chosen(given, problem=unknown_provider(given))
    if model or defaults.model:
        return Chosen(f"{name}:{model or defaults.model}")
    if (openai or name == "openai") and defaults.named:
        asked = f"openai:{defaults.named}"
        return Chosen(asked, f"no model is named for these agents, which ask {asked}")
    if defaults.elsewhere or defaults.scripted:
        return Chosen("" if defaults.elsewhere else REPLIES)
    return Chosen(
        problem="names no model; give model: in the agent or in orchestrator, or --model provider:model"
    )
