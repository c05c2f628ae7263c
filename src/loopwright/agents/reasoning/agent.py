"""The reasoning agent: it thinks over several calls in one conversation until it says that it is done.

Rules:

1. The rounds are one loop of the engine and one conversation: each call sees all that was said.
2. A reply with the marker ends it; see `markers`. The last permitted round is told that it is the
   last; without a marker its text is returned all the same, and the report says `limit_reached`.
3. Every call of a model counts as an interaction, failed ones and re-asks included.
4. With one iteration, or `mode="single"`, it is one plain call: no wrapper, no marker, no notice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from ...conditions import MaxIterations, Passed
from ...engine.context import Context
from ...engine.loop import Loop
from ...engine.step import CompositeStep, FunctionStep, Step, digest_of
from ...errors import ConfigurationError, StepError, nearest
from ...models.replies.own_words import is_blank
from ...models.settings import ModelSettings
from ...prompts.prompt import PromptSettings, Text, asking_of, filled_in, source_of
from ...records import Evaluation, Reason, Result, Status, codec
from ...records.codec import Json
from ...records.sanitize import sanitised
from ...templates.variables import fill
from ..phased.prompting import Tools
from .call_counter import Counted
from .completion import MARKER, completion
from .conversation import Conversation

__all__ = ["BEGUN", "MAX_PROMPT_CHARS", "NOTICE", "ReasoningAgent"]

_BEGINNING = "note.begin/1"
MAX_ITERATIONS = 5
MAX_PROMPT_CHARS = 10_000
BEGUN = (
    "begin"  # the effect with which an execution begins: what it was asked, and with which settings
)
WRAPPER = f"""\
Work on the task step by step, thinking aloud over several messages. Each message continues your own \
earlier ones: build on them ("Building on that…", "Therefore…"), do not start again, and do not ask \
questions. When, and only when, the task is complete, write on a line of its own:
{MARKER} [final answer]
with everything that the reader needs after it."""
ONWARD = "Continue your reasoning from where you are."
NOTICE = (
    "IMPORTANT: This is iteration {number} of {most} maximum. You MUST provide your final answer "
    f"with {MARKER} [answer] in this response."
)
EARLY = "IMPORTANT: This is iteration {number} of {most} maximum. Work towards your final answer."


class ReasoningAgent(CompositeStep):
    """An agent that reasons over several calls of a model until it states its final answer.

    Its input, or `prompt` filled in with it, is the task: text that is not blank, of at most
    `max_prompt_chars` characters. The output is the final answer; `Result.agents[name]` reports
    `interaction_count`, `last_interaction_at`, `limit_reached` and more, and `executions` lists what
    the journal holds of it.

    Args:
        prompt: a template of the task; default: the input itself.
        model: `provider:model`, or several tried in order; default: that of the run.
        role, goal, backstory: who it is, for the system message, before `system`.
        max_iterations: rounds at most; 1 is one plain call.
        mode: `iterate`, or `single` for one plain call whatever `max_iterations` says.
        notice_lead: how many of the last rounds are told that the end is near; the last is told
            that it must answer.
        tools: what the model may call meanwhile, over `tool_rounds` replies in each round.
        max_tool_calls_per_reply: how many calls one reply may have (default: 128); one with more is
            refused, and asked for again.
        settings: of the model calls; see `ModelSettings`.

    Raises:
        ConfigurationError: for an agent that could not mean anything.
    """

    def __init__(
        self,
        prompt: Text = "",
        *,
        name: str = "agent",
        model: str | Sequence[str] = (),
        role: str = "",
        goal: str = "",
        backstory: str = "",
        system: Text = "",
        max_iterations: int = MAX_ITERATIONS,
        mode: str = "iterate",
        notice_lead: int = 1,
        max_prompt_chars: int = MAX_PROMPT_CHARS,
        tools: Sequence[Any] = (),
        tool_rounds: int = 8,
        max_tool_calls_per_reply: int | None = None,
        asking: PromptSettings | None = None,
        **settings: Unpack[ModelSettings],
    ) -> None:
        self.name = _named(name)
        self.prompt = fill(prompt) if isinstance(prompt, str) and prompt else prompt
        self.role, self.goal, self.backstory = role, goal, backstory
        self.system = fill(system) if isinstance(system, str) and system else system
        self.max_iterations = codec.whole(
            "reasoning agent: max_iterations", max_iterations, least=1
        )
        self.mode = _mode(mode)
        self.notice_lead = codec.whole("reasoning agent: notice_lead", notice_lead, least=1)
        self.max_prompt_chars = codec.whole(
            "reasoning agent: max_prompt_chars", max_prompt_chars, least=1
        )
        self.asking = asking or asking_of(model, settings)
        if max_tool_calls_per_reply is not None:
            self.asking = replace(self.asking, max_tool_calls_per_reply=max_tool_calls_per_reply)
        self.kit = Tools(
            tuple(tools), codec.whole("reasoning agent: tool_rounds", tool_rounds, least=1)
        )
        self.loop = Loop(
            _Thought(self), _judge(self.max_iterations), until=Passed() | MaxIterations(self.max_iterations),
            name="reasoning", keep="last",
        )  # fmt: skip

    @property
    def single(self) -> bool:
        """Whether it is one plain call."""
        return self.mode == "single" or self.max_iterations == 1

    def parts(self) -> Iterable[Step]:
        return [] if self.single else [self.loop]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of what it asks, and how."""
        return digest_of("reasoning agent", codec.canonical(self.settings()))

    def settings(self) -> dict[str, Json]:
        """Return its parameters: the snapshot that an execution keeps."""
        asking = self.asking
        return {
            "name": self.name,
            "prompt": source_of(self.prompt),
            "role": self.role,
            "goal": self.goal,
            "backstory": self.backstory,
            "system": source_of(self.system),
            "models": list(asking.models),
            "temperature": asking.temperature,
            "max_tokens": asking.max_tokens,
            "max_iterations": self.max_iterations,
            "mode": "single" if self.single else "iterate",
            "notice_lead": self.notice_lead,
            "tools": self.kit.named,
        }

    async def run(self, value: Json, ctx: Context) -> Result:
        """Reason to the end, from where the journal stands."""
        task = filled_in(self.prompt, value, ctx) if self.prompt else value
        wrong = self._unfit(task)
        shown = codec.text_of(task)[: self.max_prompt_chars]
        begun = await ctx.call(
            BEGUN, _beginning(ctx, self), {"prompt": shown, "settings": self.settings()}
        )
        counted = Counted.of(ctx)
        try:
            if wrong:
                raise StepError(wrong, path=ctx.path, kind="bad_input", retryable=False)
            result = await self._reason(task, counted)
        except StepError as error:
            self._report(
                counted, begun, error=f"{error.path}: {error}" if error.path else str(error)
            )
            raise
        self._report(counted, begun, result)
        return result

    def _unfit(self, task: Json) -> str:
        if not isinstance(task, str):
            kind = type(task).__name__
            return f"the task is a {kind}, not text; give text, or a prompt that makes some of it"
        if is_blank(task):  # zero-width and control characters are nothing to see either
            return "the task is blank; give text"
        if len(task) > self.max_prompt_chars:
            return (
                f"the task has {len(task)} characters, {self.max_prompt_chars} is the most; "
                "shorten it, or raise max_prompt_chars"
            )
        return ""

    async def _reason(self, task: str, ctx: Counted) -> Result:
        if self.single:
            text = await Conversation(self.asking, self.kit).plain(
                self._system(task, ctx), task, ctx
            )
            return Result(
                Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", text, name=self.name
            )
        result = await ctx.outcome(self.loop.name, self.loop, task)
        last = result.history.last
        output = result.output
        if last is not None and isinstance(last.output, str):
            output = completion(last.output, task, lenient=True) or last.output.strip()
        return Result(
            status=result.status,
            reason=result.reason,
            detail=result.detail,
            output=output,
            history=result.history,
            usage=result.usage,
            name=self.name,
            also=result.also,
        )

    def _system(self, value: Json, ctx: Context) -> str:
        parts = [
            f"You are {self.role}." if self.role else "",
            f"Your goal: {self.goal}" if self.goal else "",
            self.backstory,
            filled_in(self.system, value, ctx) if self.system else "",
        ]
        return "\n\n".join(part for part in parts if part)

    def opening(self, value: Json, ctx: Context) -> str:
        """Return the system message of the conversation."""
        own = self._system(value, ctx)
        return f"{own}\n\n{WRAPPER}" if own else WRAPPER

    def said(self, task: str, number: int, most: int) -> str:
        """Return what the user's message of a round says, of at most so many."""
        text = task if number == 1 else ONWARD
        if number > most - self.notice_lead:
            notice = NOTICE if number == most else EARLY
            text += "\n\n" + notice.format(number=number, most=most)
        return text

    def _report(
        self, ctx: Counted, begun: Json, result: Result | None = None, *, error: str = ""
    ) -> None:
        rounds = [item.steps or {} for item in result.history] if result is not None else []
        if result is not None and result.status is Status.FAILED:
            error = result.detail
        tally = ctx.tally
        last = max([tally.at, *(found.get("at", 0.0) for found in rounds)])
        report: dict[str, Json] = {
            "kind": "reasoning",
            "status": "failed" if error else "completed",
            "interaction_count": tally.calls + sum(r.get("interactions", 0) for r in rounds),
            "last_interaction_at": last or None,
            "iterations": max(len(rounds), int(tally.calls > 0)),
            "max_iterations": self.max_iterations,
            "limit_reached": result is not None and result.reason is Reason.MAX_ITERATIONS,
            "started_at": begun["started_at"],
            "completed_at": max(ctx.run.clock.wall(), begun["started_at"], last),
        }
        if error:
            report["error"] = sanitised(error)
        elif result is not None:
            report["result"] = result.output
        ctx.run.report(ctx.path, self.name, report)


