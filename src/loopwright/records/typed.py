"""Values of declared types, and records whose values no reader can change.

A declared type is an annotation of a step's function, or its `output=` or `input=`:

1. The engine and the journal hold JSON. A value with a declared type is a JSON value that carries its
   type, so that each reader can decode its own copy from the recorded bytes.
2. A value is decoded at once when it is written. A type that does not survive the round trip fails in
   its first iteration, not in a replay.
3. A type that consists of JSON types only, such as `dict[str, int]`, is written like an untyped value.

pydantic validates and serialises (https://docs.pydantic.dev/latest/concepts/type_adapter/).

A record has plain fields. `Record.view` returns it for one reader, as an instance of a subclass that takes each
field from the record at the first access. Text, numbers, booleans and None are shared, because they are immutable.
Lists and objects are copied, and the copy stays in the view.
"""

from __future__ import annotations

import collections.abc
import copyreg
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import typing_extensions

from ..errors import StepError
from . import codec
from .codec import ATOMS, Json

if TYPE_CHECKING:
    from .typed_codec import TypeCodec

__all__ = [
    "CARRIERS",
    "TypedMembers",
    "Value",
    "ValueType",
    "either_type",
    "item_type_of",
    "json_of",
    "list_type",
    "members_type",
    "same_type",
    "value_type",
]


class _Carried:
    """The methods of a JSON value with a declared type; `type` and `data`, its JSON text, are set."""

    __slots__ = ()
    type: ValueType
    data: bytes

    def decoded(self) -> object:
        """Return a new value of the declared type."""
        return self.type.decode(self.data)


class _TypedDict(_Carried, dict[str, Json]):
    __slots__ = ("data", "type")


class _TypedList(_Carried, list[Json]):
    __slots__ = ("data", "type")


class _TypedText(_Carried, str):
    __slots__ = ("data", "type")


class _TypedFloat(_Carried, float):
    __slots__ = ("data", "type")


class _TypedInteger(_Carried, int):  # Python allows no slots here
    type: ValueType
    data: bytes


class TypedMembers(dict[str, Json]):
    """An object whose members carry their own types."""

    __slots__ = ()

    def decoded(self) -> object:
        """Return a new object with the decoded members."""
        return {
            name: item.decoded() if type(item) in CARRIERS else codec.copied(item)
            for name, item in self.items()
        }


_CARRIER_OF: dict[type, type] = {
    dict: _TypedDict,
    list: _TypedList,
    str: _TypedText,
    float: _TypedFloat,
    int: _TypedInteger,
}
CARRIERS = frozenset(
    {*_CARRIER_OF.values(), TypedMembers}
)  # types of values that carry a declared type


def json_of(value: Json) -> Json:
    """Return a recorded value without its declared type: a JSON copy if it has one, else the value."""
    kind = type(value)
    if kind not in CARRIERS:
        return value
    if kind is _TypedText:
        return str.__str__(value)
    if kind is _TypedFloat:
        return float.__float__(value)
    if kind is _TypedInteger:
        return int.__int__(value)
    if kind is _TypedList:
        return [codec.copied(item) for item in value]
    return {name: codec.copied(json_of(item)) for name, item in value.items()}


