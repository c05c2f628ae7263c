"""What a condition is, how conditions combine, and their way to JSON and back."""

from __future__ import annotations

import dataclasses
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from ..errors import ConfigurationError, nearest
from ..records import Failure, History, Iteration, Reason, Stop, codec
from ..records.codec import Json
from ..records.tracebacks import described

TAGS: dict[str, type[Condition]] = {}  # filled by @condition while modules load, read after


class Condition(ABC):
    """A termination condition: answers `Stop(reason, …)` or None for a history."""

    __slots__ = ()
    hard: ClassVar[bool] = False  # a limit, which also acts outside an "and"
    early: ClassVar[bool] = True  # may be delayed by min_iterations
    goal: ClassVar[bool] = True  # what is wanted, unless it is a limit; else a sign to give up
    reads: ClassVar[str] = ""  # what of an evaluation it cannot hold without, in words
    ours: ClassVar[bool] = True  # made in this package, not by its user

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.ours = cls.__module__.partition(".")[0] == __name__.partition(".")[0]

    @abstractmethod
    def check(self, history: History) -> Stop | None:
        """Return why the loop should end now, or None."""

    def told(self, item: Iteration) -> bool:
        """Return whether an iteration has what this `reads`."""
        del item
        return True

    def __or__(self, other: Condition) -> AnyOf:
        return AnyOf((self, other))

    def __and__(self, other: Condition) -> AllOf:
        return AllOf((self, other))

    def __bool__(self) -> bool:
        raise TypeError(
            "a condition has no truth value; combine conditions with | and &, not with or and and"
        )

    def field_values(self) -> dict[str, Json]:
        """Return its fields as JSON, without those that have their default."""
        if not dataclasses.is_dataclass(self):  # a class of a user's, with attributes as it likes
            given = getattr(self, "__dict__", {}).items()
            return {str(key): _shown(value) for key, value in given if key[:1] != "_"}
        data = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.default is dataclasses.MISSING or value != item.default:
                data[item.name] = _shown(value)
        return data

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.field_values().items())
        return f"{tag_of(type(self))}({shown})"

    def to_json(self) -> Json:
        """Return it as `{tag: {field: value}}`, without the fields that have their default.

        A class that is not registered goes by its place: `{"python": "module:Class", field: value}`.
        """
        kind = type(self)
        if TAGS.get(tag_of(kind)) is not kind:
            return {"python": f"{kind.__module__}:{kind.__qualname__}", **self.field_values()}
        return {tag_of(kind): self.field_values()}

    def flat(self) -> Iterator[Condition]:
        """Iterate over the members of an "or", or over the condition itself."""
        yield self

    def parts(self) -> tuple[Condition, ...]:
        """Return the conditions that it combines, if it does."""
        return ()

    def limits(self) -> Iterator[Condition]:
        """Iterate over every hard limit inside it, at any depth."""
        if self.hard:
            yield self


def _shown(value: Any) -> Json:
    """Return a field of a condition as JSON; of what is none, its type."""
    try:
        return codec.normalise(list(value) if isinstance(value, tuple) else value)
    except Exception:  # what a user's class keeps is its own business
        return f"<{type(value).__name__}>"


def asked(condition: Condition, history: History) -> Stop | None:
    """Ask a condition of a user's, which gets a history of its own.

    What it raises, or returns in place of a Stop or None, is a Stop with a `failure`.
    """
    if condition.ours:
        return condition.check(history)
    tag = type(condition).__name__  # the name that its author knows
    try:
        found = condition.check(history.view())
    except BaseException as error:  # whatever it is, the loop ends and says why
        exception, traceback = described(error, redact=history.redact)
        what = f"the condition {tag} failed: {codec.error_line(error, history.redact)}"
        return _failed(what, type(error).__name__, exception, traceback)
    if found is None or isinstance(found, Stop):
        return found
    what = (
        f"the condition {tag} returned {type(found).__name__} {_short(found)}; "
        "return Stop(Reason.CONDITION_MET, ...) to end the loop, or None to go on"
    )
    return _failed(what, "bad_condition")


