"""Loop nodes: scored loops over groups of agents that learn from past iterations, on request from past runs.

The score of an iteration is read from the outputs of its agents. Entries of its iterations, and texts of a namespace, outlive
the run. An entry has the key of the effect that wrote it, so an effect that is repeated after a crash does not write it
twice. Any number of runs may append at the same time.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ..._regex import Pattern, PatternTimeout, compile_pattern
from ...engine.composites import Wrapper
from ...engine.context import Context, Scope
from ...engine.loop import Loop
from ...engine.loop_memory import MemoryEffect, memory_of
from ...engine.step import CompositeStep, Leaf, Step, StepLike, digest_of, fingerprinted
from ...engine.workflow import Workflow
from ...errors import JournalError, StepError
from ...evaluators.answers import objects_in
from ...evaluators.score import ScoreReading, finder, read_score, read_score_by_pattern
from ...evaluators.trend import agreement
from ...memory import ranked, view_of
from ...models.reply_text import clean_text, normalise_reply
from ...prompts.prompt import Prompt, Reask
from ...records import Evaluation, Iteration, Reason, Result, Status
from ...records.codec import Json, text_of
from ...templates import Template, TemplateError
from ...templates.variables import TemplatedValue, rendered
from .presets import weighted
from .templates import (
    AGENTS,
    CATEGORIES,
    LAST,
    MAX_ENTRIES,
    LoopNodeView,
    NodeScope,
    agents_in,
    helpers,
    node_template,
    node_value,
    notes_of,
    only_expression,
    past_loops,
    reply_text,
    written,
)

__all__ = [
    "BUILT_IN",
    "DEFAULT_METADATA",
    "AgentGroup",
    "AgentsAtOnce",
    "LoopNode",
    "LoopNodeEvaluator",
    "LoopNodeLessons",
    "MemoryRead",
    "MemoryWrite",
    "Scorer",
    "Strategy",
    "extract",
    "looks_like_scorer",
    "ungrouped",
]

# The labels that are searched if the document has no pattern.
BUILT_IN = tuple(
    rf"{label}\s*[:=]\s*([0-9.]+)"
    for label in (
        "SCORE", "FINAL[_ ]SCORE", "QUALITY(?:[_ ]SCORE)?", "RATING", "CONSENSUS(?:[_ ]SCORE)?",
        "AGREEMENT(?:[_ ]SCORE)?", "CONFIDENCE", "OVERALL(?:[_ ]SCORE)?",
    )
)  # fmt: skip
_LOOKS_LIKE = re.compile(r"scor|(?<![a-z])rat(?:er|ing)|moderator", re.IGNORECASE)
# The members of a validator's output, the more precise one first.
_VALIDATOR_SCORES = ("weighted_score", "validation_score")


def looks_like_scorer(agent: str) -> bool:
    """Return whether the ID of an agent is that of a scorer."""
    return _LOOKS_LIKE.search(agent) is not None


@dataclass(frozen=True)
class Strategy:
    """One way to read a score: by patterns in text, or from the field `key` of the output.

    Only the outputs of `agents` are read, in that order. Default: all agents that may score.
    """

    patterns: tuple[str, ...] = ()
    key: str = ""
    agents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scorer:
    """The rules for the score: the booleans of a preset, then strategies over the outputs of agents.

    Only the agents in `first` are read if there are any, otherwise only those with the ID of a scorer,
    otherwise all of them from the last to the first. The last of several matches counts. With `earliest`,
    all agents are read in the order in which they ran, and the first match counts. Without a match the
    score is the agreement of two or more agents if `agree` is set, otherwise `fallback`, otherwise
    undecided. `scale` is the scale of numbers without a unit.
    """

    # The names of these fields, and those of `Strategy`, are part of recorded fingerprints, by `repr`.
    strategies: tuple[Strategy, ...] = (Strategy(BUILT_IN),)
    first: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    fallback: float | None = None
    scale: tuple[float, float] = (0.0, 1.0)
    earliest: bool = False
    agree: bool = False

    def evaluate(self, outputs: Mapping[str, Json]) -> Evaluation:
        """Return the evaluation of the outputs by agent; undecided if there is no score."""
        agents = agents_in(outputs)
        for agent, output in agents.items() if self.weights else ():
            for data in objects_in(output):
                result = weighted(data.get("boolean_evaluations", data), self.weights)
                if result is not None:
                    return _evaluated(agent, *result)
        problem = "no agent gave a score"
        for agent, reading in self._readings(agents):
            if reading.score is not None:
                note: dict[str, Json] = {"agent": agent, "found": list(reading.found)}
                if reading.ambiguous:
                    note["ambiguous"] = True
                return Evaluation(reading.score, votes=(note,))
            # "Off its scale" explains more than "no agent gave a score".
            if reading.problem != "missing":
                problem = f"{agent}: {reading.detail}"
        if (evaluation := self._validators(agents)) is not None:
            return evaluation
        texts = [text for text in map(reply_text, agents.values()) if text.strip()]
        # Their agreement, if it is allowed and no agent should have scored.
        if self.agree and len(texts) > 1 and not any(agent in agents for agent in self.first):
            return Evaluation(agreement(texts), votes=({"agreement_of": list(agents)},))
        if self.fallback is not None:
            return Evaluation(self.fallback, feedback=f"{problem}; the fallback score is used")
        return Evaluation(undecided=True, feedback=problem)

    def candidates(self, outputs: Mapping[str, Json]) -> list[str]:
        """Return the agents that are expected to score, the most likely first."""
        agents = agents_in(outputs)
        named = next((s.agents for s in self.strategies if s.agents), ())
        return [agent for agent in named if agent in agents] or self._order(agents)

    def wanted(self) -> str:
        """Return the expected form of a score in words."""
        low, high = self.scale
        number = f"a number from {low:g} to {high:g}"
        pattern = next((text for s in self.strategies for text in s.patterns), BUILT_IN[0])
        like = f"`SCORE: {low + 0.85 * (high - low):g}`"
        return f"{number}, like {like}" if pattern in BUILT_IN else f"{number} that {pattern} finds"

    def _order(self, agents: Mapping[str, Json]) -> list[str]:
        named = [agent for agent in self.first if agent in agents]
        if self.earliest:
            return [*named, *(agent for agent in agents if agent not in named)]
        if named:
            return named
        latest = list(reversed(list(agents)))
        return [agent for agent in latest if looks_like_scorer(agent)] or latest

    def _readings(self, agents: Mapping[str, Json]) -> Iterator[tuple[str, ScoreReading]]:
        for strategy in self._one_by_one() if self.earliest else self.strategies:
            named = [agent for agent in strategy.agents if agent in agents]
            for agent in named if strategy.agents else self._order(agents):
                yield agent, self._by(strategy, agents[agent])

    def _one_by_one(self) -> Iterator[Strategy]:
        """Iterate over the strategies, one for each pattern, so that each pattern is tried on all agents."""
        for strategy in self.strategies:
            yield from (replace(strategy, patterns=(text,)) for text in strategy.patterns)
            if not strategy.patterns:
                yield strategy

    def _by(self, strategy: Strategy, output: Json) -> ScoreReading:
        if not strategy.key:
            return _read(reply_text(output), strategy.patterns, self.scale, self.earliest)
        for data in objects_in(output):
            if strategy.key in data:
                return self._field(data[strategy.key])
        if strategy.agents and strategy.key == "response":
            return self._field(reply_text(output))
        return read_score("", label="score")

    def _field(self, value: Json) -> ScoreReading:
        """Read a field: a number, or a text in which a pattern finds one."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return read_score("", label="score")
        alone = read_score(str(value), label=None, scale=self.scale)
        if alone.score is not None or not isinstance(value, str):
            return alone
        patterns = tuple(p for s in self.strategies for p in s.patterns)
        return _read(value, patterns or BUILT_IN, self.scale, self.earliest)

    def _validators(self, agents: Mapping[str, Json]) -> Evaluation | None:
        """Return the score of the last validator among the agents."""
        fields = (
            (agent, data, key)
            for agent in reversed(list(agents))
            for data in objects_in(agents[agent])
            for key in (_VALIDATOR_SCORES if "boolean_evaluations" in data else ())
        )
        for agent, data, key in fields:
            score = read_score(str(data.get(key, "")), label=None).score
            if score is not None:
                failed = data.get("failed_criteria")
                return _evaluated(agent, score, list(failed) if isinstance(failed, list) else [])
        return None


