"""Notes on valid but unusual parts of documents, each with its place and a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from .. import templates
from ..conditions import CEILING, Budget
from ..conditions.base import TAGS
from ..engine.budgets import CANNOT_BIND, cannot_bind
from ..engine.loop import PASSED_UNREAD, Loop
from ..engine.loop_options import NO_GOAL, NO_GOAL_SENTENCE
from ..engine.step import Step
from ..errors import Problem, TemplateError, nearest
from ..records.codec import Json
from ..records.display import money, plural
from .plan import calls_of_case, calls_of_iteration, cases_of
from .project import LoadedDocument
from .schema.document import Action, Document, LoopSpec, PhasedSpec, WaitSpec
from .schema.fields import SandboxSpec, SandboxWord
from .schema.traverse import (
    condition_limit,
    conditions_in,
    models_in,
    parts,
    placed_evaluators,
    questions,
)
from .yaml.reader import Location, Source

if TYPE_CHECKING:
    from ..prompts.settings import PromptSettings

__all__ = [
    "lints",
    "merge_repeats",
]

NO_SCORE = "no_score"
_Notes = Iterator[tuple[Location, str, str]]  # place, code, message
_Called = Callable[[str], Document | None]

# Sentences that code can decide, each with the field of `check:` for it. A miss costs only a note, so the
# patterns prefer missing a sentence to a wrong advice.
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
    """Return the notes on a document and on the documents that it calls, in document order."""
    result: list[Problem] = []
    for file, document in loaded.documents.items():
        source: Source = loaded.sources[file]
        for at, code, message in (*_document_lints(document), *_step_lints(document, file, loaded)):
            result.append(source.problem(at, message, code=code))
    result += [*_unbound(loaded), *_small_token_budgets(loaded), *_of_models(loaded)]
    return sorted(merge_repeats(result), key=lambda p: (p.file, p.line, p.column))


def _unbound(loaded: LoadedDocument) -> Iterator[Problem]:
    """Note budgets without effect: no step inside reports what it costs."""
    first = next(iter(loaded.documents.items()), None)
    if first is None:
        return
    file, document = first
    source: Source = loaded.sources[file]
    if loaded.budget is not None and cannot_bind(loaded.step, loaded.budget, "run"):
        at: Location = ("budget",) if document.budget is not None else ()
        yield source.problem(at, _without_effect(loaded.budget), code=CANNOT_BIND)
    places = dict(_loops(document))
    for loop in _parts(loaded.step):
        if isinstance(loop, Loop) and loop.unbound:
            message = _without_effect(loop.budget)
            yield source.problem(places.get(loop.name, ()), message, code=CANNOT_BIND)


def _without_effect(budget: Budget | None) -> str:
    """Return the message of a budget without effect, in the words of documents instead of Python."""
    units = [name for name in ("calls", "tokens", "usd") if getattr(budget, name, None) is not None]
    return (
        f"the budget of {' and '.join(units)} has no effect, because no step in it "
        "reports what it costs; add usage: to a command, or set a budget of effects instead"
    )


def _small_token_budgets(loaded: LoadedDocument) -> Iterator[Problem]:
    """Note token budgets of agents that are smaller than one call of a phase."""
    every = (part for document in loaded.documents.values() for part in parts(document))
    if not any(isinstance(part, PhasedSpec) for part in every):
        return
    from ..agents.phased import BUDGET_TOO_SMALL, PhasedAgent

    # The first document only: the steps of called ones have other places.
    for file, document in list(loaded.documents.items())[:1]:
        source: Source = loaded.sources[file]
        places: dict[str, Location] = {
            step.name or "": ("steps", i) for i, step in enumerate(document.steps)
        }
        for agent in _parts(loaded.step):
            for code, sentence in agent.warnings if isinstance(agent, PhasedAgent) else ():
                if code == BUDGET_TOO_SMALL:
                    yield source.problem(places.get(agent.name, ()), sentence, code=code)


def _of_models(loaded: LoadedDocument) -> Iterator[Problem]:
    """Note judges that are the model that writes, and budgets that end a loop or an evaluation early."""
    for file, document in loaded.documents.items():
        source: Source = loaded.sources[file]
        for i, step in enumerate(document.steps):
            if (loop := step.loop) is None:
                continue
            asks = _asks(loaded, source, f"steps[{i}].loop.")
            yield from _own_judges(asks)
            calls = calls_of_iteration(loop, loaded, file)
            limit = min(condition_limit(loop), CEILING)
            ends = [*conditions_in(loop.guards), *conditions_in(loop.until)]
            caps = [value for tag, value in ends if tag == "budget" and isinstance(value, Mapping)]
            for message in _possible(loaded, caps, asks, calls, limit, "iterations"):
                yield source.problem(("steps", i, "loop"), message, code="budget_iterations")
        if (spec := document.eval) is not None:
            asks = _asks(loaded, source, "eval.")
            yield from _own_judges(asks)
            calls = calls_of_case(spec.task, spec, loaded, file)
            limit = cases_of(spec.dataset, loaded, file) * spec.repeat
            for message in _possible(loaded, [], asks, calls, limit, "cases"):
                yield source.problem(("eval",), message, code="budget_iterations")


_Asks = Sequence[
    tuple[bool, Problem, "PromptSettings"]
]  # whether it judges, its place, its settings


def _asks(loaded: LoadedDocument, source: Source, at: str) -> _Asks:
    """Return the model calls below a place. What uses an output on a case is a part of `evaluate`, and writes."""
    return [
        (_JUDGES.match(place.path, len(at)) is not None, place, ask)
        for place, ask in loaded.asks
        if place.file == source.file and place.path.startswith(at)
    ]


_JUDGES = re.compile(r"evaluate(?!.*\bdataset\.run\b)|until|candidates\.judge")


def _own_judges(asks: _Asks) -> Iterator[Problem]:
    """Note each model that judges what it writes, at its first judge."""
    writers = {ask.models[:1] for judges, _, ask in asks if not judges}
    own: dict[str, Problem] = {}
    for judges, place, ask in asks:
        if judges and ask.models and ask.models[:1] in writers:
            own.setdefault(ask.models[0], place)
    for name, place in own.items():
        if not name.startswith("scripted:"):
            message = (
                f"the judge is the model that writes, {name}; a model prefers its own texts, so give the judge "
                "another model"
            )
            at = place.file, place.line, place.column, place.path
            yield Problem(*at, message, code="judge_writes")


def _possible(
    loaded: LoadedDocument,
    caps: Sequence[Mapping[str, Json]],
    asks: _Asks,
    calls: int,
    limit: int,
    unit: str,
) -> Iterator[str]:
    """Say that a budget in dollars ends before `limit` iterations or cases of so many calls, if these cost what they may."""
    budgets: list[Json] = [cap.get("usd") for cap in caps]
    budgets.append(loaded.budget.usd if loaded.budget is not None else None)
    usd = min((each for each in budgets if isinstance(each, int | float)), default=None)
    if usd is None or not asks:
        return
    from ..models.protocol import Message, Request
    from ..models.registry import price_of, split_model, worst_case

    prices, dearest = loaded.resources["models"].prices, 0.0
    for _, _, ask in asks:
        for name in ask.models[:1]:
            provider, model = split_model(name)
            request = Request(
                (Message("user", "?"),), model, provider, max_tokens=ask.max_tokens or ask.cap
            )
            price = price_of(provider, model, prices, base_url=ask.base_url)
            dearest = max(dearest, worst_case(request, price).usd)
    if not dearest or not calls or (possible := int(usd / (dearest * calls))) >= limit:
        return
    count = f"about {possible:,}" if possible else "less than one"
    yield (
        f"with this budget {count} of {limit:,} {unit} may be possible: one makes up to {plural(calls, 'call')}, and "
        f"a call may cost {money(dearest)}; raise usd, or limit the replies with max_tokens"
    )


def _parts(step: Step) -> Iterator[Step]:
    """Iterate over a step and all steps inside it."""
    yield step
    for part in step.parts():
        yield from _parts(part)


def _loops(document: Document) -> Iterator[tuple[str, Location]]:
    for i, step in enumerate(document.steps):
        if step.loop is not None:
            yield step.name or "", ("steps", i, "loop")


def _document_lints(document: Document) -> _Notes:
    if document.prices:
        used = {name.partition(":")[2] for name in models_in(document)} | set(models_in(document))
        for name in document.prices:
            if used and name not in used:
                yield (
                    ("prices", name),
                    "price_unused",
                    f"the document does not use the model {name!r}, so its price has no effect",
                )
    yield from _unused_limits(document)
    yield from _explored(document)
    yield from _sealed_tests(document)


def _mounts(sandbox: SandboxSpec | SandboxWord | None) -> bool:
    """Return whether a sandbox of ours, which can mount files read-only, works here."""
    from ..tools.sandbox import sandbox_problem

    mode = sandbox.mode if isinstance(sandbox, SandboxSpec) else sandbox
    other = isinstance(sandbox, SandboxSpec) and sandbox.wrap
    return mode in ("auto", "bubblewrap") and not other and not sandbox_problem()


def _explored(document: Document) -> _Notes:
    """Note Python functions in loops that explore: an explored run calls them more often."""
    for i, step in enumerate(document.steps if document.workspace is None else ()):
        loop = step.loop
        if loop is None or not loop.explore or loop.workspace is not None:
            continue
        if any(isinstance(part.__dict__.get("python"), str) for part in parts(loop.execute)):
            yield (
                ("steps", i, "loop", "explore"),
                "explored_python",
                (
                    "an explored run also calls the Python functions of this loop after the normal end; explore only if "
                    "they do not act outside the run"
                ),
            )


def _sealed_tests(document: Document) -> _Notes:
    """Note sealed tests with only an exit code, or without a sandbox: fewer attacks on the check are noticed."""
    loops = (
        found
        for i, step in enumerate(document.steps)
        for found in _loops_with_files(step, ("steps", i), around=bool(document.workspace))
    )
    for loop, where in loops:
        for at, spec in placed_evaluators(loop, where):
            check = spec.tests_spec
            if check is None:
                continue
            if check.sealed and not _mounts(check.sandbox):
                yield (
                    (*at, "tests"),
                    "changed_back",
                    (
                        "without a sandbox, it is not noticed if the code under test changes a protected file and "
                        "changes it back; use sandbox: auto where bubblewrap works"
                    ),
                )
            if check.sealed:
                from ..coding.sealed.measure import TestCommand
            if check.sealed and not TestCommand(check.command, report=check.report).has_report:
                yield (
                    (*at, "tests"),
                    "exit_code_only",
                    (
                        "this command gives an exit code and no report of its tests, so only the protected files "
                        "and the exit code count; use report: if it writes one"
                    ),
                )


def _loops_with_files(
    action: Action, at: Location, *, around: bool
) -> Iterator[tuple[LoopSpec, Location]]:
    """Iterate over the loops of a step, also nested ones, that have a workspace or run inside one."""
    if action.loop is not None:
        inside, where = around or bool(action.loop.workspace), (*at, "loop")
        if inside:
            yield action.loop, where
        yield from _loops_with_files(action.loop.execute, (*where, "execute"), around=inside)
    if action.each is not None:
        yield from _loops_with_files(action.each.execute, (*at, "each", "execute"), around=around)
    for kind in ("steps", "parallel", "fallback"):
        for i, inner in enumerate(getattr(action, kind) or ()):
            yield from _loops_with_files(inner, (*at, kind, i), around=around)


def _unused_limits(document: Document) -> _Notes:
    """Note limits whose name is no provider and no step or tool of the document."""
    if not document.limits:
        return
    from ..models.providers.endpoints import ALIASES, PROVIDERS

    names = {name for part in parts(document) if (name := getattr(part, "name", None))}
    names |= {*document.tools, *PROVIDERS, *ALIASES, "default"}
    names |= {name.partition(":")[0] for name in models_in(document)}
    for name in document.limits:
        # The tools of a server and the models of `--model` are not known before the run.
        if name not in names and ":" not in name and name.partition(".")[0] not in document.servers:
            yield (
                ("limits", name),
                "limit_unused",
                f"the document has no step or tool {name!r}, so its limit has no effect"
                + nearest(name, names),
            )


def _step_lints(document: Document, file: str, loaded: LoadedDocument) -> _Notes:
    def called(name: str) -> Document | None:
        return loaded.documents.get(loaded.calls.get((file, name), ""))

    for i, step in enumerate(document.steps):
        yield from _action_lints(step, ("steps", i), called)


def _action_lints(
    action: Action, at: Location, called: _Called, loop: LoopSpec | None = None
) -> _Notes:
    condition = getattr(action, "if_", None)
    if condition is not None:
        yield from _constant(condition, (*at, "if"))
    if "failed" in getattr(action, "accept", ()) and action.on_failure != "continue":
        yield (
            (*at, "accept"),
            "accept_ignored",
            (
                "accept: failed has no effect without on_failure: continue, because the workflow ends when this step fails"
            ),
        )
    if action.loop is not None:
        yield from _loop_lints(action.loop, (*at, "loop"), called)
        yield from _action_lints(action.loop.execute, (*at, "loop", "execute"), called, action.loop)
    if action.each is not None:
        yield from _action_lints(action.each.execute, (*at, "each", "execute"), called, loop)
    for kind in ("steps", "parallel", "fallback"):
        for i, inner in enumerate(getattr(action, kind) or ()):
            yield from _action_lints(inner, (*at, kind, i), called, loop)
    if action.wait is not None:
        yield from _wait_lints(action.wait, (*at, "wait"), loop)


def _wait_lints(wait: WaitSpec, at: Location, loop: LoopSpec | None) -> _Notes:
    members = {at: wait, **{(*at, "first_of", n): one for n, one in (wait.first_of or {}).items()}}
    timed = [one for one in members.values() if one.for_ is not None or one.at is not None]
    if wait.timeout == "none" and not timed:
        yield (
            (*at, "timeout"),
            "unbounded_wait",
            "nothing ends this wait if what it waits for does not come; set a timeout",
        )
    times = [value for tag, value in conditions_in(loop and loop.until) if tag == "deadline"]
    for place, one in members.items():
        if loop is not None and one.event and one.since != "wait" and "{{" not in (one.key or ""):
            yield (
                (*place, "key" if one.key else "event"),
                "same_key",
                "each iteration waits for the same key: an event sent twice ends two waits; put the iteration into key",
            )
        if one.url is not None and one.every is not None and (one.every.most or 10) < 10:
            yield (
                (*place, "every"),
                "frequent_probes",
                "the URL is asked more often than every 10 seconds; its host may refuse that",
            )
        later = [text for text in times if isinstance(text, str) and _is_later(one.at, text)]
        if later:
            yield (
                (*place, "at"),
                "wait_beyond_deadline",
                f"the deadline {later[0]} of the loop around it comes first",
            )


def _is_later(at: str | None, deadline: str) -> bool:
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(at or "") > datetime.fromisoformat(deadline)
    return False


def _constant(text: str, at: Location) -> _Notes:
    """Note an `if` that is always true or always false."""
    # A frequent mistake: a text in quotes, such as `if: "'ready'"`, compares nothing and is always true.
    inner = text.strip()
    if inner.startswith("{{") and inner.endswith("}}"):
        inner = inner[2:-2].strip()
    try:
        expression = templates.compile_expression(inner)
        if expression.names:
            return
        holds = bool(expression.evaluate({}))
    except TemplateError:
        return
    if holds:
        yield at, "constant_condition", "this condition is always true; remove the if"
    else:
        yield (
            at,
            "constant_condition",
            "this condition is always false, so the step never runs; compare the output of a step",
        )


def _loop_lints(loop: LoopSpec, at: Location, called: _Called) -> _Notes:
    for sentence, place in _criteria(loop, at):
        for pattern, kind in _COMPUTABLE:
            if pattern.search(sentence):
                yield place, "code_can_decide", (
                    f"code can decide this without a model call and always in the same way; "
                    f"put evaluate: {{check: {{{kind}: …}}}} before the judge"
                )  # fmt: skip
                break
    several = len(dict(questions(loop.until))) > 1
    if several and loop.evaluate is None:
        yield (*at, "until"), NO_SCORE, (
            "several sentences give no score, so the last output is kept and no_improvement and degrading never hold; "
            'add evaluate: {judge: "…"} for a score'
        )  # fmt: skip
    if _passes_unread(loop):
        yield (*at, "until"), PASSED_UNREAD, (
            "the evaluator says whether the output passed, and no condition reads it, so a passed output does not end the "
            "loop; add passed, if it should"
        )  # fmt: skip
    if _lacks_goal(loop):
        yield (*at, "evaluate"), NO_GOAL, NO_GOAL_SENTENCE
    yield from _wrong_output_lints(loop, at, called)


def _passes_unread(loop: LoopSpec) -> bool:
    """Return whether a judge gives verdicts that no condition of success reads."""
    # Other evaluators give the score 1 with a verdict of true.
    judged = any(item.judge or item.confidence for _, item in placed_evaluators(loop))
    if not judged or loop.node is not None or loop.optimises or loop.termination is not None:
        return False
    # A class of the user may read `passed`, and a condition in the format of `termination` includes it.
    reading = {"passed", "all_criteria_met", "python", "type"}
    both = [loop.until, loop.guards]
    return _has_goal(both) and not any(tag in reading for tag, _ in conditions_in(both))


def _lacks_goal(loop: LoopSpec) -> bool:
    """Return whether a loop has scores and no condition that they satisfy."""
    scores = (item.score for _, item in placed_evaluators(loop))
    # The share of passing tests is a score with a verdict.
    scored = any(score is not None and score.tests is None for score in scores)
    if not scored or loop.node is not None or loop.optimises:
        return False
    return not _has_goal([loop.ends[1], loop.guards])


def _has_goal(tree: Json) -> bool:
    """Return whether a tree of conditions has a condition of success."""
    for tag, value in conditions_in(tree):
        kind = TAGS.get(tag)
        goal = value["type"] == "confidence" if tag == "type" else kind is None or kind.goal
        if goal and not (kind is not None and kind.hard):
            return True
    return False


def _criteria(loop: LoopSpec, at: Location) -> Iterator[tuple[str, Location]]:
    """Iterate over the sentences that a model judges in a loop, with their places."""
    for sentence, _ in questions(loop.until):
        yield sentence, (*at, "until")
    for where, item in placed_evaluators(loop, at):
        judge, place = item.judge, (*where, "judge")
        if isinstance(judge, str):
            yield judge, place
        elif judge is not None:
            of: Json = judge.criteria or ([judge.criterion] if judge.criterion else [])
            yield from ((text, place) for text in (of.values() if isinstance(of, dict) else of))


def _wrong_output_lints(loop: LoopSpec, at: Location, called: _Called) -> _Notes:
    """Note a judge or a prompt that names one step but receives the output of another one."""
    names, output = _iteration_steps(loop.execute, called)
    if len(names) < 2:
        return
    own = output or names[-1]
    wording = [(text, place) for text, place in _criteria(loop, at)]
    wording += [
        (key, (*at, "execute", "with", key))
        for key, value in (loop.execute.with_ or {}).items()
        if isinstance(value, str) and re.search(r"\bloop\.(last\.)?output\b", value)
    ]
    for text, place in wording:
        words = set(re.findall(r"[a-z0-9]+", text.lower().replace("_", " ")))
        # A text that names both steps is probably meant.
        if own.lower() in words:
            continue
        intended = next(
            (n for n in names if n != own and n.lower().replace("_", " ") in words), None
        )
        if intended is not None:
            yield place, "other_output", (
                f"this reads the output of {own!r}, which is the output of each iteration, not that of {intended!r}; "
                f"set output:, or expose it and use loop.steps.{intended}"
            )  # fmt: skip


def _iteration_steps(action: Action, called: _Called) -> tuple[list[str], str]:
    """Return the names of the steps of an iteration, and the step whose output is the iteration's."""
    if action.steps is not None:
        return [step.name for step in action.steps], ""
    if action.workflow is None:
        return [], ""
    child = called(action.workflow)
    return ([step.name for step in child.steps], child.output or "") if child else ([], "")


def merge_repeats(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each note on a file at its first place, with the number of places if there are several."""
    places: dict[tuple[str, str], dict[Problem, None]] = {}
    for problem in problems:
        places.setdefault((problem.file, problem.message), {})[problem] = None
    display = []
    for same in places.values():
        first = next(iter(same))
        # One mistake is often repeated in every step of a document.
        more = f" ({len(same)} times in this file)" if len(same) > 1 else ""
        display.append(replace(first, message=first.message + more))
    return tuple(display)