def _failed(what: str, kind: str, exception: str = "", traceback: str = "") -> Stop:
    failure = Failure(
        stage="decide",
        kind=kind,
        message=what,
        path="",
        retryable=False,
        retry_after=None,
        exception=exception,
        traceback=traceback,
    )
    return Stop(Reason.ERROR, what, failure=failure)


def _short(value: Any) -> str:
    try:
        return f"({value!r:.40})"
    except Exception:
        return ""


def named(stop: Stop, loop: str) -> Stop:
    """Return the stop of a condition that failed, with the loop as the path of its failure."""
    if stop.failure is None:
        return stop
    return dataclasses.replace(stop, failure=dataclasses.replace(stop.failure, path=loop))


@functools.cache
def tag_of(kind: type) -> str:
    """Return the YAML tag of a class: its name in snake case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


_Kind = TypeVar("_Kind", bound=type[Condition])


def condition(kind: _Kind) -> _Kind:
    """Register a frozen dataclass as a condition, under its tag, for JSON and YAML.

    Raises:
        ConfigurationError: if the tag is taken by another class.
    """
    tag = tag_of(kind)
    if TAGS.setdefault(tag, kind) is not kind:
        raise ConfigurationError(f"the condition {tag!r} is already registered")
    return kind


def from_json(data: Json) -> Condition:
    """Return the condition that `to_json` wrote, or that a document spells in short.

    Shapes: `{tag: {field: value}}`, `{tag: value}` for the first field, `tag` alone, and a list,
    which is an "or". `{"python": "module:Class", field: value}` is a class of a module that is imported
    already: nothing is imported here.

    Raises:
        ConfigurationError: naming the unknown tag or field and the nearest valid one.
    """
    if isinstance(data, str):
        data = {data: {}}
    if isinstance(data, list):
        members = [from_json(item) for item in data]
        return members[0] if len(members) == 1 else AnyOf(tuple(members))
    if isinstance(data, Mapping) and "python" in data:
        return made_of(
            data["python"], _known(data["python"]), {k: v for k, v in data.items() if k != "python"}
        )
    if not isinstance(data, Mapping) or len(data) != 1:
        raise ConfigurationError(f"{data!r} is not a condition; write one tag with its value")
    tag, value = next(iter(data.items()))
    kind = TAGS.get(tag)
    if kind is None:
        raise ConfigurationError(f"unknown condition {tag!r}{nearest(str(tag), TAGS)}")
    if issubclass(kind, AnyOf | AllOf):
        items = value if isinstance(value, list) else [value]
        return kind(tuple(from_json(item) for item in items))
    return _build(tag, kind, value)


def made_of(reference: str, kind: Any, given: Mapping[str, Json]) -> Condition:
    """Return a condition of a user's class, made with these arguments.

    Raises:
        ConfigurationError: if it is no class of conditions, or refuses the arguments.
    """
    if not isinstance(kind, type) or not issubclass(kind, Condition):
        raise ConfigurationError(
            f"{reference}: it is not a class of conditions; derive it from loopwright.conditions.Condition"
        )
    try:
        if dataclasses.is_dataclass(kind):
            return _build(reference, kind, given)
        return kind(**given)
    except ConfigurationError:
        raise
    except Exception as error:  # what a user's class raises is theirs to choose
        raise ConfigurationError(
            f"{reference}: it cannot be made with {', '.join(given) or 'no arguments'}: "
            f"{codec.error_line(error)}"
        ) from error


def _known(reference: Any) -> type[Condition]:
    kinds: list[type[Condition]] = list(Condition.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
        if f"{kind.__module__}:{kind.__qualname__}" == reference:
            return kind
    raise ConfigurationError(
        f"python: there is no condition {reference!r} among the imported modules; import its module first"
    )


def _build(tag: str, kind: type[Condition], value: Json) -> Condition:
    fields = {f.name: f for f in dataclasses.fields(cast("Any", kind))}
    if not isinstance(value, Mapping):
        value = {} if value is None else {next(iter(fields), "value"): value}
    for name in value:
        if name not in fields:
            hint = nearest(str(name), fields) or f"; it has {', '.join(fields) or 'no fields'}"
            raise ConfigurationError(f"{tag}: unknown field {name!r}{hint}")
    for name, item in fields.items():
        if item.default is dataclasses.MISSING and name not in value:
            raise ConfigurationError(f"{tag}: needs {name}")
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
    return kind(**plain)


def has_goal(tree: Condition | None) -> bool:
    """Return whether a condition, or one inside it, is one of success."""
    if tree is None:
        return False
    if isinstance(tree, _Combined):
        return any(has_goal(member) for member in tree.members)
    return tree.goal and not tree.hard


class _Combined(Condition):
    __slots__ = ()
    members: tuple[Condition, ...]
    joint: ClassVar[str]

    def _flatten(self) -> None:
        flat: list[Condition] = []
        tag = tag_of(type(self))
        if not isinstance(self.members, list | tuple):
            raise ConfigurationError(f"{tag}: give a list of conditions, not {self.members}")
        for member in self.members:
            if not isinstance(member, Condition):
                raise ConfigurationError(f"{member!r} is not a condition")
            flat += member.members if isinstance(member, type(self)) else [member]
        if not flat:
            raise ConfigurationError(f"{tag}: the list of conditions is empty; name at least one")
        object.__setattr__(self, "members", tuple(flat))

    def __str__(self) -> str:
        inner = (f"({m})" if isinstance(m, _Combined) else str(m) for m in self.members)
        return f" {self.joint} ".join(inner)

    def to_json(self) -> Json:
        return {tag_of(type(self)): [member.to_json() for member in self.members]}

    def parts(self) -> tuple[Condition, ...]:
        return self.members

    def limits(self) -> Iterator[Condition]:
        for member in self.members:
            yield from member.limits()


def prefer(stops: Iterable[Stop]) -> Stop | None:
    """Return the stop to report of those that held together: by rank, with the others under
    `also`."""
    found = list(stops)
    if len(found) < 2:
        return found[0] if found else None
    found.sort(key=lambda stop: stop.reason.rank)
    reasons = dict.fromkeys(r for stop in found for r in (stop.reason, *stop.also))
    reasons.pop(found[0].reason)
    return dataclasses.replace(found[0], also=tuple(reasons))


@condition
@dataclass(frozen=True, slots=True)
class AnyOf(_Combined):
    """Stop at the first member that holds; success is preferred to a limit of the same round."""

    members: tuple[Condition, ...]
    joint: ClassVar[str] = "|"

    def __post_init__(self) -> None:
        self._flatten()

    __str__ = _Combined.__str__

    def check(self, history: History) -> Stop | None:
        return prefer(stop for m in self.members if (stop := asked(m, history)) is not None)

    def flat(self) -> Iterator[Condition]:
        for member in self.members:
            yield from member.flat()


@condition
@dataclass(frozen=True, slots=True)
class AllOf(_Combined):
    """Stop when every member holds; satisfied if any of them is a condition of success."""

    members: tuple[Condition, ...]
    joint: ClassVar[str] = "&"

    def __post_init__(self) -> None:
        self._flatten()

    __str__ = _Combined.__str__

    def check(self, history: History) -> Stop | None:
        stops = []
        for member in self.members:
            stop = asked(member, history)
            if stop is None or stop.failure is not None:
                return stop
            stops.append(stop)
        found = prefer(stops)
        return found and dataclasses.replace(found, detail=" and ".join(s.detail for s in stops))
