"""The items of a list: the leaf steps that return them, with their limit."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ConfigurationError, StepError
from ..records.codec import Json
from ..records.typed import ValueType
from .context import Context
from .signatures import FunctionTypes
from .step import FunctionStep, Leaf, StepLike, as_step, digest_of, fingerprinted

__all__ = ["MOST_ITEMS", "ItemsStep", "items_step"]

MOST_ITEMS = 1000  # items of a list without `max_items`; each may cost model calls


class ItemsStep(Leaf):
    """A leaf step whose output is the list of items, so that a resumed run has the same ones.

    Items beyond `most` are left out with a warning. Without `most`, more than MOST_ITEMS are an error.
    `of_input` is whether the items are the input of the list.
    """

    name = "items"
    of_input: ClassVar[bool] = False
    most: int | None

    def bounded(self, items: list[Json], ctx: Context) -> list[Json]:
        """Return the items up to the limit.

        Raises:
            StepError: of kind `items`, for more than MOST_ITEMS without a limit.
        """
        if self.most is None and len(items) > MOST_ITEMS:
            raise StepError(
                f"{len(items)} items are more than {MOST_ITEMS}; set max_items to allow them",
                path=ctx.path,
                kind="items",
                retryable=False,
            )
        if self.most is None or len(items) <= self.most:
            return items
        owner = ctx.path.rpartition("/")[0]
        ctx.run.warn(
            f"only the first {self.most} of {len(items)} items are done, because the limit is {self.most}",
            owner,
            code="items_left_out",
        )
        return items[: self.most]


class _InputItems(ItemsStep):
    """The input of the list as its items."""

    of_input = True

    def __init__(self, most: int | None) -> None:
        self.most = most

    fingerprint = digest_of("items", "input")

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        return self.bounded(_checked(value, ctx), ctx)


class _MadeItems(ItemsStep):
    """The items that a function makes of the input of the list."""

    def __init__(self, function: FunctionStep, most: int | None) -> None:
        self.function = function
        self.most = most
        self.reserve = function.reserve
        self.stub = function.stub

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("items", self.function.fingerprint)

    reserve: Any
    stub: str

    @property
    def types(self) -> FunctionTypes | None:
        """The declared types of the function."""
        return self.function.declared()

    def declared(self) -> FunctionTypes | None:
        """Return the declared types of the function."""
        return self.types

    @property
    def input_type(self) -> ValueType | None:
        return self.function.input_type

    @property
    def output_type(self) -> ValueType | None:
        return self.function.output_type

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        made = await self.function.act(value, ctx if self.function.wants_context else None)
        return self.bounded(_checked(made, ctx), ctx)


def _checked(items: object, ctx: Context) -> list[Json]:
    if isinstance(items, list | tuple):
        return list(items)
    raise StepError(
        f"items: expected a list, not {type(items).__name__}; give for_each(items=...) a function that "
        "returns one",
        path=ctx.path,
        kind="items",
        retryable=False,
    )


def items_step(items: StepLike | None, most: int | None) -> ItemsStep:
    """Return the step that makes the list from the input, by a function; without one the input is the list."""
    if items is None:
        return _InputItems(most)
    made = as_step(items)
    if not isinstance(made, FunctionStep):
        raise ConfigurationError(
            f"for_each: items: {made.name} is not a function; put it before the list in a sequence"
        )
    return _MadeItems(made, most)
