"""What a document's steps need to run: models with their prices, a transcript."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..codec import Json
from ..errors import ConfigurationError, DocumentError, Problem
from ..models import Model, Models, ProviderModel, ScriptedModel, price_of, read_prices
from ..prompts import split_model
from .walking import models_in

if TYPE_CHECKING:
    from .loading import Project, Settings
    from .native import Document

__all__ = ["models_alone", "resources"]

_KEY_MARKS = ("_API_KEY", "_KEY", "_TOKEN")


def resources(document: Document, settings: Settings, project: Project) -> dict[str, Any]:
    """Return what goes to `run(resources=…)`; what is wrong becomes problems of the project."""
    prices: dict[str, Any] = {}
    for item in project.documents.values():
        prices |= {
            name: value if isinstance(value, str) else value.model_dump()
            for name, value in item.prices.items()
        }
    try:
        model = _model(settings)
        if settings.replies is None:
            _priced(document, settings, project, prices)
        found = Models(model, prices=prices, transcript=_transcript(settings))
    except ConfigurationError as error:
        project.problems.append(Problem(settings.replies or "", 0, 0, "", str(error)))
        return {}
    except DocumentError as error:
        project.problems += error.problems
        return {}
    default = settings.model or document.model or (document.models or [""])[0]
    return {"models": found, "model": default}


def models_alone(settings: Settings) -> dict[str, Any]:
    """Return what goes to `run(resources=…)` for a step of Python, which no document describes.

    Raises:
        ConfigurationError, DocumentError: for replies that cannot be read.
    """
    models = Models(_model(settings), transcript=_transcript(settings))
    return {"models": models, "model": settings.model or "", "model_url": settings.model_url or ""}


def _model(settings: Settings) -> Model:
    if settings.replies is not None:
        try:
            text = Path(settings.replies).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            said = f"cannot be read: {why}; --replies names a file of scripted replies"
            raise DocumentError([Problem(settings.replies, 0, 0, "", said)]) from error
        return ScriptedModel(text, file=settings.replies)
    keys = {k: v for k, v in settings.environ.items() if k.endswith(_KEY_MARKS) and v}
    return ProviderModel(keys, allowed=settings.allowed_hosts)


def _priced(
    document: Document, settings: Settings, project: Project, prices: Mapping[str, Any]
) -> None:
    """Refuse a cap in dollars over a model whose price nobody knows."""
    capped = settings.max_usd is not None or (document.budget and document.budget.usd is not None)
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
                f"a cap in dollars needs the price of {name}, which is unknown; state it as "
                f"prices: {{{model}: {{input: USD per million tokens, output: …}}}}, or free"
            )
            project.problems.append(source.problem(("prices",), what))


def loop_capped(document: Document) -> bool:
    """Whether a loop of a document has a cap in dollars."""
    return '"usd"' in json.dumps(document.model_dump(mode="json", exclude_unset=True), default=str)


def _transcript(settings: Settings) -> Callable[[dict[str, Json]], None] | None:
    if settings.transcript is None:
        return None
    path = Path(settings.transcript)

    def write(record: dict[str, Json]) -> None:
        with path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write
