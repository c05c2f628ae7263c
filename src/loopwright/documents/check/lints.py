"""What a document may say and seldom means: remarks with their place and the remedy, never refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...conditions.base import TAGS
from ...engine.budget import CANNOT_BIND, cannot_bind
from ...engine.loop import NO_GOAL, NO_GOAL_TOLD, Loop
from ...engine.step import Step
from ...errors import Problem
from ...templates import TemplateError, compile_expression
from ..project import LoadedDocument
from ..schema.document import Action, Document, LoopSpec
from ..schema.traverse import models_in, sentences
from ..yaml.reader import Source
from .remarks import once

__all__ = ["lints"]

_At = tuple[str | int, ...]
_Found = Iterator[tuple[_At, str]]
_Called = Callable[[str], Document | None]

# A sentence that code can decide, and the field of `check:` that does.
_MOST = r"\b(at most|under|below|fewer than|less than|no more than|maximum( of)?)\s+[\d,]+\s+"
_LEAST = r"\b(at least|over|more than|minimum( of)?)\s+[\d,]+\s+"
_EXIT = r"\b(exit(s|ed)?( (code|status))?( is| of| with)?( code| status)?\s+(0|zero)"
_SAYS = r"\b([Cc]ontains?|[Ii]ncludes?|[Mm]entions?|[Ss]ays|([Ss]tarts|[Ee]nds) with)\s+(the (word|text|string) )?"
_COMPUTABLE = (
    (re.compile(_MOST + r"words?\b", re.IGNORECASE), "max_words"),
    (re.compile(_LEAST + r"words?\b", re.IGNORECASE), "min_words"),
    (re.compile(_MOST + "char", re.IGNORECASE), "max_chars"),
    (re.compile(_LEAST + "char", re.IGNORECASE), "min_chars"),
    (re.compile(_EXIT + r"|tests? (all )?pass(es)?|compiles)\b", re.IGNORECASE), "command"),
    (re.compile(r"\b(valid|parses as|well-formed) json\b", re.IGNORECASE), "schema"),
    (re.compile(_SAYS + r"""(['"“][^'"”]+['"”]|[A-Z]{2,}\b)"""), "contains"),
)


def lints(loaded: LoadedDocument) -> list[Problem]:
    """Return the remarks on a document and on those that it calls, in document order."""
    found: list[Problem] = []
    for file, document in loaded.documents.items():
        source: Source = loaded.sources[file]
        for at, message in (*_of_document(document), *_of_steps(document, file, loaded)):
            found.append(source.problem(at, message))
    found += [*_unbound(loaded), *_too_small(loaded)]
    return sorted(once(found), key=lambda p: (p.file, p.line, p.column))


def _unbound(loaded: LoadedDocument) -> Iterator[Problem]:
    """Remark on budgets of which no step inside can use anything up."""
    first = next(iter(loaded.documents.items()), None)
    if first is None:
        return
    file, document = first
    source: Source = loaded.sources[file]
    if loaded.budget is not None and (told := cannot_bind(loaded.step, loaded.budget, "run")):
        at: _At = ("budget",) if document.budget is not None else ()
        yield source.problem(at, f"{CANNOT_BIND}: {told}")
    places = dict(_loops(document))
    for loop in _unbound_loops(loaded.step):
        yield source.problem(places.get(loop.name, ()), f"{CANNOT_BIND}: {loop.unbound}")


def _too_small(loaded: LoadedDocument) -> Iterator[Problem]:
    """Remark on agents' budgets of tokens that do not fit one call of a phase."""
    for file, document in list(loaded.documents.items())[:1]:
        source: Source = loaded.sources[file]
        places: dict[str, _At] = {
            step.name or "": ("steps", i) for i, step in enumerate(document.steps)
        }
        for agent in _parts(loaded.step):
            for sentence in getattr(agent, "too_small", ()):
                yield source.problem(places.get(agent.name, ()), sentence)


def _parts(step: Step) -> Iterator[Step]:
    """Iterate over a step and all that is inside it."""
    yield step
    for part in step.parts():
        yield from _parts(part)


def _unbound_loops(step: Step) -> Iterator[Loop]:
    return (part for part in _parts(step) if isinstance(part, Loop) and part.unbound)


def _loops(document: Document) -> Iterator[tuple[str, _At]]:
    for i, step in enumerate(document.steps):
        if step.loop is not None:
            yield step.name or "", ("steps", i, "loop")


def _of_document(document: Document) -> _Found:
    if document.prices:
        used = {name.partition(":")[2] for name in models_in(document)} | set(models_in(document))
        for name in document.prices:
            if used and name not in used:
                yield (
                    ("prices", name),
                    f"no model of this document is {name!r}; its price is not used",
                )


def _of_steps(document: Document, file: str, loaded: LoadedDocument) -> _Found:
    def called(name: str) -> Document | None:
        return loaded.documents.get(loaded.calls.get((file, name), ""))

    for i, step in enumerate(document.steps):
        yield from _of_action(step, ("steps", i), called)