def _named(name: str) -> str:
    if not isinstance(name, str) or not name or "/" in name:
        raise ConfigurationError(
            f"reasoning agent: name: {name!r}: give text without a slash; it is part of paths"
        )
    return name


def _mode(mode: str) -> str:
    if mode not in ("iterate", "single"):
        hint = nearest(str(mode), ("iterate", "single")) or "; use iterate or single"
        raise ConfigurationError(f"reasoning agent: mode: {mode!r} is unknown{hint}")
    return mode


def _beginning(ctx: Context, agent: ReasoningAgent) -> FunctionStep:
    async def begin(given: Json) -> Json:
        shot = {**given["settings"], "prompt_template": given["settings"]["prompt"]}
        shot.pop("prompt")
        return {
            "agent": agent.name,
            "kind": "reasoning",
            "prompt": given["prompt"],
            "input_params": shot,
            "started_at": ctx.run.clock.wall(),
        }

    return FunctionStep(begin, name=BEGUN, fingerprint=_BEGINNING)


def _judge(most: int) -> FunctionStep:
    async def marked(text: Json, ctx: Context) -> Evaluation:
        last = ctx.iteration >= _permitted(ctx, most)
        found = completion(codec.text_of(text), codec.text_of(ctx.initial), lenient=last)
        return Evaluation(passed=found is not None)

    return FunctionStep(marked, name="marker", fingerprint=digest_of("marker", "2"))


