"""The cache of model calls: which replies are kept, under which key, and for which calls they stand.

1. The key is a digest of the whole request, the address it goes to, the scope, and the draw. Two draws of one step,
   such as two votes, never share a reply; two iterations may.
2. Only whole replies are kept: no error, no cut reply, no refusal. A call at another temperature than 0 and without a
   seed has no part in it, unless `sampling` is set.
3. A reply is kept after it is on record, as the journal has it and without secrets.
4. A call that a rewind has discarded is made again, and so is every measurement of a confirmation.
5. A failure of the cache is a warning: the call is made.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from ..engine.context import Context
from ..errors import ConfigurationError, JournalError, nearest
from ..journal.call_cache import CallCache
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from ..records.display import seconds_of
from .call import ModelAttempt
from .protocol import Request
from .registry import Models

__all__ = ["NEVER_KEPT", "CachedReply", "Caching", "ReplyCache", "draw_of"]

NEVER_KEPT = (
    "because its temperature is not 0 and there is no seed; set temperature: 0, seed, or cache: {where: store, "
    "sampling: true}"
)
FORMAT = 1  # of the key, and of what is kept
_WHERE = ("run", "store", "off")
# The ID of a case is passed over: it may have any form.
_DRAWS = re.compile(
    r"(?<![^/])(?:cases/s[0-9]{4,}/[^/]+|((?:candidate|vote|measure|repeat|attempt)-[0-9]+|rejudge/[0-9]+|again))(?![^/])"
)
_CONFIRMS = re.compile(r"(?:^|/)[0-9]+/(?:candidate-[0-9]+/)?confirm/[a-z]+-[0-9]+(?:/|$)")
# Judges sign their answers with a mark of the question, which differs from run to run.
_MARK = re.compile(r"The mark is ([0-9a-f]{16})\.")
T = TypeVar("T")


def draw_of(path: str) -> str | None:
    """Return which of several equal requests of one step a call is; None for a measurement of a confirmation.

    Args:
        path: the path of the call.

    Returns:
        The numbers of candidate, vote, repetition, attempt, re-ask and rejudgement in the path, in their order.

    Example:

    >>> draw_of("refine/3/candidate-2/evaluate/vote-1"), draw_of("refine/3/execute")
    ('candidate-2/vote-1', '')
    """
    if _CONFIRMS.search(path):
        return None
    return "/".join(match[1] for match in _DRAWS.finditer(path) if match[1])


@dataclass(frozen=True, slots=True)
class Caching:
    """The setting `cache` of a model call.

    Args:
        where: `run`, `store` (of the journal, for all runs), or `off`. Default: `store`.
        ttl: seconds, or a text such as `30d`, after which a reply is too old. Default: none.
        sampling: whether calls with a temperature above 0 and without a seed take part. Default: false.
        scope: names and values that a call must share with the kept one, such as a release. Default: none.

    Raises:
        ConfigurationError: for another value.

    Example:

    >>> Caching(ttl="1h").ttl
    3600.0
    """

    where: str = "store"
    ttl: float | str | None = None
    sampling: bool = False
    scope: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.where not in _WHERE:
            hint = nearest(str(self.where), _WHERE) or f"; use {', '.join(_WHERE)}"
            raise ConfigurationError(f"cache: {self.where!r:.80} is not a place for replies{hint}")
        if isinstance(self.ttl, str):
            try:
                object.__setattr__(self, "ttl", seconds_of(self.ttl))
            except ValueError as error:
                raise ConfigurationError(f"cache: ttl: {error}; use one such as 30d") from None
        elif self.ttl is not None:
            codec.number("cache: ttl", self.ttl, minimum=0, above=True)
        if not isinstance(self.sampling, bool):
            raise ConfigurationError(f"cache: sampling: {self.sampling!r:.80} is not true or false")
        if not isinstance(self.scope, Mapping):
            raise ConfigurationError(f"cache: scope: {self.scope!r:.80} is not an object of values")

    def keeps(self, temperature: float | None, settings: Mapping[str, Json]) -> bool:
        """Return whether replies to calls with these settings can be kept."""
        return temperature == 0 or settings.get("seed") is not None or self.sampling

    @classmethod
    def of(cls, value: Json) -> Caching:
        """Return the settings of a word, or of a mapping. Raises ConfigurationError."""
        if not isinstance(value, Mapping):
            return cls(value)
        for name in value:
            if name not in cls.__slots__:
                raise ConfigurationError(
                    f"cache: {name!r:.80} is not a setting{nearest(str(name), cls.__slots__)}"
                )
        return cls(**{name: item for name, item in value.items() if item is not None})


@dataclass(frozen=True)
class ReplyCache:
    """The cache, as one call uses it."""

    caching: Caching
    draw: str
    models: Models
    ctx: Context
    store: CallCache

    @classmethod
    def of(cls, ctx: Context, models: Models, request: Request, setting: Json) -> ReplyCache | None:
        """Return the cache of a call; None for a call that has no part in it."""
        caching, draw = Caching.of(setting), draw_of(request.path)
        if caching.where == "off" or draw is None:
            return None
        if caching.keeps(request.temperature, request.extra):
            return cls(caching, draw, models, ctx, ctx.run.resources["call_cache"])
        if request.cache is not None:
            ctx.warn(f"no reply of {request.model} is kept, {NEVER_KEPT}", code="cache_unused")
        return None

    def key(self, request: Request) -> str:
        """Return the digest of all that decides about the reply to a request."""
        kind = type(self.models.model)
        address = getattr(self.models.model, "address", None)  # a model of the user may have none
        sent = json.dumps(request.to_json(), sort_keys=True)
        whole = {
            "format": FORMAT,
            "request": sent.replace(mark, "mark") if (mark := _mark_of(request)) else sent,
            # A temperature of 0 is left out of the JSON of a request, like none.
            "temperature": request.temperature,
            "text_field": request.text_field,
            "timeouts": asdict(request.timeouts),
            "host": [kind.__module__, kind.__qualname__, address and address(request)],
            "scope": dict(self.caching.scope),
            "run": self.ctx.run_id if self.caching.where == "run" else "",
            "draw": self.draw,
        }
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=repr).encode()).hexdigest()

    async def find(self, request: Request) -> Json:
        """Return the reply that is kept for a request, as a call records it; None without one."""
        row = await self._done(lambda: self.store.get(self.key(request)))
        if row is None or row[1].get("format") != FORMAT:
            return None
        at, kept = row
        age = max(0.0, self.ctx.run.clock.wall() - at)
        place = {name: kept[name] for name in ("run_id", "path")}
        if place == {"run_id": self.ctx.run_id, "path": request.path}:
            return None  # the call was made in this run, and a rewind discarded it
        if isinstance(self.caching.ttl, float) and age > self.caching.ttl:
            return None
        reply = kept["reply"]
        if (mark := _mark_of(request)) and kept["mark"]:
            reply = json.loads(json.dumps(reply).replace(kept["mark"], mark))
        return {**reply, "cached": {**place, "age": round(age, 3)}, "saved": kept["saved"]}

    async def keep(self, request: Request, reply: Mapping[str, Json]) -> None:
        """Keep a reply that is on record."""
        part = {key: value for key, value in reply.items() if key not in ("usage", "target")}
        redactor = self.models.redactor
        value = {
            "format": FORMAT,
            "run_id": self.ctx.run_id,
            "path": request.path,
            "mark": _mark_of(request),
            "saved": reply["usage"],
            "reply": part if redactor is None else redactor.clean(part),
        }
        await self._done(
            lambda: self.store.put(self.key(request), value, self.ctx.run.clock.wall())
        )

    async def _done(self, work: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await work()
        except JournalError as error:
            self.ctx.warn(f"replies are not kept: {error}", code="cache_failed")
            return None


def _mark_of(request: Request) -> str:
    """Return the mark that a judge has to repeat, "" for other requests."""
    if request.schema is None or "mark" not in request.schema.get("properties", {}):
        return ""
    return match[1] if (match := _MARK.search(request.prompt)) else ""


class CachedReply(ModelAttempt):
    """An attempt that a kept reply answers: it reserves and costs nothing, and takes no permit of its model.

    Args:
        attempt: the attempt in whose place it stands, also in a replay.
        data: the reply, as the attempt would record it.
    """

    reports = False

    def __init__(self, attempt: ModelAttempt, data: dict[str, Json]) -> None:
        vars(self).update(vars(attempt))
        self.name, self._reserved = "kept reply", NOTHING  # limits of its model do not apply
        self.data = data

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the reply, and write it to the transcript."""
        del value
        ctx.spend(Usage(cached=1, saved=Usage.from_json(self.data["saved"]).usd))
        if self.on_text is not None:
            self.on_text(self.data["text"])
        if self.target:
            self.data["target"] = self.target
        self._write_transcript(ctx, NOTHING, reply=self.data)
        return self.data
