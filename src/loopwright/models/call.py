"""A model call as steps see it: attempts in the journal, until there is a reply or no way left.

Rules:

1. Every attempt is an effect, `name/attempt-1` and so on: reserved, recorded and settled.
2. What follows a failed attempt is decided by `policy.decide` from what is on record, so that a
   resumed run decides the same again, and nobody waits twice for the same moment.
3. Endpoints that ask for a pause get it from every call of the process, not only from this one.
4. A wait that is longer than a run may wait suspends it, if its journal outlives the process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..conditions import Budget
from ..engine.budget import Account
from ..engine.context import Context
from ..errors import StepError, Suspended
from ..records import NOTHING, Reason, Stop, Usage, codec
from ..records.codec import Json
from .attempts import ModelAttempt, RecordedFault, attempt_name, recorded_fault, recorded_target
from .errors import ModelError, error_from_json, fault_of
from .prices import DEFAULT_MAX_TOKENS
from .protocol import Message, Request
from .registry import Models, models_of
from .replies.own_words import SpokenText, own_words
from .retry_policy import OF_ALL, Action, Tally, decide

__all__ = ["ON_TEXT", "Target", "call_model"]

ON_TEXT = "on_text"  # the resource that hears text as it comes: f(path, text); it must not raise
QUOTED_CHARS = 4_000
LEAST_DOUBLED = 1024
THOUGHTFUL = 4096  # tokens for a judge that was cut off while it was thinking


@dataclass(frozen=True, slots=True)
class Target:
    """Another endpoint for the same request: where to go when the first one is used up."""

    provider: str
    model: str
    base_url: str = ""
    api_key_env: str = ""


async def call_model(
    ctx: Context,
    name: str,
    request: Request,
    *,
    failover: Sequence[Target] = (),
    judge: bool = False,
    on_text: Callable[[str], None] | None = None,
) -> dict[str, Json]:
    """Ask a model; return its reply as JSON (`Reply.to_json`) and how many `attempts` it took.

    Args:
        ctx: the context of the step that asks.
        name: what the call is called in the journal; "" for the step's own path.
        request: the question; its path and run are filled in.
        failover: endpoints to go on with, in order.
        judge: go on elsewhere only from an endpoint that refuses every question, as the scores of two
            models cannot be compared, and leave it to the caller to ask again for an answer that cannot be read.
        on_text: called with text as it comes, of each attempt that is made now; by default what the
            run's resource `on_text` is, with the attempt's path before the text.

    Raises:
        ModelError: when nothing is left to try; it says how many attempts were made.
        Suspended: when the endpoint asks for a wait longer than the run may wait.
        ConfigurationError: if the run has no models, or a cap in dollars and a model whose price
            nobody knows.
    """
    path = ctx.below(name) if name else ctx.path
    models = models_of(ctx)
    asked = replace(request, path=path, run_id=ctx.run_id)
    # The input by which a replay is compared is the question, not what becomes of it on the way.
    token = codec.digest(asked.to_json()) if ctx.run.keeps else ""
    caps = _caps(ctx)
    await models.prepare(asked, capped=_in_dollars(caps))
    if asked.max_tokens is None and any(
        cap.tokens is not None or cap.usd is not None for cap in caps
    ):
        # A cap can only be held if a call's cost has a bound.
        asked = replace(asked, max_tokens=DEFAULT_MAX_TOKENS)
    targets = tuple(failover)
    call = _Call(
        ctx=ctx,
        models=models,
        name=name,
        path=path,
        request=asked,
        targets=targets,
        on_text=on_text,
        judge=judge,
        cutoff=request.cutoff,
    )
    return await call.run(token)


def _caps(ctx: Context) -> list[Budget]:
    found = []
    account: Account | None = ctx.account
    while account is not None:
        if account.cap is not None:
            found.append(account.cap)
        account = account.parent
    return found


def _in_dollars(caps: Sequence[Budget]) -> bool:
    return any(cap.usd is not None for cap in caps)


@dataclass
class _Call:
    """One call while its attempts are made."""

    ctx: Context
    models: Models
    name: str
    path: str
    request: Request
    targets: tuple[Target, ...]
    on_text: Callable[[str], None] | None
    judge: bool = False
    tally: Tally = field(default_factory=Tally)
    number: int = 0
    waited: float = 0.0
    escalated: ModelError | None = None
    cutoff: str = "retry"  # what follows a reply that was cut off
    begun: float = 0.0

    async def run(self, token: str) -> dict[str, Json]:
        self.begun = self.ctx.run.clock.monotonic()
        while True:
            self.number += 1
            target = recorded_target(self.ctx, self.name, self.number)
            if target is None:
                await self._cool_down()
            else:
                self._go_to(target)
            heard = self._heard()
            attempt = ModelAttempt(
                self.models, self.request, self.ctx, name=self.name, number=self.number,
                target=self.tally.target, waited=self.waited, on_text=heard,
            )  # fmt: skip
            attempt.request = self._in_time()
            try:
                name = attempt_name(self.name, self.number)
                reply: dict[str, Json] = await self.ctx.call(name, attempt, token=token)
            except StepError as error:
                await self._after(error, attempt)
            else:
                return {**reply, "attempts": self.number}
            finally:
                if heard is not None:
                    heard.end()

    def _has_others(self, of_all: bool) -> bool:
        """Whether there is another endpoint to go on at; for a judge only if this one refuses all questions."""
        return self.tally.target < len(self.targets) and (of_all or not self.judge)

    def _left(self) -> float:
        """Return the seconds that are left for the answer."""
        answer = self.request.timeouts.answer
        return (
            math.inf if answer is None else answer - (self.ctx.run.clock.monotonic() - self.begun)
        )

    def _in_time(self) -> Request:
        """Return the request for an attempt that ends when the time for the answer does."""
        left, timers = self._left(), self.request.timeouts
        if left >= timers.whole:
            return self.request
        cut = {
            name: min(getattr(timers, name), max(left, 0.001))
            for name in ("first_byte", "idle", "whole")
        }
        return replace(self.request, timeouts=replace(timers, **cut))

    def _heard(self) -> SpokenText | None:
        """Return what sends the text of this attempt on as it comes, to the caller's function, else to
        the run's `on_text` resource: without thinking, and without a secret of the run."""
        run, hear = self.ctx.run, self.on_text
        if hear is None and (of_run := run.resources.get(ON_TEXT)) is not None:
            path = self.ctx.below(attempt_name(self.name, self.number))
            hear = functools.partial(of_run, path)
        if hear is None:
            return None
        return SpokenText(hear if run.redactor is None else run.redactor.heard(hear))

    def _began(self, number: int) -> bool:
        """Whether an attempt is on record, if only as begun: nobody waits for it again."""
        replay = self.ctx.run.replay
        path = self.ctx.below(attempt_name(self.name, number))
        return replay is not None and replay.began(path) is not None

    async def _after(self, error: StepError, attempt: ModelAttempt) -> None:
        """Do what follows a failed attempt; raise if nothing does."""
        known = attempt.fault or recorded_fault(self.ctx, self.name, self.number)
        if known is None:
            fault = fault_of(error)
            if fault is None:
                raise error
            known = RecordedFault(fault)
        live = attempt.fault is not None
        told = self._told(known, live=live)
        policy = self.models.policy
        if self.judge:
            policy = replace(policy, re_asks=0)
        if self.cutoff != "retry":
            policy = replace(policy, escalations=0)
        action, self.tally = decide(
            known.fault,
            self.tally,
            policy,
            others=self._has_others(
                known.fault.kind == "permanent" and known.fault.reason in OF_ALL
            ),
            too_long=known.too_long,
        )
        if live and told and known.fault.kind == "throttled":
            self.models.cool(self.request, self.ctx.run.clock.monotonic() + told)
        if action == "suspend" and not live and not self._is_too_long(told):
            action = "wait"  # it was suspended here, and someone resumed it
        if (
            action not in ("fail", "suspend")
            and self._left() <= 0
            and not self._began(self.number + 1)
        ):
            action = "fail"
        await self._do(action, known.fault, told)

    def _told(self, known: RecordedFault, *, live: bool) -> float:
        """Return the seconds that the endpoint still wants nobody to call."""
        if live:
            return known.fault.retry_after or 0.0
        if known.retry_at is None or self._began(self.number + 1):
            return 0.0
        return max(0.0, known.retry_at - self.ctx.run.clock.wall())

    def _is_too_long(self, told: float) -> bool:
        policy = self.models.policy
        return told > min(policy.longest_told, self.ctx.remaining(), policy.whole - self.waited)

    async def _do(self, action: Action, fault: ModelError, told: float) -> None:
        if action == "wait":
            await self._wait(fault, told)
        elif action == "escalate":
            self._escalate(fault)
        elif action == "re_ask":
            self._re_ask(fault)
        elif action == "failover":
            await self._move()
        elif action == "suspend":
            self._suspend(fault, told)
        elif action == "fail":
            raise self._final(fault)

    async def _move(self) -> None:
        """Go on at the next endpoint, whose price must be known as well."""
        self._ask_at(self.tally.target)
        await self.models.prepare(self.request, capped=_in_dollars(_caps(self.ctx)))

    def _go_to(self, target: int) -> None:
        """Ask at the endpoint at which the record says that it was asked."""
        if target != self.tally.target:
            self.tally = replace(self.tally, tries=0, formats=0, target=target)
            self._ask_at(target)

    def _ask_at(self, number: int) -> None:
        if not 1 <= number <= len(self.targets):
            return  # the list became shorter since: what is on record stands all the same
        target = self.targets[number - 1]
        self.request = replace(
            self.request, provider=target.provider, model=target.model,
            base_url=target.base_url, api_key_env=target.api_key_env,
        )  # fmt: skip

    async def _wait(self, fault: ModelError, told: float) -> None:
        if self._began(self.number + 1):
            return  # a replay: this wait is over
        run, policy = self.ctx.run, self.models.policy
        seconds = max(told, policy.backoff(max(1, self.tally.tries), run.random()))
        if self.waited + seconds > policy.whole or seconds >= self._left():
            raise self._final(fault)
        if fault.kind == "throttled":
            self.models.cool(self.request, run.clock.monotonic() + seconds)
        self.waited += seconds
        await self.ctx.sleep(seconds)

    async def _cool_down(self) -> None:
        """Wait for the pause that the endpoint asked of any call of this process."""
        policy, run = self.models.policy, self.ctx.run
        while not self._began(self.number):
            left = self.models.cooling(self.request, run.clock.monotonic())
            if not left:
                return
            if not self._is_too_long(left):
                # Not all at once when it is over.
                seconds = left + run.random() * min(left, policy.longest_delay)
                self.waited += seconds
                await self.ctx.sleep(seconds)
            elif self._has_others(False):
                self.tally = self.tally.moved()
                await self._move()
            else:
                what = f"{self.request.provider}/{self.request.model} asked for a pause"
                fault = ModelError(what, kind="throttled", path=self.path, retry_after=left)
                self._suspend(fault, left)

    def _escalate(self, fault: ModelError) -> None:
        """Double the cap on tokens, if the budget has room for it."""
        written = self.request.max_tokens or max(
            (fault.usage or NOTHING).output_tokens, LEAST_DOUBLED
        )
        cap = 2 * written
        if self.judge and fault.reason == "thinking":
            cap = max(cap, THOUGHTFUL)
        larger = replace(self.request, max_tokens=cap)
        if not self._began(self.number + 1) and not _has_room(
            self.ctx, self.models.worst_case(larger)
        ):
            raise self._final(fault)
        self.escalated = fault
        self.request = larger

    def _re_ask(self, fault: ModelError) -> None:
        """Ask again with the answer and what was wrong with it."""
        asked: list[Message] = list(self.request.messages)
        if own_words(fault.partial).strip():
            asked.append(Message("assistant", own_words(fault.partial)[:QUOTED_CHARS]))
        problem = fault.problem or f"Your answer could not be used: {fault}"
        asked.append(Message("user", problem))
        self.request = replace(self.request, messages=tuple(asked))

    def _suspend(self, fault: ModelError, told: float) -> None:
        """Suspend the run until the endpoint is ready, if its journal outlives this process."""
        run = self.ctx.run
        if not run.log.keeps_values:
            raise self._final(fault)
        quota = fault.kind == "quota"
        request: dict[str, Json] = {"provider": self.request.provider, "model": self.request.model}
        if told:
            request["until"] = run.clock.wall() + told
            detail = f"{fault}; it asked for {told:.0f} s, resume the run after that"
        else:
            detail = f"{fault}; resume the run when there is quota again"
        stop = Stop(Reason.QUOTA if quota else Reason.THROTTLED, detail)
        raise Suspended(stop, path=self.path, request=request)

    def _final(self, fault: ModelError) -> ModelError:
        """Return the fault that ends the call."""
        if self.escalated is not None and fault.kind == "permanent":
            fault = self.escalated  # the larger cap was refused: that it was cut off is the news
        made = error_from_json(fault.to_json(), path=self.path)
        if self.number > 1:
            made.args = (f"{fault} ({self.number} attempts)",)
        return made


def _has_room(ctx: Context, amount: Usage) -> bool:
    """Whether `amount` more fits into every account, as far as one can see now."""
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