class ValueType:
    """A declared type, and the name of the step that declares it.

    Args:
        declared: the type.
        owner: the name of the step, for messages.

    Raises:
        ConfigurationError: for a type that has no JSON form.

    Example:
        >>> import datetime
        >>> day = ValueType(datetime.date, "plan")
        >>> recorded = day.write(datetime.date(2026, 11, 22))
        >>> recorded, recorded.decoded()
        ('2026-11-22', datetime.date(2026, 11, 22))
    """

    __slots__ = ("_codec", "bare", "declared", "flat", "is_json", "name", "owner")

    def __init__(self, declared: Any, owner: str = "") -> None:
        self.declared = declared
        self.owner = owner
        self.name = (
            str(declared).replace("typing.", "")
            if typing.get_args(declared)
            else getattr(declared, "__name__", "") or str(declared)
        )
        self.flat = _flat(declared)
        self.is_json = bool(self.flat) or _is_json(declared)
        self.bare: type | None = None
        # dict or list for a type that every object or list has, such as `dict[str, Any]`.
        if self.is_json and typing.get_args(declared)[-1:] in ((), (Any,), (object,)):
            self.bare = _JSON_CONTAINERS.get(typing.get_origin(declared) or declared)
        self._codec: TypeCodec | None = None
        # At the declaration: a type without a JSON form fails before anything runs.
        if not self.is_json:
            self._load()

    @property
    def is_text(self) -> bool:
        """Whether it is `str`."""
        return self.flat == (str,)

    def _load(self) -> TypeCodec:
        """Return the codec; it is loaded late, as pydantic takes 0.2 seconds to import."""
        if self._codec is None:
            from .typed_codec import codec_of

            self._codec = codec_of(self.declared)
        return self._codec

    def __repr__(self) -> str:
        return f"ValueType({self.name}, {self.owner!r})"

    @property
    def schema(self) -> dict[str, Json]:
        """The JSON Schema of the type."""
        return self._load().schema()

    def write(
        self,
        value: object,
        clean: Callable[[Json], Json] | None = None,
        *,
        what: str = "output",
    ) -> Json:
        """Return a value of the type as JSON that carries the type.

        Args:
            value: the value.
            clean: removes known secrets from JSON.
            what: its name in messages.

        Raises:
            StepError: of kind `bad_output`, for a value of another type, an instance of a subclass, or
                a value that does not survive the round trip; of kind `not_json`, for numbers that are
                not finite and for values that are nested too deeply.
        """
        if self.is_json:
            plain = codec.normalise(value, what=what)
            return plain if clean is None else clean(plain)
        type_codec = self._load()
        try:
            plain = type_codec.dump(value)
        except ValueError as error:
            raise self._bad_output(what, str(error)) from error
        plain, data = type_codec.checked_text(plain, what)
        if clean is not None and (cleaned := clean(plain)) != plain:
            plain, data = type_codec.checked_text(cleaned, what)
        try:
            decoded = type_codec.load(data)
        except ValueError as error:
            raise self._bad_output(what, f"its recorded form is not valid: {error}") from error
        # Equality finds every lost member; only then is the reason worth a search.
        if (
            not type_codec.equal(decoded, value)
            and (lost := type_codec.lost_subclass(value, decoded)) is not None
        ):
            place, actual, declared = lost
            raise self._bad_output(
                what,
                f"{place or 'it'} is a {actual.__name__}, a subclass of {declared.__name__}, and would "
                f"lose its other fields; declare {declared.__name__} | {actual.__name__}",
            )
        return self._carrying(plain, data)

    def write_input(self, value: object, *, what: str = "input") -> Json:
        """Return an input as JSON that carries the type: a value of the type, or its JSON form.

        The reader refuses JSON that does not fit the type.
        """
        if type(value) in CARRIERS:
            return value
        if not self.is_json:
            # A caller may pass the object, or the JSON that it read from a file.
            try:
                return self.write(value, what=what)
            except StepError:
                if type(value) not in ATOMS and not isinstance(value, dict | list | tuple):
                    raise
        return self.attach(codec.normalise(value, what=what))

    def attach(self, value: Json) -> Json:
        """Return a recorded JSON value with this type; it is not validated."""
        return json_of(value) if self.is_json else self._carrying(value, None)

    def _carrying(self, plain: Json, data: bytes | None) -> Json:
        kind = type(plain)
        # The same JSON has the same text in each type, so the text is reused.
        if kind in CARRIERS and kind is not TypedMembers:
            if plain.type is self:
                return plain
            carrier_type, data = kind, plain.data
        else:
            if kind is TypedMembers:
                plain = json_of(plain)
                kind = dict
            if kind not in _CARRIER_OF:  # None, True and False are the same in every type
                return plain
            carrier_type = _CARRIER_OF[kind]
        carrier = carrier_type(plain)
        carrier.type = self
        carrier.data = _text(plain) if data is None else data
        return carrier

    def decode(self, data: bytes) -> object:
        """Return a new value of the type from JSON text.

        Raises:
            StepError: of kind `bad_input`, if it does not fit.
        """
        try:
            return self._load().load(data)
        except ValueError as error:
            raise StepError(
                f"a recorded value is not a {self.name}: {error}",
                kind="bad_input",
                retryable=False,
            ) from error

    def check(self, value: Json) -> str:
        """Return why a recorded value does not fit the type, or ""."""
        if self.is_json or value is None:
            return ""
        try:
            self._load().load(_text(value))
        except ValueError as error:
            return str(error)
        return ""

    def read(self, value: Json, reader: str) -> object:
        """Return a recorded value as this type, for the step `reader`.

        Raises:
            StepError: of kind `bad_input`, if it does not fit; names both steps and the places.
        """
        kind = type(value)
        if kind in self.flat:
            return value
        if kind is self.bare:
            return codec.copied(value)
        source: ValueType | None = getattr(value, "type", None)
        data = _text(value) if source is None else value.data
        try:
            if not self.is_json:
                return self._load().load(data)
            # JSON stays as it is: converting 1 to 1.0 would change runs without classes.
            self._load().load(data, strict=True)
            return codec.copied(json_of(value))
        except ValueError as error:
            passed = "its input"
            if source is not None:
                passed = f"the {source.name} of {source.owner}" if source.owner else source.name
            raise StepError(
                f"{reader} takes {self.name}, which {passed} does not fit: {error}",
                kind="bad_input",
                retryable=False,
            ) from error

    def _bad_output(self, what: str, why: str) -> StepError:
        owner = f"{self.owner}: " if self.owner else ""
        return StepError(
            f"{owner}the {what} is not a {self.name}: {why}", kind="bad_output", retryable=False
        )


