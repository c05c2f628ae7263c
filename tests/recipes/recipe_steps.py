"""What the tests of recipes share: a step that adds, a score, and a kitchen that can die."""

from __future__ import annotations

from typing import Any

from loopwright import Evaluation, Loop, step
from loopwright.recipes import checklist_loop


class Crash(BaseException):
    """Stands for the death of the process."""


def plus(amount: float) -> Any:
    """Return a step that adds."""
    return step(lambda number: number + amount, inline=True, name="plus")


share = step(lambda number: number / 10, inline=True, name="share")


class Kitchen:
    """Makes and checks dishes, counts who was asked, and can die before any of it."""

    def __init__(self, needs: dict[str, int], dies: int = 0) -> None:
        self.needs = needs
        self.asked: list[str] = []
        self.tasks: dict[str, list[Any]] = {name: [] for name in needs}
        self.left = dies

    def _work(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash
        self.asked.append(what)

    def maker(self, name: str) -> Any:
        """Return the step that makes a dish: a little better each time."""

        async def make(task: Any) -> int:
            self._work(f"make {name}")
            self.tasks[name].append(task)
            return int(task["previous"]) + 1 if isinstance(task, dict) else 1

        return step(make, name=name)

    def look(self, name: str) -> Any:
        """Return the check of a dish: good from so many tries on."""

        async def taste(dish: int) -> Evaluation:
            self._work(f"look {name}")
            good = dish >= self.needs[name]
            return Evaluation(float(good), good, "" if good else f"{name} is at {dish}")

        return step(taste, name=name)

    def loop(self, **options: Any) -> Loop:
        """Return the loop over all dishes."""
        makers = {name: self.maker(name) for name in self.needs}
        looks = {name: self.look(name) for name in self.needs}
        return checklist_loop(makers, looks, **options)


NEEDS = {"soup": 1, "roast": 3, "cake": 2}
UNDISTURBED = [
    "make soup", "make roast", "make cake", "look soup", "look roast", "look cake",
    "make roast", "make cake", "look roast", "look cake",
    "make roast", "look roast",
]  # fmt: skip
