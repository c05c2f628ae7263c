"""A step that asks a model, and what a run of it left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopwright import Context, MemoryJournal, Result, run
from loopwright.engine.step import CompositeStep
from loopwright.journal import Entry
from loopwright.models import (
    Message,
    Models,
    Policy,
    Request,
    ScriptedModel,
    Target,
    call_model,
)
from loopwright.records import Reason, Status
from loopwright.records.codec import Json
from loopwright.testing import VirtualClock, run_virtual

PRICES = {"gpt-4o": {"input": 2.0, "output": 10.0}, "other": {"input": 1.0, "output": 1.0}}


class DurableJournal(MemoryJournal):
    """A journal in memory that says it outlives the process, so that runs can be suspended."""

    async def open(self, *given: Any, **named: Any) -> Any:
        log = await super().open(*given, **named)
        log.keeps_values = True
        return log


class Ask(CompositeStep):
    """A step that asks one question and returns the reply as JSON."""

    name = "ask"
    fingerprint = "ask"

    def __init__(
        self,
        request: Mapping[str, Any] | None = None,
        failover: Sequence[Target] = (),
        judge: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self.request = {"provider": "openai", "model": "gpt-4o", **(request or {})}
        self.options: dict[str, Any] = {"failover": failover, "judge": judge, "on_text": on_text}

    def asked(self, value: Json) -> Request:
        return Request((Message("user", str(value)),), **self.request)

    async def run(self, value: Json, ctx: Context) -> Result:
        reply = await call_model(ctx, "call", self.asked(value), **self.options)
        return Result(Status.SATISFIED, Reason.COMPLETED, "asked", reply, name=self.name)


@dataclass
class World:
    """Scripted models, a journal and a clock for any number of runs of one step."""

    rules: Any
    journal: Any = field(default_factory=DurableJournal)
    clock: VirtualClock = field(default_factory=VirtualClock)
    chance: Callable[[], float] = lambda: 0.5
    policy: Policy | None = None
    records: list[dict[str, Json]] = field(default_factory=list)
    models: Models = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything but the journal, as a new process would."""
        self.models = Models(
            ScriptedModel(self.rules) if not hasattr(self.rules, "complete") else self.rules,
            prices=PRICES, known_prices=False, transcript=self.records.append, policy=self.policy,
        )  # fmt: skip

    async def go(
        self, step: Any, value: Json = "hello", *, permits: Any = None, **options: Any
    ) -> Result:
        options = {"run_id": "r", **options}
        return await run(
            step, value, journal=self.journal, clock=self.clock, random=self.chance,
            resources={"models": self.models, "permits": permits}, **options,
        )  # fmt: skip

    def run(self, step: Any, value: Json = "hello", **options: Any) -> Result:
        return run_virtual(self.go(step, value, **options))

    @property
    def entries(self) -> list[Entry]:
        found: list[Entry] = run_virtual(self.journal.entries("r"))
        return found

    @property
    def attempts(self) -> list[Entry]:
        return [e for e in self.entries if e.kind == "finished" and "/attempt-" in e.path]
