"""The base class of conditions, their combinations, and their conversion to JSON and back."""

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
from ..records.typed import Value

TAGS: dict[str, type[Condition]] = {}  # filled by @condition while modules load, read after


class Condition(ABC):
    """A termination condition: a pure function from a history to `Stop(reason, detail)` or None.

    Derive a frozen dataclass and define `check`. Conditions combine with `|` and `&`.

    Example:
        >>> from dataclasses import dataclass
        >>> from loopwright.records import Evaluation, History, Iteration, Reason, Stop
        >>> @dataclass(frozen=True)
        ... class ShortEnough(Condition):
        ...     words: int
        ...     def check(self, history):
        ...         last = history.last
        ...         if last is None or len(str(last.output).split()) > self.words:
        ...             return None
        ...         return Stop(Reason.CONDITION_MET, f"at most {self.words} words")
        >>> ShortEnough(3).check(History([Iteration(1, output="one two")])).detail
        'at most 3 words'
    """

    __slots__ = ()
    hard: ClassVar[bool] = False  # a limit, which also acts outside an "and"
    early: ClassVar[bool] = True  # `min_iterations` may delay it
    goal: ClassVar[bool] = True  # a condition of success, unless it is a limit
    reads: ClassVar[str] = ""  # the part of an evaluation that it needs, in words
    ours: ClassVar[bool] = (
        True  # defined in this package, so that it needs no copies of the history
    )

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.ours = cls.__module__.partition(".")[0] == __name__.partition(".")[0]

    @abstractmethod
    def check(self, history: History) -> Stop | None:
        """Return the reason to end the loop now, or None to continue."""

    def applies_to(self, item: Iteration) -> bool:
        """Return whether an iteration has the part of an evaluation that this condition `reads`."""
        del item
        return True

    def __or__(self, other: Condition) -> AnyOf:
        return AnyOf((self, other))

    def __and__(self, other: Condition) -> AllOf:
        return AllOf((self, other))

    def __ror__(self, other: object) -> AnyOf:
        return AnyOf((other, self))  # type: ignore[arg-type]  # refused there, with a message

    def __rand__(self, other: object) -> AllOf:
        return AllOf((other, self))  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        # `a and b` would silently drop the first condition.
        raise TypeError(
            "a condition has no truth value; combine conditions with | and &, not with or and and"
        )

    def field_values(self) -> dict[str, Json]:
        """Return its fields as JSON, without defaults."""
        # Private attributes are left out: they are computed, and would change the fingerprint.
        if not dataclasses.is_dataclass(self):  # a user's class with any attributes
            attributes = getattr(self, "__dict__", {}).items()
            return {str(key): _shown(value) for key, value in attributes if key[:1] != "_"}
        data = {}
        # Without defaults, so that a new field with a default leaves recorded conditions valid.
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.default is dataclasses.MISSING or value != item.default:
                data[item.name] = _shown(value)
        return data

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.field_values().items())
        return f"{tag_of(type(self))}({shown})"

    def to_json(self) -> Json:
        """Return the condition as `{tag: {field: value}}`, without defaults.

        A class that is not registered is `{"python": "module:Class", field: value}`.
        """
        kind = type(self)
        if TAGS.get(tag_of(kind)) is not kind:
            return {"python": f"{kind.__module__}:{kind.__qualname__}", **self.field_values()}
        return {tag_of(kind): self.field_values()}

    def flat(self) -> Iterator[Condition]:
        """Iterate over the members of an "or", or over the condition itself."""
        yield self

    def parts(self) -> tuple[Condition, ...]:
        """Return the conditions that it combines; none for a single condition."""
        return ()

    def limits(self) -> Iterator[Condition]:
        """Iterate over the hard limits inside it, at any depth."""
        if self.hard:
            yield self


def _shown(value: object) -> Json:
    """Return a field of a condition as JSON; its type if JSON cannot hold it."""
    try:
        return codec.normalise(list(value) if isinstance(value, tuple) else value)
    except Exception:  # a user's class may hold any value
        return f"<{type(value).__name__}>"


