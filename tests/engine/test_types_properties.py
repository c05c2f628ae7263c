"""Property: a typed value is the same live, replayed and read from a file."""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Any

import pydantic
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Loop, MaxIterations, MemoryJournal, run_sync, step
from loopwright.records.codec import decode, encode
from loopwright.records.typed import ValueType

from .support import examples


class Kind(enum.Enum):
    A = "a"
    B = 2


@dataclasses.dataclass
class Part:
    name: str
    at: dt.datetime | None
    sizes: set[int]
    kind: Kind


class Model(pydantic.BaseModel):
    parts: list[Part]
    amount: decimal.Decimal
    ids: dict[int, uuid.UUID]
    raw: str


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
PARTS = st.builds(
    Part,
    name=TEXT,
    at=st.none() | st.datetimes(timezones=st.just(dt.UTC)),
    sizes=st.sets(st.integers(-(2**53), 2**53), max_size=3),
    kind=st.sampled_from(Kind),
)
MODELS = st.builds(
    Model,
    parts=st.lists(PARTS, max_size=3),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    ids=st.dictionaries(st.integers(0, 9), st.uuids(), max_size=2),
    raw=TEXT,
)
VALUES = st.one_of(
    st.tuples(st.just(Model), MODELS),
    st.tuples(st.just(Part), PARTS),
    st.tuples(st.just(list[Part]), st.lists(PARTS, max_size=3)),
    st.tuples(st.just(tuple[Part, bytes]), st.tuples(PARTS, st.binary(max_size=20))),
    st.tuples(st.just(Part | Model), st.one_of(PARTS, MODELS)),
)


@given(VALUES)
def test_a_written_value_is_read_back_equal(pair: tuple[Any, Any]) -> None:
    """From the value itself, and from the JSON text of a journal."""
    declared, value = pair
    kind = ValueType(declared, "write")
    recorded = kind.write(value)
    again = kind.attach(decode(encode(recorded)))
    for item in (recorded.decoded(), again.decoded(), kind.read(again, "read")):
        assert item == value
        assert type(item) is type(value)


@examples(0.3)
@given(VALUES)
def test_a_live_run_and_its_replay_return_equal_values(pair: tuple[Any, Any]) -> None:
    """The output and each iteration of the history."""
    declared, value = pair

    def write(number: int) -> Any:
        return value

    write.__annotations__["return"] = declared
    loop = Loop(step(write, inline=True), until=MaxIterations(2), name="l")
    journal = MemoryJournal()
    live = run_sync(loop, 1, journal=journal, run_id="r")
    replayed = run_sync(loop, 1, journal=journal, run_id="r")
    assert live.output == replayed.output == value
    assert [item.output for item in replayed.history] == [value, value]