def _text(value: Json) -> bytes:
    """Return the JSON text of a recorded value."""
    return codec.encode(value).encode()


def _flat(declared: Any) -> tuple[type, ...]:
    """Return the classes whose values are of the type as they are."""
    try:
        return _FLAT.get(declared, ())
    except TypeError:  # not hashable
        return ()


def value_type(declared: Any, owner: str) -> ValueType | None:
    """Return a declared type, or None for one that says nothing: `Any`, `object`, a type variable.

    Raises:
        ConfigurationError: for a type that has no JSON form.
    """
    return ValueType(declared, owner) if says_something(declared) else None


def same_type(one: ValueType | None, other: ValueType | None) -> bool:
    """Return whether two steps declare the same type, or neither declares one."""
    if one is None or other is None:
        return one is other
    return bool(one.declared == other.declared)


def either_type(types: Sequence[ValueType | None], owner: str) -> ValueType | None:
    """Return the type of the output of one of several steps; None if one of them declares none."""
    # One alternative without a type can return anything.
    declared = [each.declared for each in types if each is not None]
    if len(declared) < len(types) or not declared:
        return None
    return ValueType(typing.Union[tuple(declared)], owner)  # noqa: UP007


def list_type(item: ValueType | None, owner: str, *, or_none: bool = False) -> ValueType | None:
    """Return the type of a list of items of a type, each perhaps None; None if the items have no type."""
    if item is None:
        return None
    declared = typing.Optional[item.declared] if or_none else item.declared  # noqa: UP045
    return ValueType(list[declared], owner)  # type: ignore[valid-type]


def item_type_of(declared: ValueType | None) -> ValueType | None:
    """Return the type of the items of a list type; None if they have none."""
    if declared is None or _JSON_CONTAINERS.get(typing.get_origin(declared.declared)) is not list:
        return None
    return value_type(typing.get_args(declared.declared)[0], declared.owner)


def members_type(types: Mapping[str, ValueType | None], owner: str) -> ValueType | None:
    """Return the type of an object with a member for each step; None if it is JSON only."""
    if all(each is None or each.is_json for each in types.values()):
        return None
    fields = {name: Any if each is None else each.declared for name, each in types.items()}
    return ValueType(typing_extensions.TypedDict(owner, fields), owner)  # type: ignore[operator]


# An int is accepted for float, as in Python's own typing rules, and a bool for int.
_FLAT: dict[object, tuple[type, ...]] = {
    str: (str,),
    int: (int, bool),
    float: (float, int, bool),
    bool: (bool,),
    None: (type(None),),
    type(None): (type(None),),
}


def says_something(declared: Any) -> bool:
    """Return whether an annotation declares a type of values; records of this package are none."""
    if declared in (Any, object, typing.NoReturn, typing.Never):
        return False
    if isinstance(declared, typing.TypeVar | typing_extensions.TypeVar | str):
        return False
    origin = typing.get_origin(declared)
    if origin in (typing.Union, types.UnionType):
        return all(says_something(part) for part in typing.get_args(declared))
    if origin is typing.Annotated:
        return says_something(typing.get_args(declared)[0])
    plain = origin or declared
    if plain in _OPAQUE:
        return False
    # Records of this package, such as Iteration, have readers of their own.
    module = str(getattr(plain, "__module__", ""))
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return True
    return not hasattr(plain, "view") and not hasattr(plain, "frozen_json")


_OPAQUE = {
    collections.abc.Callable,
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.Awaitable,
    collections.abc.Coroutine,
}
_JSON_CONTAINERS = {
    list: list,
    collections.abc.Sequence: list,
    dict: dict,
    collections.abc.Mapping: dict,
}


