"""The options of `run` and `resume`, and their checks."""

from __future__ import annotations

import importlib
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast, runtime_checkable

from ..conditions import Budget
from ..errors import ConfigurationError, nearest
from ..journal import Journal
from ..journal.open import open_journal
from ..records.codec import Json
from .run_state import Clock, Listener
from .step import MODEL_NAME, Step
from .text_listeners import OnText, model_call, text_listener

if TYPE_CHECKING:
    from ..models import Models

__all__ = [
    "ResumeLimits",
    "ResumeOptions",
    "RunOptions",
    "StepWithResources",
    "chained",
    "check_names",
    "check_options",
    "journal_of",
    "progress_listeners",
    "with_models",
]


@runtime_checkable
class StepWithResources(Protocol):
    """A step with the objects that it needs, such as a loaded document."""

    @property
    def step(self) -> Step: ...
    @property
    def default_input(self) -> Json: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def resources(self) -> Mapping[str, Any]: ...
    @property
    def source(self) -> Mapping[str, Json]: ...


class ResumeOptions(TypedDict, total=False):
    """The options of `run` that `resume` passes on."""

    budget: Budget | None
    clock: Clock | None
    random: Callable[[], float] | None
    listeners: Sequence[Listener]
    models: Models | None
    model: str
    on_text: OnText | None
    progress: bool | Listener
    resources: Mapping[str, Any] | None
    source: Mapping[str, Json] | None
    accept_changes: bool
    in_doubt: str
    takeover: bool


class ResumeLimits(ResumeOptions, total=False):
    """The options of `resume`, which explains them."""

    max_iterations: int | None
    max_usd: float | None
    max_calls: int | None
    max_total_tokens: int | None
    max_effects: int | None


class RunOptions(ResumeOptions, total=False):
    """The options of `run`, which explains them."""

    journal: Journal | str | None
    run_id: str


def chained(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resources of both, the first before the second."""
    # No copy, which would load resources that no step may need. Nothing is written to it.
    return ChainMap(*(cast("MutableMapping[str, Any]", part) for part in (first, second)))


def progress_listeners(progress: bool | Listener) -> list[Listener]:
    """Return the listeners that show the progress of a run."""
    if progress is True:
        # By name: progress is a layer above the engine, and loads rich or IPython.
        return [importlib.import_module("loopwright.progress").automatic()]
    if progress is False:
        return []
    if not callable(progress) and not hasattr(progress, "opened"):
        raise ConfigurationError(
            f"run: progress: {progress!r:.60} is not a listener; use True, False or one of "
            "loopwright.progress, such as tqdm_bar()"
        )
    return [progress]


def with_models(
    resources: Mapping[str, Any] | None,
    models: Models | None,
    *,
    model: str,
    on_text: OnText | None,
) -> Mapping[str, Any] | None:
    """Return the resources with the models and the text listener of a run."""
    own: dict[str, Any] = {}
    if models is not None:
        if not hasattr(models, "resolve"):
            raise ConfigurationError(
                f"run: models: {models!r:.60} is not a Models; use one, such as Models(…)"
            )
        own["models"] = models
    if model:
        own["model"] = model
    if on_text is not None:
        listener = text_listener(on_text)
        own["on_text"] = lambda path, text: listener(text, model_call(path))
    if not own:
        return resources
    for name in own if resources is not None else ():
        if name in cast("Mapping[str, Any]", resources):
            raise ConfigurationError(f"run: {name}: it is also in resources; remove one of the two")
    # A chain, because a copy would load resources that no step may need.
    return ChainMap(own, cast("MutableMapping[str, Any]", resources)) if resources else own


def check_names(root: Step, resources: Mapping[str, Any] | None) -> None:
    """Raise ConfigurationError for the names of templates and models that this run does not supply."""
    missing = root.unsupplied
    if not missing:
        return
    names = getattr((resources or {}).get("models"), "names", {})
    sentences = [
        f"{sentence}{nearest(name.removeprefix(MODEL_NAME), names) if names else ''}"
        for name, sentence in missing.items()
        if not name.startswith(MODEL_NAME) or name.removeprefix(MODEL_NAME) not in names
    ]
    if sentences:
        raise ConfigurationError("; ".join(sentences))


def journal_of(journal: Journal | str | None) -> tuple[Journal | None, bool]:
    """Return a journal, and whether it was opened here."""
    if isinstance(journal, str):
        return open_journal(journal), True
    if journal is not None and not hasattr(journal, "open"):
        raise ConfigurationError(
            f"journal: {journal!r} is not a journal; use a Journal, a URL such as sqlite:runs.db, "
            "or None"
        )
    return journal, False


def check_options(
    budget: object, in_doubt: object, listeners: Sequence[Listener], resources: object
) -> None:
    """Raise ConfigurationError for an invalid option of `run`."""
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigurationError(
            f"run: budget: {budget!r} is not a Budget; use one, such as Budget(usd=0.5)"
        )
    words = ("suspend", "rerun")
    if in_doubt not in words:
        hint = nearest(str(in_doubt), words)
        raise ConfigurationError(f"run: in_doubt: {in_doubt!r} is neither suspend nor rerun{hint}")
    if resources is not None and not isinstance(resources, Mapping):
        raise ConfigurationError(
            f"run: resources: {resources!r:.60} is not a mapping; use objects by name, such as {{'model': …}}"
        )
    if callable(listeners):
        raise ConfigurationError(f"run: listeners: {listeners!r} is not a list; use a list")
    for listener in listeners:
        if not callable(listener) and not hasattr(listener, "opened"):
            raise ConfigurationError(f"run: listeners: {listener!r} is not a function")
