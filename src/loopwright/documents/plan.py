"""What a document would run, told before it does: the answer of `check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..codec import Json
from ..conditions import CEILING
from ..loop import DEFAULT_LIMIT
from .each import MOST_ITEMS
from .native import Action, CheckSpec, Document, EvaluateSpec, LoopSpec, StepSpec
from .walking import condition_limit, evaluators, inner_actions

if TYPE_CHECKING:
    from .loading import Loaded

__all__ = ["plan"]


def plan(loaded: Loaded) -> dict[str, Json]:
    """Return steps in order, models, commands, Python functions, hosts, environment names, bounds and calls."""
    documents = list(loaded.documents.values())
    root = documents[0]
    by_name = {d.name: d for d in documents}
    found: dict[str, list[str]] = {k: [] for k in ("models", "commands", "python", "hosts", "environment")}
    for document in documents:
        _collect(document, found)
    return {
        "name": loaded.name,
        "steps": [_described(step) for step in root.steps],
        **{key: list(dict.fromkeys(values)) for key, values in found.items()},
        "documents": [str(name) for name in by_name],
        "bounds": _bounds(loaded, root),
        "worst_case_calls": sum(_calls(step, loaded, 1) for step in root.steps),
        "notes": [str(note) for note in loaded.notes],
    }


def _collect(document: Document, found: dict[str, list[str]]) -> None:
    for model in (document.model, *(document.models or ())):
        if model:
            found["models"].append(model)
    for action in (a for step in document.steps for a in _all(step)):
        found["models"] += [m for m in (action.model, *(action.models or ())) if m]
        if action.shell is not None:
            found["commands"].append(_command(action.shell))
        if action.python is not None:
            found["python"].append(action.python)
        found["environment"] += list(action.env)
        if action.loop is not None:
            _collect_loop(action.loop, found)
        if action.consensus is not None:
            found["models"] += [v.model for v in action.consensus.voters if v.model]
    for url in (document.model_url, *(a.model_url for s in document.steps for a in _all(s))):
        if url:
            found["hosts"].append(urlsplit(url).hostname or url)


def _collect_loop(loop: LoopSpec, found: dict[str, list[str]]) -> None:
    for evaluator in evaluators(loop):
        for check in _checks(evaluator):
            if check.command is not None:
                found["commands"].append(_command(check.command))
            if check.python is not None:
                found["python"].append(check.python)
        if evaluator.score is not None and evaluator.score.tests is not None:
            found["commands"].append(_command(evaluator.score.tests))
        if evaluator.python is not None:
            found["python"].append(evaluator.python)
        if evaluator.judge is not None and not isinstance(evaluator.judge, str):
            judge = evaluator.judge
            found["models"] += [m for m in (judge.model, *(judge.models or ())) if m]
    if loop.adapt is not None and not isinstance(loop.adapt, str) and loop.adapt.python:
        found["python"].append(loop.adapt.python)


def _checks(spec: EvaluateSpec) -> Iterator[CheckSpec]:
    if spec.check is not None:
        yield spec.check
    yield from spec.checklist or ()


def _command(command: Any) -> str:
    return command if isinstance(command, str) else " ".join(command)


def _all(action: Action) -> Iterator[Action]:
    yield action
    for inner in inner_actions(action):
        yield from _all(inner)


def _described(step: StepSpec) -> dict[str, Json]:
    row: dict[str, Json] = {"name": step.name, "kind": step.kind}
    if step.needs:
        row["needs"] = step.needs
    if step.if_:
        row["if"] = step.if_
    if step.loop is not None:
        row["limit"] = condition_limit(step.loop)
    if step.each is not None:
        row["limit"] = step.each.max_items or MOST_ITEMS
    for kind in ("python", "workflow"):
        if getattr(step, kind):
            row[kind] = getattr(step, kind)
    if step.shell is not None:
        row["shell"] = _command(step.shell)
    return row


def _bounds(loaded: Loaded, root: Document) -> dict[str, Json]:
    bounds: dict[str, Json] = {"ceiling": CEILING, "default_iterations": DEFAULT_LIMIT}
    if loaded.budget is not None:
        bounds["budget"] = loaded.budget.to_json()["budget"]
    if root.timeout is not None:
        bounds["timeout"] = root.timeout
    for document in loaded.documents.values():
        for action in (a for step in document.steps for a in _all(step)):
            if action.loop is not None:
                name = getattr(action, "name", "loop")
                bounds.setdefault("loops", {})[name] = condition_limit(action.loop)
    return bounds


def _calls(action: Action, loaded: Loaded, depth: int) -> int:
    """Return the most model calls that an action can make, without retries of failed calls."""
    tries = action.max_retries + 1 if action.on_failure == "retry" else 1
    own = 1 if action.prompt is not None else len(action.consensus.voters) if action.consensus else 0
    if action.loop is not None:
        own += _loop_calls(action.loop, loaded, depth)
    elif action.each is not None:
        tries *= action.each.max_retries + 1 if action.each.on_failure == "retry" else 1
        own += _calls(action.each.execute, loaded, depth) * (action.each.max_items or MOST_ITEMS)
    elif action.workflow is not None and depth <= 8:
        child = next(
            (d for f, d in loaded.documents.items() if action.workflow in (d.name, _stem(f))), None
        )
        own += sum(_calls(step, loaded, depth + 1) for step in child.steps) if child else 0
    else:
        own += sum(_calls(inner, loaded, depth) for inner in inner_actions(action))
    return own * tries


def _loop_calls(loop: LoopSpec, loaded: Loaded, depth: int) -> int:
    once = _calls(loop.execute, loaded, depth)
    for evaluator in evaluators(loop):
        if evaluator.judge is not None:
            judge = evaluator.judge
            votes = 1 if isinstance(judge, str) else judge.max_votes + int(judge.confirm)
            criteria = 1 if isinstance(judge, str) else len(judge.criteria or (1,))
            once += votes * criteria
        if evaluator.score is not None and evaluator.score.of is not None:
            once += _calls(evaluator.score.of, loaded, depth)
    tries = loop.max_retries + 1 if loop.on_failure == "retry" else 1
    return once * condition_limit(loop) * tries


def _stem(file: str) -> str:
    return file.rsplit("/", 1)[-1].rsplit(".", 1)[0]