def _is_json(declared: Any) -> bool:
    """Return whether a type consists of JSON types only, so that JSON is its value."""
    if declared in (Any, object, None, type(None), str, int, float, bool):
        return True
    origin = typing.get_origin(declared)
    if origin in (typing.Union, types.UnionType):
        return all(_is_json(part) for part in typing.get_args(declared))
    kind = _JSON_CONTAINERS.get(origin or declared)
    arguments = typing.get_args(declared)
    if kind is list:
        return all(_is_json(part) for part in arguments)
    if kind is dict:
        return not arguments or (arguments[0] in (str, Any) and _is_json(arguments[1]))
    return False


_Kind = TypeVar("_Kind", bound="type[Record]")
_new = object.__new__  # past `__init__`: a new view has no values
_put = object.__setattr__  # past the refusal of a frozen record


class Value:
    """A frozen dataclass, declared with `eq=False, repr=False`, that has the equality, hash and text of its fields.

    `dataclass` compiles these methods for each class while it is imported, which takes a third of the time until a
    first iteration.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    @recursive_repr()
    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.compare)


class Record(Value):
    """A frozen record; `view` returns it with copies of its mutable values."""

    __slots__ = ()
    _view_class: ClassVar[type[_View]]  # the class of its views, which `viewed` sets

    def view(self, *, typed: bool = True) -> Self:
        """Return the record for one reader, whose changes have no effect on other readers.

        Args:
            typed: whether values are read in their declared types, or as JSON.
        """
        view = _new(self._view_class)
        _put(view, "_recorded", self)
        _put(view, "_own", own if typed else own_json)
        return view  # type: ignore[return-value]  # its class is a subclass


class _View:
    """The rules of a view; its fields are slots that stay empty until they are read."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, object]]
    _copied: ClassVar[frozenset[str]]
    _recorded: Record
    _own: Callable[[Json], Json]

    def __getattr__(self, name: str) -> Json:
        # An unknown name raises the error of the record.
        value = getattr(self._recorded, name)
        if name in self._copied:
            value = self._own(value)
        # Kept in the slot: a reader that changes a list must find its change there.
        if name in self.__dataclass_fields__:
            _put(self, name, value)
        return value

    def view(self, *, typed: bool = True) -> Record:
        return self._recorded.view(typed=typed)

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (self.__class__,), self.__getstate__()  # type: ignore[attr-defined]


def own_json(value: Json) -> Json:
    """Return an independent copy of a recorded value, without its declared type."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind in CARRIERS:
        return json_of(value)
    if isinstance(value, dict):
        return {key: own_json(item) for key, item in value.items()}
    if kind is list:
        return [own_json(item) for item in value]
    if kind is tuple:
        return tuple(own_json(item) for item in value)
    return value.view(typed=False) if isinstance(value, Record) else value


def own(value: Json) -> Json:
    """Return an independent copy of a recorded value, in its declared type.

    >>> own({"a": [1]})
    {'a': [1]}
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind in CARRIERS:
        return value.decoded()
    if isinstance(value, dict):
        return {key: own(item) for key, item in value.items()}
    if kind is list:
        return [own(item) for item in value]
    if kind is tuple:
        return tuple(own(item) for item in value)
    return value.view() if isinstance(value, Record) else value


def _not_set(record: object, name: str, _: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _not_deleted(record: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _written(name: str) -> Callable[[_View], Json]:
    """Return a method that writes the record of a view, without the changes of its reader."""
    return lambda view: own_json(getattr(view._recorded, name)())


def viewed(*copied: str, written: tuple[str, ...] = ("to_json",)) -> Callable[[_Kind], _Kind]:
    """Return a decorator for a frozen dataclass with slots: its views have copies of the fields `copied`.

    `written` are its methods that return JSON.
    """

    def decorate(kind: _Kind) -> _Kind:
        # A frozen dataclass with slots raises TypeError, not this error, for a name that is not a field.
        kind.__setattr__, kind.__delattr__ = _not_set, _not_deleted  # type: ignore[method-assign]
        members: dict[str, object] = {name: _written(name) for name in written}
        members |= {
            "__slots__": ("_own", "_recorded"),
            "__module__": kind.__module__,
            # A view compares, copies and prints itself as the record: a dataclass asks for this class.
            "__class__": property(lambda _: kind),
            "_copied": frozenset(copied),
        }
        kind._view_class = type(kind.__name__, (_View, kind), members)
        return kind

    return decorate