def check_safely(condition: Condition, history: History) -> Stop | None:
    """Check a condition. A user's condition receives copies of the recorded values.

    Args:
        condition: the condition.
        history: the iterations so far.

    Returns:
        Its stop. An exception, or a result other than Stop and None, becomes a Stop with a `failure`.
    """
    if condition.ours:
        return condition.check(history)
    tag = type(condition).__name__
    try:
        # Views: a condition of the user must not change the record.
        stop = condition.check(history.view())
    except BaseException as error:  # of any kind: the loop ends and reports it
        from ..records.redaction import described

        exception, traceback = described(error, redact=history.redact)
        detail = f"the condition {tag} failed: {codec.error_line(error, history.redact)}"
        return _failed(detail, type(error).__name__, exception, traceback)
    if stop is None or isinstance(stop, Stop):
        return stop
    detail = (
        f"the condition {tag} returned {type(stop).__name__} {_short(stop)}; "
        "return Stop(Reason.CONDITION_MET, ...) to end the loop, or None to continue"
    )
    return _failed(detail, "bad_condition")


def _failed(detail: str, kind: str, exception: str = "", traceback: str = "") -> Stop:
    failure = Failure(
        "decide", kind, detail, retryable=False, exception=exception, traceback=traceback
    )
    return Stop(Reason.ERROR, detail, failure=failure)


def _short(value: object) -> str:
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
    # Derived from the class, so that Python and YAML cannot differ.
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


_Kind = TypeVar("_Kind", bound=type[Condition])


def condition(kind: _Kind) -> _Kind:
    """Register a frozen dataclass under its tag, so that JSON and YAML can name it.

    Raises:
        ConfigurationError: if the class is not derived from Condition, or another one has the same tag.

    Example:
        >>> @condition
        ... @dataclass(frozen=True)
        ... class Never(Condition):
        ...     def check(self, history):
        ...         return None
        >>> from_json("never")
        Never()
    """
    # Refused here, because the first loop with it may be in another module.
    tag = tag_of(_condition_class(getattr(kind, "__qualname__", repr(kind)), kind))
    # The first one stays: a document must not change its meaning with the order of imports.
    if TAGS.setdefault(tag, kind) is not kind:
        raise ConfigurationError(f"the condition {tag!r} is already registered")
    return kind


def from_json(data: Json) -> Condition:
    """Return the condition that `to_json` wrote, or a short form of it.

    Args:
        data: `{tag: {field: value}}`, `{tag: value}` with the first field, `tag` alone, or a list, which
            is an "or". `{"python": "module:Class", field: value}` is a class of an imported module;
            this function imports nothing.

    Raises:
        ConfigurationError: for an unknown tag or field; names the nearest valid one.

    Example:
        >>> from_json([{"score_at_least": 0.9}, {"max_iterations": {"limit": 5}}])
        AnyOf(members=(ScoreAtLeast(threshold=0.9, min_iterations=1), MaxIterations(limit=5)))
    """
    if isinstance(data, str):
        data = {data: {}}
    if isinstance(data, list):
        members = [from_json(item) for item in data]
        return members[0] if len(members) == 1 else AnyOf(tuple(members))
    # Before the check for a single tag: a user's class has its fields beside the reference.
    if isinstance(data, Mapping) and "python" in data:
        arguments = {name: value for name, value in data.items() if name != "python"}
        return instance_of(data["python"], _imported(data["python"]), arguments)
    if not isinstance(data, Mapping) or len(data) != 1:
        shown = codec.flow_text(data)
        raise ConfigurationError(f"{shown} is not a condition; use one tag with its value")
    tag, value = next(iter(data.items()))
    kind = TAGS.get(tag)
    if kind is None:
        hint = nearest(str(tag), TAGS)
        if " " in str(tag).strip():
            hint = f"; a sentence for a judge is {codec.flow_text({'judged': str(tag)})}"
        raise ConfigurationError(f"unknown condition {tag!r}{hint}")
    if issubclass(kind, AnyOf | AllOf):
        items = value if isinstance(value, list) else [value]
        return kind(tuple(from_json(item) for item in items))
    return _build(tag, kind, value)


def instance_of(reference: str, kind: object, arguments: Mapping[str, Json]) -> Condition:
    """Return an instance of a user's condition class.

    Raises:
        ConfigurationError: if it is not a condition class, or refuses the arguments.
    """
    cls = _condition_class(reference, kind)
    try:
        if dataclasses.is_dataclass(cls):
            return _build(reference, cls, arguments)
        return cls(**arguments)
    except ConfigurationError:
        raise
    except Exception as error:  # a user's class may raise any error
        raise ConfigurationError(
            f"{reference}: it cannot be created with {', '.join(arguments) or 'no arguments'}: "
            f"{codec.error_line(error)}"
        ) from error


def _condition_class(reference: str, kind: object) -> type[Condition]:
    if not isinstance(kind, type) or not issubclass(kind, Condition):
        raise ConfigurationError(
            f"{reference}: it is not a condition class; derive it from loopwright.conditions.Condition"
        )
    return kind


