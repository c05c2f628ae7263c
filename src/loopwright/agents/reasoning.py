"""The reasoning agent: a conversation over several calls until the model states its final answer.

1. The iterations are one loop and one conversation, so each call includes all earlier messages.
2. A reply with the marker ends the loop, see `final_answer`. The message of the last iteration announces the
   end. Without a marker its text is the output, and the report has `limit_reached`.
3. Every call of a model counts as an interaction, also failed and repeated calls.
4. With one iteration, or `mode="single"`, there is one plain call without instructions and notice. Its text
   is the output; with one iteration, a marker in it is read.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from ..conditions import MaxIterations, Passed
from ..engine.context import Context
from ..engine.loop import Loop
from ..engine.step import CompositeStep, FunctionStep, Step, StepLike, digest_of, fingerprinted
from ..errors import ConfigurationError, StepError, nearest
from ..models import Message
from ..models.call import ModelAttempt
from ..models.protocol import ModelSettings
from ..models.reply_text import is_blank
from ..prompts.prompt import Text, filled_in, source_of
from ..prompts.settings import PromptSettings, settings_of, warn_of
from ..prompts.tool_prompt import answered
from ..records import Evaluation, Reason, Result, Status, codec
from ..records.codec import Json, sanitised
from ..templates.variables import TemplatedValue, fill
from .capabilities import Tools
from .final_answer import MARKER, completion

__all__ = [
    "MAX_PROMPT_CHARS",
    "NOTICE",
    "ReasoningAgent",
]

_BEGIN = "begin"  # the effect at the start of an execution: its task and settings
_BEGIN_FINGERPRINT = "note.begin/1"
MAX_ITERATIONS = 5
MAX_PROMPT_CHARS = 10_000  # the default of the format; each iteration sends the task again
# These texts are part of recorded requests. A new wording would repeat the calls of runs in progress.
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

    The task is its input, or `prompt` rendered with it, and must not be blank. The agent is a step: pass it
    to `run`, or use it in a loop or workflow. Its output is the final answer. `Result.agents[name]` reports
    `interaction_count`, `last_interaction_at`, `limit_reached` and more, and `executions` lists the
    executions in a journal.

    Args:
        prompt: A template of the task. It and `system` have `iteration` and `max_iterations` as variables, and the
            task is the message of iteration 1. Default: the input itself.
        name: The name in paths and reports, without a slash. Default: `agent`.
        model: `provider:model`, or several that are tried in order. Default: the model of the run.
        role, goal, backstory: The persona, for the system message, before `system`. Default: none.
        system: A template of the system message. Default: none.
        max_iterations: The maximum of iterations; 1 is one plain call. Default: 5.
        mode: `iterate`, or `single` for one plain call. Default: `iterate`.
        notice_lead: The number of last iterations whose prompt announces the end; the last one demands the
            answer. Default: 1.
        max_prompt_chars: The maximum length of the task in characters. Default: 10,000.
        tools: The tools that the model may call. Default: none.
        tool_rounds: The maximum of replies with tool calls in one iteration. Default: 8.
        max_tool_calls_per_reply: The maximum of calls in one reply. A reply with more calls is refused and
            requested again. Default: 128.
        model_settings: The settings of the model calls as one object, in place of `model` and `settings`.
        **settings: The settings of the model calls, see `ModelSettings`.

    Returns:
        A step.

    Raises:
        ConfigurationError: For invalid or contradictory settings.

    Example:
        >>> from loopwright import ReasoningAgent, run_sync
        >>> from loopwright.models import Models, ScriptedModel
        >>> replies = ["6 times 7 is six sevens.", "TASK_COMPLETE: 42"]
        >>> models = Models(ScriptedModel([{"replies": replies}]))
        >>> agent = ReasoningAgent(model="openai:gpt-4o", max_iterations=3)
        >>> run_sync(agent, "What is 6 times 7?", resources={"models": models}).output
        '42'
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
        tools: Sequence[object] = (),
        tool_rounds: int = 8,
        max_tool_calls_per_reply: int | None = None,
        model_settings: PromptSettings | None = None,
        **settings: Unpack[ModelSettings],
    ) -> None:
        if not isinstance(name, str) or not name or "/" in name:
            raise ConfigurationError(
                f"reasoning agent: name: {name!r}: use a text without a slash, because it is part of paths"
            )
        self.name = name
        self.prompt = fill(prompt) if isinstance(prompt, str) and prompt else prompt
        self.role, self.goal, self.backstory = role, goal, backstory
        self.system = fill(system) if isinstance(system, str) and system else system
        self.max_iterations = _integer("max_iterations", max_iterations)
        if mode not in ("iterate", "single"):
            hint = nearest(str(mode), ("iterate", "single")) or "; use iterate or single"
            raise ConfigurationError(f"reasoning agent: mode: {mode!r} is unknown{hint}")
        self.mode = mode
        self.notice_lead = _integer("notice_lead", notice_lead)
        self.max_prompt_chars = _integer("max_prompt_chars", max_prompt_chars)
        self.model_settings = model_settings or settings_of(model, settings)
        if max_tool_calls_per_reply is not None:
            self.model_settings = replace(
                self.model_settings, max_tool_calls_per_reply=max_tool_calls_per_reply
            )
        self.unsupplied = self.model_settings.unsupplied(f"agent {self.name!r}")
        self.kit = Tools(tuple(tools), _integer("tool_rounds", tool_rounds))
        self.loop = Loop(
            _Thought(self),
            _marker_evaluator(self.max_iterations),
            until=Passed() | MaxIterations(self.max_iterations),
            name="reasoning",
            # There are no scores: the last message is the most complete one.
            keep="last",
        )

    asks_model = True

    @property
    def single(self) -> bool:
        """Whether it is one plain call."""
        return self.mode == "single" or self.max_iterations == 1

    def parts(self) -> Iterable[Step]:
        return [] if self.single else [self.loop]

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of its settings."""
        return digest_of("reasoning agent", codec.canonical(self.settings()))

    def settings(self) -> dict[str, Json]:
        """Return the settings that an execution records."""
        model_settings = self.model_settings
        return {
            "name": self.name,
            "prompt": source_of(self.prompt),
            "role": self.role,
            "goal": self.goal,
            "backstory": self.backstory,
            "system": source_of(self.system),
            "models": list(model_settings.models),
            "temperature": model_settings.temperature,
            "max_tokens": model_settings.max_tokens,
            "max_iterations": self.max_iterations,
            "mode": "single" if self.single else "iterate",
            "notice_lead": self.notice_lead,
            "tools": self.kit.named,
        }

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the iterations that the journal does not hold yet, and return the result."""
        task = self._filled_in(self.prompt, value, ctx, 1) if self.prompt else value
        shown = codec.text_of(task)[: self.max_prompt_chars]
        # Before any check, so that `executions` lists refused tasks too.
        begun = await ctx.call(
            _BEGIN, self._beginning(ctx), {"prompt": shown, "settings": self.settings()}
        )
        counted = _CountingContext.of(ctx)
        try:
            if problem := self._problem_with(task):
                raise StepError(problem, path=ctx.path, kind="bad_input", retryable=False)
            result = await self._reason(task, counted)
        except StepError as error:
            # The report must show which call failed.
            where = f"{error.path}: " if error.path else ""
            self._report(counted, begun, error=f"{where}{error}")
            raise
        self._report(counted, begun, result)
        return result

    def _beginning(self, ctx: Context) -> FunctionStep:
        async def begin(value: Json) -> Json:
            settings = dict(value["settings"])
            settings["prompt_template"] = settings.pop("prompt")
            return {
                "agent": self.name,
                "kind": "reasoning",
                "prompt": value["prompt"],
                "input_params": settings,
                "started_at": ctx.run.clock.wall(),
            }

        return FunctionStep(begin, name=_BEGIN, fingerprint=_BEGIN_FINGERPRINT)

    def _problem_with(self, task: Json) -> str:
        if not isinstance(task, str):
            kind = type(task).__name__
            return f"the task is of type {kind}; pass text, or a prompt that renders text"
        if is_blank(task):  # also if it has only zero-width and control characters
            return "the task is blank; pass text"
        if len(task) > self.max_prompt_chars:
            return (
                f"the task has {len(task)} characters, and the maximum is {self.max_prompt_chars}; "
                "shorten it, or raise max_prompt_chars"
            )
        return ""

    async def _reason(self, task: str, ctx: _CountingContext) -> Result:
        if self.single:
            messages = [*_system_message(self._persona(task, ctx)), Message("user", task)]
            text = (await self._ask(messages, ctx))[-1].content
            # The task itself may ask for the marker.
            if self.mode != "single":
                text = completion(text, task) or text
            return Result(
                Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", text, name=self.name
            )
        result = await ctx.outcome(self.loop.name, self.loop, task)
        last = result.history.last
        output = result.output
        # The output of the loop is the complete message; the answer is the part after the marker.
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

    async def _ask(self, messages: Sequence[Message], ctx: Context) -> list[Message]:
        """Return the messages with the reply at the end.

        Raises:
            ModelError: If no model and no attempt is left.
        """
        if not self.kit.tools:
            reply = await self.model_settings.ask(messages, ctx)
            return [*messages, reply.message()]
        reply, conversation = await answered(
            self.model_settings, messages, self.kit.tools, self.kit.max_rounds, ctx
        )
        warn_of(reply, ctx)
        return conversation

    def _filled_in(self, text: Text, value: Json, ctx: Context, number: int) -> str:
        """Return a text with its template rendered for an iteration."""
        if isinstance(text, TemplatedValue):
            around = text.variables_of
            own = {"iteration": number, "max_iterations": _max_iterations(ctx, self.max_iterations)}
            text = replace(text, variables_of=lambda ctx, value: {**around(ctx, value), **own})
        return filled_in(text, value, ctx)

    def _persona(self, value: Json, ctx: Context, number: int = 1) -> str:
        parts = [
            f"You are {self.role}." if self.role else "",
            f"Your goal: {self.goal}" if self.goal else "",
            self.backstory,
            self._filled_in(self.system, value, ctx, number) if self.system else "",
        ]
        return "\n\n".join(part for part in parts if part)

    async def continue_conversation(self, task: str, ctx: Context) -> tuple[str, list[Json]]:
        """Return the reply of one iteration, and the messages that it added to the conversation.

        Raises:
            ModelError: If no model and no attempt is left.
        """
        number, maximum = ctx.iteration, _max_iterations(ctx, self.max_iterations)
        text = task if number == 1 else ONWARD
        # With `maximum` from the journal: a person may have raised the limit.
        if number > maximum - self.notice_lead:
            notice = NOTICE if number == maximum else EARLY
            text += "\n\n" + notice.format(number=number, most=maximum)
        persona = self._persona(task, ctx, number)
        # The earlier messages come from the records of the iterations, which a resumed run has too.
        before = [
            Message.from_json(message)
            for item in ctx.history
            for message in (item.steps or {}).get("messages") or ()
        ]
        # In every request, because the system message is not part of the recorded conversation.
        system = f"{persona}\n\n{WRAPPER}" if persona else WRAPPER
        messages = [*_system_message(system), *before, Message("user", text)]
        conversation = await self._ask(messages, ctx)
        added = conversation[len(messages) - 1 :]
        return conversation[-1].content, [message.to_json() for message in added]

    def _report(
        self, ctx: _CountingContext, begun: Json, result: Result | None = None, *, error: str = ""
    ) -> None:
        records = [item.steps or {} for item in result.history] if result is not None else []
        if result is not None and result.status is Status.FAILED:
            error = result.detail
        calls = ctx.counter.calls
        last = max([ctx.counter.at, *(record.get("at", 0.0) for record in records)])
        report: dict[str, Json] = {
            "kind": "reasoning",
            "status": "failed" if error else "completed",
            "interaction_count": calls + sum(r.get("interactions", 0) for r in records),
            "last_interaction_at": last or None,
            "iterations": max(len(records), int(calls > 0)),
            "max_iterations": self.max_iterations,
            "limit_reached": result is not None and result.reason is Reason.MAX_ITERATIONS,
            "started_at": begun["started_at"],
            # The clock of another machine may be behind.
            "completed_at": max(ctx.run.clock.wall(), begun["started_at"], last),
        }
        if error:
            report["error"] = sanitised(error)
        elif result is not None:
            report["result"] = result.output
        ctx.run.report(ctx.path, self.name, report)


def _integer(name: str, value: int) -> int:
    return codec.integer(f"reasoning agent: {name}", value, minimum=1)


def _system_message(text: str) -> list[Message]:
    return [Message("system", text)] if text else []


def _marker_evaluator(maximum: int) -> FunctionStep:
    async def evaluate(text: Json, ctx: Context) -> Evaluation:
        last = ctx.iteration >= _max_iterations(ctx, maximum)
        answer = completion(codec.text_of(text), codec.text_of(ctx.initial), lenient=last)
        return Evaluation(passed=answer is not None)

    return FunctionStep(evaluate, name="marker", fingerprint=digest_of("marker", "2"))


def _max_iterations(ctx: Context, maximum: int) -> int:
    """Return the limit of the loop, which a person may have raised."""
    replay, path = ctx.run.replay, ctx.scope.path if ctx.scope is not None else ""
    raised = replay.raised.get(path, {}) if replay is not None else {}
    return max(maximum, int(raised.get("max_iterations", 0)))


@dataclass(frozen=True)
class _Thought(CompositeStep):
    """One iteration: the next message of the conversation, and its reply."""

    agent: ReasoningAgent = field(repr=False)
    name: str = "think"

    @property
    def fingerprint(self) -> str:
        return self.agent.fingerprint

    async def run(self, value: Json, ctx: Context) -> Result:
        """Continue the conversation, and record its messages and the number of calls."""
        counted = _CountingContext.of(ctx)
        messages: list[Json] = []
        try:
            text, messages = await self.agent.continue_conversation(codec.text_of(value), counted)
        # A failed iteration counts its calls too (rule 3).
        finally:
            if ctx.scope is not None:
                counter = counted.counter
                # Recorded with the iteration, because a resumed run does not make these calls again.
                ctx.scope.expose(
                    {"interactions": counter.calls, "at": counter.at, "messages": messages}
                )
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", text, name=self.name
        )


@dataclass(slots=True)
class _CallCounter:
    """The number of model calls, and the time of the last one in seconds since the epoch."""

    calls: int = 0
    at: float = 0.0


class _CountingContext(Context):
    """A context that counts the model calls at its path and below."""

    __slots__ = ("counter",)

    counter: _CallCounter

    @classmethod
    def of(cls, ctx: Context, counter: _CallCounter | None = None) -> _CountingContext:
        """Return a counting context for the same place."""
        counting = cls(ctx.run, ctx.path, ctx.gate, ctx.account, ctx.scope)
        counting.counter = counter or _CallCounter()
        return counting

    def child(self, path: str) -> _CountingContext:
        """Return the context of a step inside this one."""
        # One counter for all contexts of an execution.
        return self.of(super().child(path), self.counter)

    def call(
        self, name: str, step: StepLike, value: Json = None, token: str = ""
    ) -> Coroutine[Any, Any, Json]:
        """Run a step inside this one; see Context.call."""
        if isinstance(step, ModelAttempt):
            path, replay = self.below(name), self.run.replay
            # A recorded call without an end was interrupted, and may have been billed.
            cut = replay.repeated.get(path, 0) + (path in replay.unsettled) if replay else 0
            self.counter.calls += 1 + cut
            self.counter.at = self.run.clock.wall()
        return super().call(name, step, value, token=token)