def _of_action(action: Action, at: _At, called: _Called) -> _Found:
    condition = getattr(action, "if_", None)
    if condition is not None:
        yield from _constant(condition, (*at, "if"))
    if "failed" in getattr(action, "accept", ()) and action.on_failure != "continue":
        yield (
            (*at, "accept"),
            (
                "accept: failed has no effect without on_failure: continue, as the workflow ends where this step fails"
            ),
        )
    if action.loop is not None:
        yield from _of_loop(action.loop, (*at, "loop"), called)
        yield from _of_action(action.loop.execute, (*at, "loop", "execute"), called)
    if action.each is not None:
        yield from _of_action(action.each.execute, (*at, "each", "execute"), called)
    for kind in ("steps", "parallel", "fallback"):
        for i, inner in enumerate(getattr(action, kind) or ()):
            yield from _of_action(inner, (*at, kind, i), called)


def _constant(text: str, at: _At) -> _Found:
    """Remark on an `if` that names nothing that could change it."""
    inner = text.strip()
    if inner.startswith("{{") and inner.endswith("}}"):
        inner = inner[2:-2].strip()
    try:
        expression = compile_expression(inner)
        if expression.names:
            return
        holds = bool(expression.evaluate({}))
    except TemplateError:
        return
    if holds:
        yield at, "this is always true; leave the if out"
    else:
        yield at, "this is never true, so the step never runs; compare the output of a step"


def _of_loop(loop: LoopSpec, at: _At, called: _Called) -> _Found:
    for sentence, place in _criteria(loop, at):
        for pattern, kind in _COMPUTABLE:
            if pattern.search(sentence):
                yield place, (
                    f"code can decide this for nothing and the same way each time; "
                    f"put evaluate: {{check: {{{kind}: …}}}} before the judge"
                )  # fmt: skip
                break
    if _aimless(loop):
        yield (*at, "evaluate"), f"{NO_GOAL}: {NO_GOAL_TOLD}"
    yield from _other_text(loop, at, called)


def _aimless(loop: LoopSpec) -> bool:
    """Return whether a loop is scored and nothing in it says which score is enough."""
    given = loop.evaluate if isinstance(loop.evaluate, list) else [loop.evaluate]
    only = [item for item in given if item is not None]
    scored = any(item.score is not None and item.score.tests is None for item in only)
    return scored and loop.node is None and not (_has_goal(loop.ends[1]) or _has_goal(loop.guards))


def _has_goal(tree: Any) -> bool:
    """Return whether a tree of conditions, as it is written, has one of success."""
    if isinstance(tree, str):
        return tree not in TAGS or _is_goal(tree)
    if isinstance(tree, list):
        return any(_has_goal(item) for item in tree)
    if isinstance(tree, Mapping) and "type" in tree:  # the JSON of the loop controller
        return tree["type"] == "confidence" or _has_goal(tree.get("conditions"))
    if isinstance(tree, Mapping):
        inner = ("any_of", "all_of")
        return any(_has_goal(v) if tag in inner else _is_goal(tag) for tag, v in tree.items())
    return False


def _is_goal(tag: str) -> bool:
    """Return whether the condition of a tag is one of success."""
    kind = TAGS.get(tag)
    return kind is None or (kind.goal and not kind.hard)


def _criteria(loop: LoopSpec, at: _At) -> Iterator[tuple[str, _At]]:
    """Iterate over the sentences that a model judges in a loop, with their places."""
    for sentence in sentences(loop.until):
        yield sentence, (*at, "until")
    many = isinstance(loop.evaluate, list)
    given = loop.evaluate if isinstance(loop.evaluate, list) else [loop.evaluate]
    for i, item in enumerate(given):
        judge = item.judge if item is not None else None
        place = (*at, "evaluate", *((i,) if many else ()), "judge")
        if isinstance(judge, str):
            yield judge, place
        elif judge is not None:
            of: Any = judge.criteria or ([judge.criterion] if judge.criterion else [])
            yield from ((text, place) for text in (of.values() if isinstance(of, dict) else of))


def _other_text(loop: LoopSpec, at: _At, called: _Called) -> _Found:
    """Remark on a judge or a prompt that names a step of a round, where a round's output is another's."""
    names, output = _round(loop.execute, called)
    if len(names) < 2:
        return
    own = output or names[-1]
    said = [(text, place) for text, place in _criteria(loop, at)]
    said += [
        (key, (*at, "execute", "with", key))
        for key, value in (loop.execute.with_ or {}).items()
        if isinstance(value, str) and re.search(r"\bloop\.(last\.)?output\b", value)
    ]
    for text, place in said:
        words = set(re.findall(r"[a-z0-9]+", text.lower().replace("_", " ")))
        if own.lower() in words:
            continue
        meant = next((n for n in names if n != own and n.lower().replace("_", " ") in words), None)
        if meant is not None:
            yield place, (
                f"this sees the output of {own!r}, the step that gives a round its output, not that of {meant!r}; "
                f"name it as output:, or expose it and use loop.steps.{meant}"
            )  # fmt: skip


def _round(action: Action, called: _Called) -> tuple[list[str], str]:
    """Return the names of the steps that make a round, and the one whose output is the round's."""
    if action.steps is not None:
        return [step.name for step in action.steps], ""
    if action.workflow is None:
        return [], ""
    child = called(action.workflow)
    return ([step.name for step in child.steps], child.output or "") if child else ([], "")