def _evaluated(agent: str, score: float, failed: list[str]) -> Evaluation:
    votes: tuple[Json, ...] = ({"agent": agent, "failed": failed},)
    return Evaluation(score, feedback=", ".join(failed), improvements=tuple(failed), votes=votes)


def _read(
    text: str, patterns: tuple[str, ...], scale: tuple[float, float], earliest: bool
) -> ScoreReading:
    """Return the last score that a pattern matches, or the first, in text with or without its emphasis."""
    nearest = read_score("", label="score")
    for pattern in patterns:
        for searched in dict.fromkeys((normalise_reply(text), clean_text(text))):
            try:
                matches = finder(pattern)(searched)
                reading = read_score_by_pattern(searched, matches, scale, first=earliest)
            # A slow pattern of the document must not end the loop; the next one may match.
            except PatternTimeout:
                continue
            if reading.score is not None:
                return reading
            if reading.problem != "missing":
                nearest = reading
    return nearest


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
        scope.show({name: output for name, output in agents.items() if name != agent})
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
            "result": {
                # An object as it is, so that its fields can be read.
                agent: dict(output) if isinstance(output, Mapping) else reply_text(output)
                for agent, output in agents.items()
            },
            "loops_completed": sum(not item.interrupted for item in result.history),
            "final_score": final,
            "threshold_met": result.satisfied,
            "past_loops": past_loops(history, recalled, self.lessons.max_entries),
            "rounds": [{"iteration": item.number, "score": item.score} for item in history],
            "last_score": last.score if last is not None else None,
            "input": value if isinstance(value, str) else text_of(value),
        }


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