def _permitted(ctx: Context, most: int) -> int:
    """Return how many rounds there may be: a person may have raised the limit of a run that used it up."""
    replay, path = ctx.run.replay, ctx.scope.path if ctx.scope is not None else ""
    told = replay.raised.get(path, {}) if replay is not None else {}
    return max(most, int(told.get("max_iterations", 0)))


@dataclass(frozen=True)
class _Thought(CompositeStep):
    """One round: the next message of the conversation, and what is answered."""

    agent: ReasoningAgent = field(repr=False)
    name: str = "think"

    @property
    def fingerprint(self) -> str:
        return self.agent.fingerprint

    async def run(self, value: Json, ctx: Context) -> Result:
        """Say what the round says, and note for its record how many calls it took."""
        agent, counted = self.agent, Counted.of(ctx)
        task = codec.text_of(value)
        messages: list[Json] = []
        most = _permitted(ctx, agent.max_iterations)
        try:
            text, messages = await Conversation(agent.asking, agent.kit).carried(
                agent.opening(task, ctx), agent.said(task, ctx.iteration, most), counted
            )
        finally:
            if ctx.scope is not None:
                tally = counted.tally
                found = {"interactions": tally.calls, "at": tally.at}
                ctx.scope.parts = {**found, "messages": messages}
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", text, name=self.name
        )