def _imported(reference: Json) -> type[Condition]:
    # Imported classes only: reading a condition must not run code that the reader has not chosen.
    kinds: list[type[Condition]] = list(Condition.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
        if f"{kind.__module__}:{kind.__qualname__}" == reference:
            return kind
    raise ConfigurationError(
        f"python: no imported module has the condition {reference!r}; import its module first"
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
    # Tuples, because a frozen condition must be hashable.
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
    try:
        return kind(**plain)
    except ConfigurationError as error:
        # The class writes a value as Python does, and its author wrote JSON or YAML.
        raise ConfigurationError(codec.in_flow(str(error), plain.values())) from error


def has_goal(tree: Condition | None) -> bool:
    """Return whether a condition, or one inside it, is a condition of success."""
    if tree is None:
        return False
    if isinstance(tree, _Combined):
        return any(has_goal(member) for member in tree.members)
    # A limit may be written as a goal by mistake; it never means success.
    return tree.goal and not tree.hard


class _Combined(Condition):
    __slots__ = ()
    members: tuple[Condition, ...]
    joint: ClassVar[str]

    def _flatten(self) -> None:
        flat: list[Condition] = []
        tag = tag_of(type(self))
        if not isinstance(self.members, list | tuple):
            raise ConfigurationError(f"{tag}: use a list of conditions, not {self.members}")
        for member in self.members:
            if not isinstance(member, Condition):
                hint = (
                    "; derive its class from loopwright.Condition"
                    if hasattr(member, "check")
                    else ""
                )
                raise ConfigurationError(f"{member!r} is not a condition{hint}")
            # (a | b) | c is one "or" of three, so that equal conditions have one form.
            flat += member.members if isinstance(member, type(self)) else [member]
        if not flat:
            raise ConfigurationError(f"{tag}: the list of conditions is empty; add at least one")
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
    """Return the first of several stops by the rank of its reason, with the other reasons in `also`.

    >>> prefer([Stop(Reason.MAX_ITERATIONS), Stop(Reason.CONDITION_MET)]).also
    (<Reason.MAX_ITERATIONS: 'max_iterations'>,)
    """
    # Success has the lowest rank: a loop that succeeds at its limit has succeeded.
    ranked = sorted(stops, key=lambda stop: stop.reason.rank)
    if len(ranked) < 2:
        return ranked[0] if ranked else None
    reasons = dict.fromkeys(r for stop in ranked for r in (stop.reason, *stop.also))
    reasons.pop(ranked[0].reason)
    return dataclasses.replace(ranked[0], also=tuple(reasons))


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AnyOf(Value, _Combined):
    """Stop when a member holds; success is preferred to a limit of the same iteration.

    Write it as `a | b`.

    Args:
        members: the conditions; nested "or"s are flattened.

    Raises:
        ConfigurationError: if the list is empty or contains another value.

    Example:
        >>> from loopwright.conditions import MaxIterations, ScoreAtLeast
        >>> str(ScoreAtLeast(0.9) | MaxIterations(5))
        'score_at_least(threshold=0.9) | max_iterations(limit=5)'
    """

    members: tuple[Condition, ...]
    joint: ClassVar[str] = "|"

    def __post_init__(self) -> None:
        self._flatten()

    __str__ = _Combined.__str__  # the decorator would replace it

    def check(self, history: History) -> Stop | None:
        return prefer(stop for m in self.members if (stop := check_safely(m, history)) is not None)

    def flat(self) -> Iterator[Condition]:
        for member in self.members:
            yield from member.flat()


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AllOf(Value, _Combined):
    """Stop when every member holds, with success if a member is a condition of success.

    Write it as `a & b`.

    Args:
        members: the conditions; nested "and"s are flattened.

    Raises:
        ConfigurationError: if the list is empty or contains another value.

    Example:
        >>> from loopwright.conditions import Passed, ScoreAtLeast
        >>> str(ScoreAtLeast(0.9) & Passed())
        'score_at_least(threshold=0.9) & passed()'
    """

    members: tuple[Condition, ...]
    joint: ClassVar[str] = "&"

    def __post_init__(self) -> None:
        self._flatten()

    __str__ = _Combined.__str__

    def check(self, history: History) -> Stop | None:
        stops = []
        for member in self.members:
            stop = check_safely(member, history)
            # A condition that fails ends the loop, although the "and" does not hold.
            if stop is None or stop.failure is not None:
                return stop
            stops.append(stop)
        first = prefer(stops)
        return first and dataclasses.replace(first, detail=" and ".join(s.detail for s in stops))