async def _append(ctx: Context, space: str, entry: Json) -> None:
    await MemoryEffect(space, "note").act({"value": entry}, ctx)


async def _entries(ctx: Context, space: str, latest: int = 0) -> list[Json]:
    """Return the latest entries, oldest first; damaged ones are left out with a warning."""
    try:
        entries = await memory_of(ctx, space).entries(space, latest=latest)
    except JournalError as error:
        raise StepError(f"memory: {error}", kind="memory_unavailable") from error
    view = view_of(entries)
    if view.unreadable:
        ctx.warn(
            f"{space}: {view.unreadable} damaged entries of the memory were left out",
            code="memory_damaged",
        )
    return [note.value for note in view.notes.values()]


class ReadMemory(Leaf):
    """A step that reads the entries of earlier runs of a loop node: the latest ones, oldest first."""

    fingerprint: str

    name = "recall"  # this name and the space are part of recorded paths and of existing memories

    def __init__(self, node: str, most: int) -> None:
        self.space = f"past_loops:{node}"
        self.most = most
        self.fingerprint = digest_of("recall", node, str(most))

    async def act(self, _: Json, ctx: Context) -> list[Json]:
        """Return the latest entries."""
        return await _entries(ctx, self.space, self.most)


class WriteMemory(Leaf):
    """A step that appends an entry for later runs of a loop node."""

    fingerprint: str

    name = "remember"

    def __init__(self, node: str) -> None:
        self.space = f"past_loops:{node}"
        self.fingerprint = digest_of("remember", node)

    async def act(self, value: Json, ctx: Context) -> bool:
        """Append it."""
        await _append(ctx, self.space, value)
        return True


class MemoryWrite(Leaf):
    """A step that stores a text in a namespace."""

    fingerprint: str

    def __init__(
        self, name: str, namespace: str, text: TemplatedValue, metadata: TemplatedValue
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.text = text
        self.metadata = metadata
        sources = repr((text.source, metadata.source))
        self.fingerprint = digest_of("memory_write", namespace, sources)

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Append the text with its metadata."""
        text = text_of(rendered(self.text, ctx, value))
        entry = {"content": text, "metadata": rendered(self.metadata, ctx, value)}
        await _append(ctx, f"memory:{self.namespace}", entry)
        return {"response": text, "status": "success", "namespace": self.namespace}


class MemoryRead(Leaf):
    """A step that returns the texts of a namespace that share most words with a query, latest first on ties.

    A word counts more, the fewer texts have it. Texts without a word in common are left out.
    """

    fingerprint: str

    def __init__(self, name: str, namespace: str, query: TemplatedValue, limit: int) -> None:
        self.name = name
        self.namespace = namespace
        self.query = query
        self.limit = limit
        self.fingerprint = digest_of("memory_read", namespace, repr(query.source), str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the texts, as one text and as data."""
        query = text_of(rendered(self.query, ctx, value))
        entries = await _entries(ctx, f"memory:{self.namespace}")
        stored = [dict(entry) for entry in entries if isinstance(entry, Mapping)]
        matches = ranked(query, stored, lambda e: str(e.get("content", "")), limit=self.limit)
        texts = [str(entry.get("content", "")) for entry in matches]
        return {
            # The text of the dialect's own program.
            "response": "\n\n".join(texts) or "No memories found",
            "memories": matches,
            "num_results": len(matches),
            "query": query,
        }
