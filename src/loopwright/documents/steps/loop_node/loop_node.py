"""A loop node: a scored loop over groups of agents, with lessons for later iterations and, on request, for later runs."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ...._regex import Pattern, PatternTimeout, compile_pattern
from ....engine.composites import Wrapper
from ....engine.context import Context, Scope
from ....engine.loop import Loop
from ....engine.step import CompositeStep, Leaf, Step, StepLike, digest_of, fingerprinted
from ....engine.workflow import Workflow
from ....evaluators.answers import AGENTS, LAST, agents_in, reply_text
from ....prompts.prompt import Prompt, Reask
from ....records import Evaluation, Iteration, Reason, Result, Status
from ....records.codec import Json, text_of
from ....templates import Template, TemplateError
from ..memory import ReadMemory, WriteMemory
from .scoring import Scorer, looks_like_scorer
from .template_functions import helpers, node_template, node_value, only_expression, written
from .template_view import CATEGORIES, MAX_ENTRIES, LoopNodeView, NodeScope, notes_of, past_loops

__all__ = [
    "DEFAULT_METADATA",
    "AgentGroup",
    "AgentsAtOnce",
    "LoopNode",
    "LoopNodeEvaluator",
    "LoopNodeLessons",
    "extract",
    "ungrouped",
]

# By ID, because the dialect has no field that says which agent judges and which one works.
_JUDGES = re.compile(r"evaluat|critic|judge|validat|review|check|assess", re.IGNORECASE)
DEFAULT_METADATA: Mapping[str, Json] = MappingProxyType(
    {name: f"{{{{ {name} }}}}" for name in ("loop_number", "score", "timestamp", *CATEGORIES)}
)


class AgentGroup(Workflow):
    """Agents in sequence. The output maps each agent that was not skipped to its output.

    `marked` puts the map under one key, by which outer groups and templates recognise a group. `last` makes
    the output of the last agent the output outside of the workflow.
    """

    def __init__(
        self, name: str, steps: Mapping[str, StepLike], *, marked: bool, last: bool, **options: Any
    ) -> None:
        super().__init__(name, steps, **options)
        self.marked = marked
        self.last = last

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("agents", super().fingerprint)

    async def inside(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run the agents with their variables in `scope`."""
        result = await super().inside(scope, value, ctx)
        agents = agents_in({k: output for k, output in scope.outputs.items() if output is not None})
        if not self.marked:
            return replace(result, output=self._last(agents, value, ctx) if self.last else agents)
        last = {LAST: self._last(agents, value, ctx)} if self.last else {}
        return replace(result, output={AGENTS: agents, **last})

    def _last(self, agents: Mapping[str, Json], value: Json, ctx: Context) -> Json:
        """Return the output of the last agent, or of the last one before the group if none ran."""
        before = agents_in(ctx.scope.outputs) if ctx.scope is not None else {}
        outputs = [output for output in (agents or before).values() if output is not None]
        return outputs[-1] if outputs else value


