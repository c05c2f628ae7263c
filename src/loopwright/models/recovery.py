"""What follows a failed attempt of a model call: a wait, another request or endpoint, or the end of the call.

An entry of a failed effect has no fields for the requested wait and the received text, which the next
decision needs. They are recorded as another effect, `fault-1` beside `attempt-1`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from ..engine.budgets import Account
from ..engine.context import Context
from ..engine.step import Leaf
from ..errors import ModelError, StepError, Suspended
from ..records import NOTHING, Reason, Stop, Usage
from ..records.codec import Json
from .errors import error_from_json, model_error_of
from .protocol import Message, Request
from .registry import Models
from .replies.text import own_words
from .retry_policy import OF_ALL, Action, Tally, decide

__all__ = [
    "FailureFacts",
    "RecordedFailure",
    "Recovery",
    "Target",
    "facts_of",
    "failure_name",
    "recorded_failure",
]

# The fingerprint is in recorded journals: another value makes runs in progress refuse to resume.
_FAULT = "note.model_fault/1"
QUOTED_CHARS = 4_000  # of a rejected answer, so that re-asking costs little more than asking
MIN_TOKENS = 1024  # of a reply that is requested again with a larger limit, before doubling
THINKING_TOKENS = 4096  # for a judge that reached its limit inside its thinking


@dataclass(frozen=True, slots=True)
class Target:
    """Another endpoint for the same request, used when the first one fails.

    Args:
        provider: a name of `PROVIDERS`.
        model: the model's name at that provider.
        base_url: the address of another server; default "": the provider's own.
        api_key_env: the environment variable with the key for `base_url`; default "": no key.

    Example:

    >>> Target("ollama", "llama3.2")
    Target(provider='ollama', model='llama3.2', base_url='', api_key_env='')
    """

    provider: str
    model: str
    base_url: str = ""
    api_key_env: str = ""


class FailureFacts(Leaf):
    """An effect whose output describes a failed attempt for the journal."""

    name = "fault"
    wants_context = False
    fingerprint = _FAULT
    counts = False  # a note

    def __init__(self, facts: Json) -> None:
        self.facts = facts

    async def act(self, value: Json, ctx: Context | None) -> Json:
        del value, ctx
        return self.facts


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """A recorded failure of an attempt.

    `retry_at` is the wall-clock time in seconds before which the endpoint accepts no request. `too_long`
    means that the call could not wait so long when it failed.
    """

    failure: ModelError
    retry_at: float | None = None
    too_long: bool = False


@dataclass
class Recovery(ABC):
    """A call, and what it does after a failed attempt."""

    ctx: Context
    models: Models
    name: str
    path: str
    request: Request
    targets: tuple[Target, ...]
    judge: bool = False
    tally: Tally = field(default_factory=Tally)
    number: int = 0
    waited: float = 0.0
    escalated: ModelError | None = None
    cutoff: str = "retry"  # what follows a truncated reply
    begun: float = 0.0

    @abstractmethod
    def began(self, number: int) -> bool:
        """Whether an attempt is recorded, at least its start: the wait before it is over."""

    @abstractmethod
    async def move(self) -> None:
        """Continue at the next endpoint, whose price must also be known."""

    async def after(self, error: StepError, live_failure: RecordedFailure | None) -> None:
        """Continue after a failed attempt, or raise its error."""
        recorded = live_failure or recorded_failure(self.ctx, self.name, self.number)
        if recorded is None:
            failure = model_error_of(error)
            if failure is None:
                raise error
            recorded = RecordedFailure(failure)
        # Without a live failure the error was replayed from the journal.
        live = live_failure is not None
        wait = self._requested_wait(recorded, live=live)
        policy = self.models.policy
        # A re-asked judge would correct the format of a judgement that it does not make again.
        if self.judge:
            policy = replace(policy, re_asks=0)
        if self.cutoff != "retry":
            policy = replace(policy, escalations=0)
        action, self.tally = decide(
            recorded.failure,
            self.tally,
            policy,
            others=self.has_others(
                recorded.failure.kind == "permanent" and recorded.failure.reason in OF_ALL
            ),
            too_long=recorded.too_long,
        )
        if live and wait and recorded.failure.kind == "throttled":
            await self._cool(wait)
        # The run was suspended here and is resumed after the pause.
        if action == "suspend" and not live and not self.is_too_long(wait):
            action = "wait"
        if (
            action not in ("fail", "suspend")
            and self._left() <= 0
            and not self.began(self.number + 1)
        ):
            action = "fail"
        await self._do(action, recorded.failure, wait)

    def _requested_wait(self, recorded: RecordedFailure, *, live: bool) -> float:
        """Return the remaining seconds of the wait that the endpoint requested."""
        if live:
            return recorded.failure.retry_after or 0.0
        if recorded.retry_at is None or self.began(self.number + 1):
            return 0.0
        return max(0.0, recorded.retry_at - self.ctx.run.clock.wall())

    def is_too_long(self, wait: float) -> bool:
        policy = self.models.policy
        return wait > min(policy.longest_told, self.ctx.remaining(), policy.whole - self.waited)

    def has_others(self, of_all: bool) -> bool:
        """Whether another endpoint may be tried; for a judge only if this one refuses every request."""
        return self.tally.target < len(self.targets) and (of_all or not self.judge)

    def _left(self) -> float:
        """Return the seconds left for the answer."""
        answer = self.request.timeouts.answer
        return (
            math.inf if answer is None else answer - (self.ctx.run.clock.monotonic() - self.begun)
        )

    def in_time(self) -> Request:
        """Return the request with timeouts that end with the time for the answer."""
        # 1 ms instead of 0, because a timer of 0 is not valid.
        left, timers = self._left(), self.request.timeouts
        if left >= timers.whole:
            return self.request
        cut = {
            name: min(getattr(timers, name), max(left, 0.001))
            for name in ("first_byte", "idle", "whole")
        }
        return replace(self.request, timeouts=replace(timers, **cut))

    async def _do(self, action: Action, failure: ModelError, wait: float) -> None:
        if action == "wait":
            await self._wait(failure, wait)
        elif action == "escalate":
            self._escalate(failure)
        elif action == "re_ask":
            self._re_ask(failure)
        elif action == "failover":
            await self.move()
        elif action == "suspend":
            self.suspend(failure, wait)
        elif action == "fail":
            raise self._final(failure)

    async def _wait(self, failure: ModelError, wait: float) -> None:
        if self.began(self.number + 1):
            return  # in a replay this wait is over
        run, policy = self.ctx.run, self.models.policy
        # A random part spreads the retries of many calls ("full jitter").
        seconds = max(wait, policy.backoff(max(1, self.tally.tries), run.random()))
        if self.waited + seconds > policy.whole or seconds >= self._left():
            raise self._final(failure)
        # Without a stated wait, the other calls of the account pause as well.
        if failure.kind == "throttled":
            await self._cool(seconds)
        self.waited += seconds
        await self.ctx.sleep(seconds)

    async def _cool(self, seconds: float) -> None:
        """Pause all calls of the account and model, also those of other workers."""
        run = self.ctx.run
        self.models.cool(self.request, run.clock.monotonic() + seconds)
        if run.permits is not None:
            await run.permits.pause(self.request, seconds)

    def _escalate(self, failure: ModelError) -> None:
        """Double the token limit, if the budget allows it."""
        written = self.request.max_tokens or max(
            (failure.usage or NOTHING).output_tokens, MIN_TOKENS
        )
        cap = 2 * written
        if self.judge and failure.reason == "thinking":
            cap = max(cap, THINKING_TOKENS)
        # The larger limit was not part of the reservation, so the budget must have room for it.
        larger = replace(self.request, max_tokens=cap)
        if not self.began(self.number + 1) and not _has_room(
            self.ctx, self.models.worst_case(larger)
        ):
            raise self._final(failure)
        self.escalated = failure
        self.request = larger

    def _re_ask(self, failure: ModelError) -> None:
        """Ask again, with the answer and its problem in the conversation."""
        messages: list[Message] = list(self.request.messages)
        # Without its thinking, which other models reject and which would be paid for again.
        if own_words(failure.partial).strip():
            messages.append(Message("assistant", own_words(failure.partial)[:QUOTED_CHARS]))
        problem = failure.problem or f"Your answer could not be used: {failure}"
        messages.append(Message("user", problem))
        self.request = replace(self.request, messages=tuple(messages))

    def suspend(self, failure: ModelError, wait: float) -> None:
        """Suspend the run until the endpoint is ready, if its journal outlives this process."""
        run = self.ctx.run
        # A run without a lasting journal cannot be resumed, so it must fail instead.
        if not run.log.keeps_values:
            raise self._final(failure)
        quota = failure.kind == "quota"
        request: dict[str, Json] = {"provider": self.request.provider, "model": self.request.model}
        if wait:
            request["until"] = run.clock.wall() + wait
            detail = f"{failure}; it asked for {wait:.0f} s, resume the run after that"
        else:
            detail = f"{failure}; resume the run when there is quota again"
        stop = Stop(Reason.QUOTA if quota else Reason.THROTTLED, detail)
        raise Suspended(stop, path=self.path, request=request)

    def _final(self, failure: ModelError) -> ModelError:
        """Return the error that ends the call."""
        if self.escalated is not None and failure.kind == "permanent":
            # The endpoint refused the larger limit, so the truncation is the real cause.
            failure = self.escalated
        final = error_from_json(failure.to_json(), path=self.path)
        if self.number > 1:
            final.args = (f"{failure} ({self.number} attempts)",)
        return final


def recorded_failure(ctx: Context, name: str, number: int) -> RecordedFailure | None:
    """Return the failure of a recorded attempt, if the journal has its facts."""
    recorded = facts_of(ctx, name, number)
    if not recorded:
        return None
    facts = recorded[-1]
    failure = error_from_json(facts, path=ctx.below(name) if name else ctx.path)
    return RecordedFailure(failure, facts.get("retry_at"), facts.get("too_long", False))


def failure_name(name: str, number: int) -> str:
    """Return the name of the facts of a failed attempt in the journal."""
    return f"{name}/fault-{number}" if name else f"fault-{number}"


def facts_of(ctx: Context, name: str, number: int) -> list[Json]:
    """Return the recorded facts of a failed attempt, the latest last."""
    replay = ctx.run.replay
    path = ctx.below(failure_name(name, number))
    facts: list[Json] = []
    while replay is not None:
        entry = replay.finished.get(f"{path}-{len(facts) + 1}" if facts else path)
        if entry is None:
            break
        facts.append(entry.value)
    return facts


def _has_room(ctx: Context, amount: Usage) -> bool:
    """Whether every account currently has room for `amount`."""
    account: Account | None = ctx.account
    while account is not None:
        cap, total = account.cap, account.settled + account.reserved + amount
        if cap is not None and (
            (cap.tokens is not None and total.tokens > cap.tokens)
            or (cap.usd is not None and total.usd > cap.usd)
            or (cap.calls is not None and total.calls > cap.calls)
        ):
            return False
        account = account.parent
    return True
