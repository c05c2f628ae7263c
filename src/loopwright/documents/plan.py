"""The plan of a document, what it would run and its limits, and what it needs and this machine lacks.

`loopwright check` shows both. Needs are keys, packages, servers, programs, folders and files of lists:

1. Only the models of its prompts and judges, and its MCP servers, are checked.
2. Keys are looked up in the environment of the caller; their values are not used.
3. Only servers on this machine are contacted, each once, for at most TIMEOUT; nothing is sent.
4. If several models can replace each other, one that is available is enough.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .._extras import missing as missing_extra
from .._extras import sentence
from ..conditions import CEILING, AnyOf, Condition, Judged, OnStall, has_goal, questions_in
from ..engine.lists import MOST_ITEMS
from ..engine.loop import Loop
from ..engine.loop_options import DEFAULT_LIMIT, has_check
from ..engine.step import Step
from ..errors import ConfigurationError, Problem
from ..records.codec import Json
from ..records.display import plural
from .project import LoadedDocument
from .schema.datasets import DatasetFile
from .schema.document import (
    Action,
    CandidatesSpec,
    DatasetSpec,
    Document,
    EvalSpec,
    EvaluateSpec,
    LoopSpec,
    PhasedSpec,
    StepSpec,
)
from .schema.evaluators import JudgeSpec
from .schema.fields import ServerSpec
from .schema.models import CodingAgentSpec
from .schema.traverse import (
    commands_in,
    condition_limit,
    evaluators,
    functions_in,
    inner_actions,
    parts,
    phase_limits,
    phases_of,
    variables_of,
)
from .trust import command_line, hosts_of, local_actions

if TYPE_CHECKING:
    from ..prompts.settings import PromptSettings

__all__ = [
    "missing",
    "plan",
]

REQUESTS_PER_VOTE = 2  # an unreadable reply of a judge is requested once more


def plan(loaded: LoadedDocument) -> dict[str, Json]:
    """Return the plan of a document; see `Loaded.plan`."""
    documents = list(loaded.documents.values())
    root = documents[0]
    by_name = {d.name: d for d in documents}
    documents_of = next(iter(loaded.documents))
    result: dict[str, list[str]] = {
        k: [] for k in ("models", "commands", "python", "files", "agents", "hosts", "environment")
    }
    # What the question asks about, so that both say the same.
    actions = local_actions(loaded)
    result["commands"] += actions.commands
    result["files"] += actions.files
    # The models of the compiled calls: the caller or the environment may replace those of a document.
    for model, url in loaded.models:
        result["models"].append(model)
        _collect_hosts(model, url, result)
    for document in documents:
        _collect(document, result)
    return {
        "name": loaded.name,
        **({"inputs": rows} if (rows := _inputs(root)) else {}),
        "steps": [_described(step) for step in root.steps],
        **({} if root.eval is None else {"eval": _evaluation(root.eval, loaded, documents_of)}),
        **{key: list(dict.fromkeys(values)) for key, values in result.items()},
        **({"protected": files} if (files := _protected(loaded)) else {}),
        "keys": list(loaded.keys),
        "documents": [str(name) for name in by_name],
        **({"until": lines} if (lines := list(_until(loaded.step))) else {}),
        "bounds": _bounds(loaded, root),
        **({"shape": lines} if (lines := list(_shapes(loaded))) else {}),
        "worst_case_calls": _calls_of(root, loaded, documents_of),
        "notes": [str(note) for note in loaded.notes],
    }


def _inputs(document: Document) -> list[Json]:
    """Return the declared inputs, each with its JSON Schema."""
    return [
        {"name": name, "required": spec.required, **spec.schema_of()}
        for name, spec in document.inputs.items()
    ]


def _until(step: Step) -> Iterator[str]:
    """Iterate over lines on how the conditions of loops with sentences are read, and when each sentence is asked."""
    if isinstance(step, Loop) and step.sentences and step.until is not None:
        numbers = {text: f"{n} {text!r}" for n, text in enumerate(step.sentences, start=1)}
        yield f"{step.name} ends when: {_shown(step.until, numbers)}"
        asked = set[str]()
        for question, needs in _asked(step.until, numbers, ()):
            if question.sentence not in asked:
                asked.add(question.sentence)
                number = numbers[question.sentence].partition(" ")[0]
                yield f"{step.name} asks {number} after evaluate{', if ' if needs else ''}{' and '.join(needs)}"
        if isinstance(step.evaluate, Step) and has_check(step.evaluate):
            yield f"{step.name} asks nothing about an output that a check refused"
    for part in step.parts():
        yield from _until(part)


def _shown(tree: Condition, numbers: Mapping[str, str]) -> str:
    if isinstance(tree, Judged):
        return numbers[tree.sentence]
    if not tree.parts():
        return str(tree)
    joint = " or " if isinstance(tree, AnyOf) else " and "
    inner = ((part, _shown(part, numbers)) for part in tree.parts())
    return joint.join(f"({text})" if part.parts() else text for part, text in inner)


def _asked(
    tree: Condition, numbers: Mapping[str, str], needs: tuple[str, ...]
) -> Iterator[tuple[Judged, tuple[str, ...]]]:
    """Iterate over the sentences of a tree, each with what must hold before it is asked."""
    if isinstance(tree, Judged):
        yield tree, needs
        return
    either, before = isinstance(tree, AnyOf), list[str]()
    for part in tree.parts():
        # Conditions without a model have their values first; only success closes an "or".
        if not any(True for _ in questions_in(part)) and (not either or has_goal(part)):
            before.append(f"{_shown(part, numbers)} {'does not hold' if either else 'holds'}")
    for part in tree.parts():
        if any(True for _ in questions_in(part)):
            yield from _asked(part, numbers, (*needs, *before))
            text = (
                numbers[part.sentence].partition(" ")[0]
                if isinstance(part, Judged)
                else f"({_shown(part, numbers)})"
            )
            before.append(f"{text} is not {'met' if either else 'refused'}")


def _protected(loaded: LoadedDocument) -> list[str]:
    """Return the files that the sealed checks of the documents protect, as far as they exist."""
    files = dict[str, None]()
    for name, document in loaded.documents.items():
        spaces = [part.__dict__.get("workspace") for part in parts(document)]
        folders = [
            Path(name).parent / ("." if isinstance(space, str) else space.path)
            for space in spaces
            if space is not None
        ]
        checks = [part.tests_spec for part in parts(document) if isinstance(part, EvaluateSpec)]
        for spec in checks if folders and folders[0].is_dir() else ():
            if spec is not None and spec.sealed:
                from ..coding.sealed.clean_copy import protected_files
                from ..coding.sealed.protected import Protection

                rules = Protection(spec.command, tuple(spec.protect), tuple(spec.allow))
                files |= dict.fromkeys(protected_files(folders[0], rules))
    return list(files)


def _collect(document: Document, result: dict[str, list[str]]) -> None:
    result["python"] += functions_in(document)
    for server in document.servers.values():
        _collect_hosts("", server.url, result)
    for part in parts(document):
        value = part.__dict__  # most parts have none of these attributes, and this is faster
        result["environment"] += variables_of(part)
        # The `env` of a document has constants for templates, not variables of the environment.
        if part is not document:
            result["environment"] += value.get("env", ())
        result["environment"] += value.get("pass_env") or ()
        # The provider of a model loads these.
        for name in value.get("files") or ():
            if name.startswith(("https://", "http://")):
                result["hosts"].append(urlsplit(name).hostname or name)
        if isinstance(part, CodingAgentSpec):
            result["agents"].append(f"{part.cli} sends what it reads to its own provider")


def _collect_hosts(model: str, url: str | None, result: dict[str, list[str]]) -> None:
    """Collect the host of a model or a server, and the names of the variables with its keys."""
    from ..models.providers.endpoints import provider_of

    result["hosts"] += hosts_of(model, url)
    if not url and (provider := provider_of(model)) is not None:
        result["environment"] += (*provider.keys, *provider.places)


def _all_actions(action: Action) -> Iterator[Action]:
    yield action
    for inner in inner_actions(action):
        yield from _all_actions(inner)


def _described(step: StepSpec) -> dict[str, Json]:
    row = {
        "needs": step.needs,
        "if": step.if_,
        "limit": _limit(step),
        "python": step.python,
        "workflow": step.workflow,
        "tools": step.tools or (step.tool and [step.tool]),
        "shell": step.shell and command_line(step.shell),
    }
    return {"name": step.name, "kind": step.kind, **{k: v for k, v in row.items() if v}}


def _evaluation(spec: EvalSpec, loaded: LoadedDocument, file: str) -> dict[str, Json]:
    cases = cases_of(spec.dataset, loaded, file)
    return {
        "dataset": spec.dataset.file, "cases": cases, "repeat": spec.repeat, "task": spec.task.kind,
    }  # fmt: skip


def _limit(step: StepSpec) -> int | None:
    """Return the maximum of iterations or items of a step; None if it has no such limit."""
    if step.loop is not None:
        return condition_limit(step.loop)
    if step.each is not None:
        return step.each.max_items or MOST_ITEMS
    if step.phased is not None:
        limits, cap = phase_limits(step.phased)
        return min(sum(limits.values()), cap)
    return None if step.reasoning is None else step.reasoning.max_iterations


def _bounds(loaded: LoadedDocument, root: Document) -> dict[str, Json]:
    bounds: dict[str, Json] = {"ceiling": CEILING, "default_iterations": DEFAULT_LIMIT}
    if loaded.budget is not None:
        bounds["budget"] = loaded.budget.to_json()["budget"]
    if loaded.limits:
        bounds["limits"] = {
            name: {key: value for key, value in asdict(limits).items() if value}
            for name, limits in loaded.limits.items()
        }
    if root.timeout is not None:
        bounds["timeout"] = root.timeout
    for document in loaded.documents.values():
        for step, action in ((s, a) for s in document.steps for a in _all_actions(s)):
            if action.loop is not None:
                name = getattr(action, "name", "") or f"{step.name}/execute"
                bounds.setdefault("loops", {})[name] = condition_limit(action.loop)
    return bounds


def _shapes(loaded: LoadedDocument) -> Iterator[str]:
    """Iterate over lines on the loops with candidates, chains, an optimiser or a rule for the parent."""
    for file, document in loaded.documents.items():
        for step, action in ((s, a) for s in document.steps for a in _all_actions(s)):
            loop = action.loop
            if loop is None or not (
                loop.candidates or loop.on_stall or loop.refine_from or loop.optimise
            ):
                continue
            stall, rule = loop.on_stall, loop.refine_from
            several = loop.candidates
            count = several.n if isinstance(several, CandidatesSpec) else several or 1
            parts = [f"≤ {plural(condition_limit(loop), 'iteration')}"]
            if count > 1:
                parts[0] = f"{plural(count, 'candidate')} × {parts[0]}"  # noqa: RUF001
            if rule is not None:
                parts.append(f"from {getattr(rule, 'rule', rule)}")
            if stall is not None:
                then, patience = (
                    (stall, OnStall.patience)
                    if isinstance(stall, str)
                    else (stall.then, stall.patience)
                )
                does = {"ask": "a person is asked", "stop": "the end"}.get(then, "a new chain")
                parts.append(f"{does} after {plural(patience, 'stall')}")
            if loop.optimise is not None:
                by = loop.optimise.by
                parts.append(f"parameters by {by if isinstance(by, str) else ', then '.join(by)}")
            if loop.strategies:
                parts.append(
                    f"{len(loop.strategies)} {'strategy' if len(loop.strategies) == 1 else 'strategies'}"
                )
            name = getattr(action, "name", "") or f"{step.name}/execute"
            worst = plural(_loop_calls(loop, loaded, file), "call")
            yield f"{name}: {', '.join(parts)}, worst case {worst}"


def _calls(action: Action, loaded: LoadedDocument, file: str) -> int:
    """Return the maximum of model calls of an action, without calls that are repeated after an error."""
    tries = action.max_retries + 1 if action.on_failure == "retry" else 1
    own = len(action.consensus.voters) if action.consensus else 0
    # With tools: each reply that calls tools, and the answer.
    if action.prompt is not None:
        from ..prompts.tool_prompt import MAX_ROUNDS

        own = (action.max_tool_rounds or MAX_ROUNDS) + 1 if action.tools else 1
        own += int(getattr(action.conversation, "summary", False))
    if action.loop is not None:
        own += _loop_calls(action.loop, loaded, file)
    elif action.phased is not None:
        own += _phased_calls(action.phased, loaded, file)
    elif action.reasoning is not None:
        agent = action.reasoning
        per_iteration = agent.max_tool_rounds + 1 if agent.tools else 1
        own += per_iteration * (agent.max_iterations if agent.mode == "iterate" else 1)
    elif action.each is not None:
        tries *= action.each.max_retries + 1 if action.each.on_failure == "retry" else 1
        own += _calls(action.each.execute, loaded, file) * (action.each.max_items or MOST_ITEMS)
    elif (improved := action.gepa) is not None:
        judged = sum(_evaluation_calls(one, loaded, file) for one in evaluators(improved))
        # The last proposal may begin just before the limit: two minibatches of three cases, and all cases.
        cases = improved.max_metric_calls + 6 + cases_of(improved.dataset, loaded, file)
        own += cases * (_calls(improved.run, loaded, file) + judged)
        own += improved.max_metric_calls // 3 + 1  # a reflection follows on a minibatch
    elif action.workflow is not None:
        called = loaded.calls.get((file, action.workflow), "")
        child = loaded.documents.get(called)
        own += _calls_of(child, loaded, called) if child else 0
    else:
        own += sum(_calls(inner, loaded, file) for inner in inner_actions(action))
    return own * tries


def _calls_of(document: Document, loaded: LoadedDocument, file: str) -> int:
    """Return the maximum of model calls of a document."""
    if document.eval is None:
        return sum(_calls(step, loaded, file) for step in document.steps)
    calls = calls_of_case(document.eval.task, document.eval, loaded, file)
    return calls * cases_of(document.eval.dataset, loaded, file) * document.eval.repeat


def cases_of(data: DatasetFile, loaded: LoadedDocument, file: str) -> int:
    """Return how many cases of a data set are run at most."""
    return loaded.cases.get(Path(os.path.realpath(Path(file).parent / data.file)), 1)


def calls_of_case(
    action: Action, judged: EvalSpec | DatasetSpec, loaded: LoadedDocument, file: str
) -> int:
    """Return the maximum of model calls for one case."""
    own = sum(_evaluation_calls(evaluator, loaded, file) for evaluator in evaluators(judged))
    return (_calls(action, loaded, file) + own) * (
        1 if judged.errors is None else judged.errors.retry + 1
    )


def calls_of_iteration(loop: LoopSpec, loaded: LoadedDocument, file: str) -> int:
    """Return the maximum of model calls of one iteration, without calls that are repeated after an error."""
    judged = sum(_evaluation_calls(evaluator, loaded, file) for evaluator in evaluators(loop))
    own = loop.node.calls if loop.node is not None else 0
    each, several = _calls(loop.execute, loaded, file) + judged, loop.candidates
    if isinstance(several, CandidatesSpec):
        if several.judge is not None:  # the two best, in both orders
            own += 2 * REQUESTS_PER_VOTE
        if several.combine is not None:
            own += _calls(several.combine, loaded, file) + judged
        several = max(several.n, several.first or 0)
    if loop.confirm is not None:  # the output and its base are measured anew, in stages
        default = 3 if any(one.dataset is not None for one in evaluators(loop)) else 12
        own += 2 * judged * (loop.confirm.stages[-1] if loop.confirm.stages else default)
    return each * (several or 1) + own


def _loop_calls(loop: LoopSpec, loaded: LoadedDocument, file: str) -> int:
    per_iteration, after = calls_of_iteration(loop, loaded, file), 0
    for evaluator in evaluators(loop):
        if (judge := evaluator.judge_spec) is not None:
            from ..evaluators.judge import KNOWN_BAD

            tests = len(KNOWN_BAD) if judge.self_test else 0
            # The winner is judged again with all votes, `rejudge` times.
            after += judge.rejudge * _judge_calls(judge)
            after += tests * len(judge.criteria or (1,)) * _calls_per_vote(judge)
        if evaluator.confidence is not None:
            # The criteria are derived from the goal once, in the first iteration.
            after += 0 if evaluator.confidence.criteria else 1
    tries = loop.max_retries + 1 if loop.on_failure == "retry" else 1
    return per_iteration * min(condition_limit(loop), CEILING) * tries + after


def _phased_calls(agent: PhasedSpec, loaded: LoadedDocument, file: str) -> int:
    """Return the maximum of model calls of a phased agent that enters each phase once."""
    limits, cap = phase_limits(agent)
    judged = sum(_evaluation_calls(evaluator, loaded, file) for evaluator in evaluators(agent))
    tries = agent.max_retries + 1 if agent.on_failure == "retry" else 1
    # The phases share one limit, so a later phase may have fewer iterations than its own limit.
    total, remaining = 0, cap
    for phase, action in phases_of(agent):
        iterations = min(limits[phase], remaining)
        remaining -= iterations
        per_iteration = _calls(action, loaded, file) + (0 if phase == "planning" else judged)
        total += iterations * per_iteration * tries
    return total


def _evaluation_calls(evaluator: EvaluateSpec, loaded: LoadedDocument, file: str) -> int:
    """Return the maximum of model calls of one evaluation."""
    result = 0
    if (judge := evaluator.judge_spec) is not None:
        result += _judge_calls(judge)
    if evaluator.confidence is not None:
        result += REQUESTS_PER_VOTE
    if evaluator.score is not None and evaluator.score.of is not None:
        result += _calls(evaluator.score.of, loaded, file)
    if (data := evaluator.dataset) is not None:
        own = calls_of_case(data.run, data, loaded, file) * data.repeat
        # The output and its parent on the minibatch.
        size = 0 if data.minibatch is None else 2 * data.minibatch.size
        result += own * (cases_of(data, loaded, file) + size)
    return result


def _judge_calls(judge: JudgeSpec) -> int:
    """Return the maximum of model calls of one verdict."""
    from ..evaluators.judge import votes_of

    votes = votes_of(judge.max_votes, judge.accept_lead, judge.reject_lead, judge.confirm).most
    return votes * len(judge.criteria or (1,)) * _calls_per_vote(judge)


def _calls_per_vote(judge: JudgeSpec) -> int:
    """Return the maximum of model calls of one vote, which is repeated once if it is unreadable.

    With tools, the calls are every reply that calls tools, and the answer.
    """
    from ..prompts.tool_prompt import MAX_ROUNDS

    replies = (judge.max_tool_rounds or MAX_ROUNDS) + 1 if judge.tools else 1
    return REQUESTS_PER_VOTE * replies


_LIST = re.compile(r"steps\[(\d+)\]\.each\.items")
TIMEOUT = 1.0  # seconds that a server on this machine may take to answer


def missing(
    loaded: LoadedDocument, environ: Mapping[str, str], *, offline: bool = False
) -> list[Problem]:
    """Return what a document needs and this machine lacks, each with its place and a remedy.

    `offline` contacts nothing.
    """
    servers = _Servers(offline=offline)
    result: list[Problem] = []
    for place, prompt_settings in loaded.asks:
        result += [
            replace(place, message=words)
            for words in _missing_for_models(prompt_settings, environ, servers)
        ]
    for file, document in loaded.documents.items():
        source = loaded.sources[file]
        for name, server in document.servers.items():
            at = ("servers", name)
            result += [
                source.problem(at, words) for words in _missing_for_server(server, environ, servers)
            ]
    for place, missing_here in loaded.needs:
        if place.path.endswith("each.items") and _may_be_written(loaded, place):
            continue
        if words := missing_here():
            result.append(replace(place, message=words))
    return list(dict.fromkeys(result))


def _may_be_written(loaded: LoadedDocument, place: Problem) -> bool:
    """Return whether another step of the run may write the file of the list at a place."""
    (document, *called), step = loaded.documents.values(), _LIST.fullmatch(place.path)
    if called or step is None:
        return True
    others = [one for i, one in enumerate(document.steps) if i != int(step[1])]
    rest = document.model_copy(update={"steps": others})
    acts = any(
        getattr(part, "tools", None) or getattr(part, "tool", None) for part in parts(others)
    )
    return acts or any(commands_in(rest)) or any(functions_in(rest))


class _Servers:
    """The servers of this machine, each contacted once."""

    def __init__(self, *, offline: bool) -> None:
        self.offline = offline
        self._results: dict[tuple[str, int], bool] = {}

    def unreachable(self, url: str) -> bool:
        """Return whether no server answers at the address of a server on this machine."""
        from ..models.providers.endpoints import is_loopback_name

        parts = urlsplit(url)
        host = parts.hostname or ""
        # A check must not contact hosts on the network: that could cost time, or reveal the project.
        if self.offline or not is_loopback_name(host):
            return False
        address = host, parts.port or (443 if parts.scheme == "https" else 80)
        if address not in self._results:
            self._results[address] = False
            with suppress(OSError), socket.create_connection(address, TIMEOUT):
                self._results[address] = True
        return not self._results[address]


def _missing_for_models(
    prompt_settings: PromptSettings, environ: Mapping[str, str], servers: _Servers
) -> list[str]:
    """Return a problem for each model; none if one of them is available."""
    result = []
    for name in prompt_settings.models:
        words = _missing_for_model(name, prompt_settings, environ, servers)
        # Models of a list replace each other (rule 4).
        if not words:
            return []
        result.append(f"{name}: {words}")
    return result


def _missing_for_model(
    name: str, prompt_settings: PromptSettings, environ: Mapping[str, str], servers: _Servers
) -> str:
    from ..models.protocol import Message, Request
    from ..models.providers.endpoints import endpoint_of
    from ..models.registry import split_model

    provider, model = split_model(name)
    # The endpoint does not depend on the messages, but a request needs one.
    messages = (Message("user", "?"),)
    request = Request(
        messages,
        model,
        provider,
        base_url=prompt_settings.base_url,
        api_key_env=prompt_settings.api_key_env,
    )
    try:
        endpoint = endpoint_of(request, environ)
    except ConfigurationError as error:
        return str(error)
    if missing_extra(endpoint.extra):
        return sentence(f"the provider {endpoint.provider}", endpoint.extra)
    if servers.unreachable(endpoint.base_url):
        return f"no server answers at {endpoint.base_url}; start it, or check with --offline"
    return ""


def _missing_for_server(
    server: ServerSpec, environ: Mapping[str, str], servers: _Servers
) -> Iterator[str]:
    if missing_extra("mcp"):
        yield sentence("an MCP server", "mcp")
    if server.token_env and not environ.get(server.token_env, "").strip():
        yield f"the server needs the token in {server.token_env}, which is not set in the environment"
    if server.url and servers.unreachable(server.url):
        yield f"no server answers at {server.url}; start it, or check with --offline"