@dataclass(frozen=True)
class AgentsAtOnce(Wrapper):
    """Concurrent branches of agents. The output maps the agents of all branches to their outputs."""

    name: str
    inner: CompositeStep

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("branches", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the branches."""
        result = await self.inner.run(value, ctx)
        return replace(result, output={AGENTS: agents_in(result.output or {})})


def ungrouped(output: Json) -> Json:
    """Return an output for steps outside of a group: the map of its agents, or its last output."""
    if isinstance(output, Mapping) and AGENTS in output:
        return ungrouped(output[LAST]) if LAST in output else agents_in(output[AGENTS])
    return output


@dataclass(frozen=True)
class LoopNodeLessons:
    """The settings of the entry of each iteration.

    `patterns` are regular expressions by category (insights, improvements, mistakes) whose first group is the
    lesson. `metadata` holds the templates of an entry, `max_chars` is the limit of a category in characters,
    `max_entries` the number of entries in a template, and `persist` the ID under which entries outlive the run
    ("": they do not).
    """

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: Mapping[str, Json] = field(default_factory=lambda: DEFAULT_METADATA)
    max_chars: int = 300
    max_entries: int = MAX_ENTRIES
    persist: str = ""

    def compiled(self) -> tuple[dict[str, list[Pattern]], dict[str, Template]]:
        """Return the patterns and templates, compiled.

        Raises:
            ConfigurationError: for an invalid pattern or template.
        """
        patterns = {
            category: [compile_pattern(f"(?s){text}", ignore_case=True) for text in texts]
            for category, texts in self.patterns.items()
        }
        texts = {name: text for name, text in self.metadata.items() if isinstance(text, str)}
        return patterns, {name: node_template(text) for name, text in texts.items()}

    @property
    def fingerprint(self) -> str:
        """A digest of the settings."""
        patterns, metadata = dict(self.patterns), dict(self.metadata)
        settings = (patterns, metadata, self.max_chars, self.max_entries, self.persist)
        return digest_of("lessons", repr(settings))


def extract(
    patterns: Mapping[str, list[Pattern]], outputs: Mapping[str, Json], max_chars: int
) -> dict[str, str]:
    """Return the lessons of an iteration by category, in the order of the agents, each once."""
    by_category = dict.fromkeys(CATEGORIES, "")
    texts = [reply_text(output) for output in agents_in(outputs).values()]
    for category, compiled in patterns.items():
        lessons: dict[str, str] = {}
        for text in texts:
            for pattern in compiled:
                for lesson in _lessons(pattern, text):
                    lessons.setdefault(lesson.lower(), lesson)
        joined = " | ".join(lessons.values())
        cut = joined[: max(max_chars - 3, 0)] + "..."[:max_chars]
        by_category[category] = joined if len(joined) <= max_chars else cut
    return by_category


def _lessons(pattern: Pattern, text: str) -> list[str]:
    try:
        groups = [match.groups[0] for match in pattern.finditer(text) if match.groups]
    except PatternTimeout:  # lessons are optional, so a slow pattern must not end the loop
        return []
    lessons = (" ".join((group or "").split()) for group in groups)
    return [lesson for lesson in lessons if lesson]


class RecordLessons(Leaf):
    """The step that creates the entry of an iteration. It is recorded, so later iterations see the same."""

    fingerprint: str

    name = "lessons"

    def __init__(self, lessons: LoopNodeLessons) -> None:
        self.lessons = lessons
        self.fingerprint = lessons.fingerprint
        self.patterns, self.templates = lessons.compiled()
        self.expressions = {
            name: node_value(expression)
            for name, template in self.templates.items()
            if (expression := only_expression(template.source))
        }

    async def act(self, value: Mapping[str, Json], ctx: Context) -> dict[str, Json]:
        """Return the entry: its metadata as text, or as a number where a template is one."""
        outputs, score = value["outputs"], value["score"]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ctx.run.clock.wall()))
        lessons = extract(self.patterns, outputs, self.lessons.max_chars)
        # Without a match, the failed criteria of a validator are the mistakes.
        if not lessons["mistakes"]:
            lessons["mistakes"] = ", ".join(text_of(name) for name in value.get("failed", ()))
        own: dict[str, Json] = {
            "loop_number": value["number"],
            "score": "" if score is None else score,
            "timestamp": stamp,
            **lessons,
        }
        entry = self._entry(LoopNodeView(ctx, value, outputs), own, ctx)
        # Templates of later iterations read these fields, also if the document's entry leaves them out.
        for name in ("loop_number", "score", "timestamp"):
            entry.setdefault(name, own[name])
        return {"entry": entry, "lessons": {**lessons}}

    def _entry(self, view: LoopNodeView, own: Mapping[str, Json], ctx: Context) -> dict[str, Json]:
        agents = view.agents
        values = {
            **view.values,
            "reasoning_quality": reply_text(agents.get("REASONING_QUALITY", 0.0)),
            "convergence_trend": reply_text(agents.get("CONVERGENCE_TREND", "STABLE")),
            **own,
        }
        entry: dict[str, Json] = {}
        for name, text in self.lessons.metadata.items():
            entry[name] = text
            if name in self.templates:
                try:
                    entry[name] = written(self.templates[name], view, values, ctx)
                    if name in self.expressions:
                        value = self.expressions[name].evaluate(values, helpers(view))
                        if isinstance(value, int | float) and not isinstance(value, bool):
                            entry[name] = value
                except TemplateError as error:
                    ctx.warn(f"past_loops_metadata.{name}: {error}", code="template_failed")
                    entry[name] = ""
        return entry


@dataclass(frozen=True)
class LoopNodeEvaluator(CompositeStep):
    """The evaluator of a loop node: the score, and the entry for later iterations.

    `prompts` are the prompts of agents that are asked again if their reply has no score.
    """

    scorer: Scorer
    lessons: LoopNodeLessons
    name: str = "evaluate"
    prompts: Mapping[str, Prompt] | None = None

    @functools.cached_property
    def record(self) -> RecordLessons:
        """The step that makes the entry."""
        return RecordLessons(self.lessons)

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the scorer and of the entry."""
        again = [] if self.prompts is None else [f"again {' '.join(self.prompts)}"]
        return digest_of("score_round", repr(self.scorer), self.lessons.fingerprint, *again)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Score the outputs of an iteration and record its lessons."""
        outputs = value if isinstance(value, Mapping) else {"output": value}
        evaluation = self.scorer.evaluate(outputs)
        if evaluation.undecided and self.prompts:
            evaluation, outputs = await self._reask(self.prompts, evaluation, outputs, ctx)
        if evaluation.undecided:
            ctx.warn(
                f"no score in iteration {ctx.iteration}: {evaluation.feedback}",
                code="score_missing",
            )
        facts = {
            "outputs": outputs,
            "score": evaluation.score,
            "number": ctx.iteration,
            "failed": _failed(evaluation, outputs),
        }
        # A recorded effect: the entry has a timestamp, which a replay must repeat.
        recorded = await ctx.call("lessons", self.record, facts)
        entry, lessons = recorded["entry"], recorded["lessons"]
        # Once for each iteration, so that a run that ends early leaves its lessons too.
        if self.lessons.persist:
            await ctx.call("remember", WriteMemory(self.lessons.persist), entry)
        evaluation = replace(
            evaluation,
            feedback=evaluation.feedback or lessons["improvements"],
            votes=(*evaluation.votes, {"past_loop": entry, "lessons": lessons}),
        )
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", evaluation, name=self.name)

    async def _reask(
        self,
        prompts: Mapping[str, Prompt],
        evaluation: Evaluation,
        outputs: Mapping[str, Json],
        ctx: Context,
    ) -> tuple[Evaluation, Mapping[str, Json]]:
        """Ask the scoring agent once more; return the evaluation and the outputs with its new reply."""
        agents = agents_in(outputs)
        agent = next((name for name in self.scorer.candidates(outputs) if name in prompts), None)
        if agent is None:
            return evaluation, outputs
        # The agent sees the outputs of the others, but not its own unreadable reply as an output.
        scope = Scope(agent, ctx.scope.current if ctx.scope else None, ctx.scope)
        scope.outputs = {name: output for name, output in agents.items() if name != agent}
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        complaint = (
            "No score could be read in that reply. Reply once more, and state your score as "
            f"{self.scorer.wanted()}."
        )
        request = {"reply": reply_text(agents[agent]), "complaint": complaint}
        reply = await inner.call("re_ask", Reask(prompts[agent], agent), request)
        outputs = {**agents, agent: reply}
        evaluation = self.scorer.evaluate(outputs)
        return replace(evaluation, votes=(*evaluation.votes, {"asked_again": agent})), outputs


def _failed(evaluation: Evaluation, outputs: Mapping[str, Json]) -> list[Json]:
    """Return the failed criteria of the score, otherwise those that validators name."""
    votes = (vote for vote in evaluation.votes if isinstance(vote, Mapping))
    scored = [name for vote in votes for name in vote.get("failed", ())]
    replies = (out for out in agents_in(outputs).values() if isinstance(out, Mapping))
    lists = (reply.get("failed_criteria") for reply in replies)
    named = [name for names in lists if isinstance(names, list) for name in names]
    return list(dict.fromkeys(scored or named))


@dataclass(frozen=True)
class LoopNode(CompositeStep):
    """A loop node as a step: it runs its loop and returns the output object of the dialect.

    `response` is the text of the last agent in the chosen iteration that neither scores nor judges. `result`
    has the outputs by agent. `timeout_score` is the score of a loop that timed out before its first score.
    """

    loop: Loop
    threshold: float
    lessons: LoopNodeLessons
    timeout_score: float | None = None
    required: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The ID of the node."""
        return self.loop.name

    @property
    def accept(self) -> tuple[str, ...]:
        """The statuses that do not count for its workflow."""
        return tuple(self.loop.accept)

    @property
    def depth(self) -> int:
        """The number of nested loops."""
        return self.loop.depth

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the loop and of its entries."""
        scores = f"{self.threshold} {self.timeout_score}"
        return digest_of("loop_node", self.loop.fingerprint, scores, self.lessons.fingerprint)

    def parts(self) -> Iterable[Step]:
        return [self.loop]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the loop and return its output object."""
        scope = NodeScope(self.name, value, ctx.scope, ctx.path)
        scope.threshold, scope.max_entries = self.threshold, self.lessons.max_entries
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        if self.lessons.persist:
            recall = ReadMemory(self.lessons.persist, self.lessons.max_entries)
            scope.recalled = await inner.call("recall", recall, self.lessons.persist)
        result = await self.loop.run(value, inner)
        if ctx.scope is not None:
            ctx.scope.keep_loop(self.name, result)
        if result.status is Status.FAILED:
            return result
        return replace(result, output=self._output(result, scope.recalled, value))

    def _output(self, result: Result, recalled: list[Json], value: Json) -> dict[str, Json]:
        history = result.history
        last = history.last
        best = result.best or history.latest_eligible or last
        # A satisfied loop ends with the iteration that satisfied it, which may not be the best one.
        chosen = last if result.satisfied or self.loop.keep == "last" else best
        outputs = chosen.output if chosen is not None and isinstance(chosen.output, Mapping) else {}
        agents = agents_in(outputs)
        final = chosen.score if chosen is not None else None
        if final is None and result.reason is Reason.TIMEOUT:
            final = self.timeout_score
        return {
            "response": _response(agents, chosen),
            "result": {agent: _result(output) for agent, output in agents.items()},
            "loops_completed": sum(not item.interrupted for item in result.history),
            "final_score": final,
            "threshold_met": result.satisfied,
            "past_loops": past_loops(history, recalled, self.lessons.max_entries),
            "rounds": [{"iteration": item.number, "score": item.score} for item in history],
            "last_score": last.score if last is not None else None,
            "input": value if isinstance(value, str) else text_of(value),
        }


def _result(output: Json) -> Json:
    """Return an agent's output: an object unchanged, so that its fields can be read, otherwise its text."""
    return dict(output) if isinstance(output, Mapping) else reply_text(output)


def _response(agents: Mapping[str, Json], chosen: Iteration | None) -> str:
    """Return the text of the last agent that does not score or judge, or of the last agent if all do."""
    if not agents:
        return ""
    notes = notes_of(chosen) if chosen is not None else iter(())
    scorers = {note["agent"] for note in notes if "agent" in note}
    others = [a for a in agents if a not in scorers and not looks_like_scorer(a)]
    workers = [agent for agent in others if not _JUDGES.search(agent)]
    name = (workers or others or list(agents))[-1]
    return reply_text(agents[name])
