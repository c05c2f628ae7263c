"""The options of a sealed check, and what is recorded of the base before the first iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...records import Evaluation, as_evaluation
from ...records.codec import Json
from .baseline import Baseline

__all__ = ["ON_TAMPER", "SealOptions", "Sealed"]

ON_TAMPER = ("put_back", "reject", "stop")


@dataclass(frozen=True)
class SealOptions:
    """The options of a sealed check, as `tests` explains them."""

    protect: tuple[str, ...] = ("auto",)
    allow: tuple[str, ...] = ()
    allow_new: bool = True
    on_tamper: str = "put_back"
    setup: Sequence[str] | str = ""
    link: tuple[str, ...] = ()
    held_out: str = ""
    held_out_every: bool = False
    held_out_required: bool = False


@dataclass(frozen=True)
class Sealed:
    """What is recorded of the base before the first iteration.

    Args:
        protected: the digests of the protected files by path.
        baseline: the tests and their states; None for a command without a report.
        canaries: whether the test program runs tests that are added beside the others (`beside`), only if
            they are named (`named`), or not at all (`none`).
        paths: the folders of the copy that come first on the import path.
        evaluation: the evaluation of the base.
    """

    protected: Mapping[str, str]
    baseline: Baseline | None
    canaries: str
    paths: tuple[str, ...]
    evaluation: Evaluation

    def to_json(self) -> Json:
        """Return it as the journal has it."""
        baseline = self.baseline
        return {
            "protected": dict(self.protected),
            "states": None if baseline is None else dict(baseline.states),
            "flaky": [] if baseline is None else list(baseline.flaky),
            "canaries": self.canaries,
            "paths": list(self.paths),
            "evaluation": self.evaluation.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Sealed:
        """Return what `to_json` wrote."""
        states = data["states"]
        return cls(
            data["protected"],
            None if states is None else Baseline(states, tuple(data["flaky"])),
            data["canaries"],
            tuple(data["paths"]),
            as_evaluation(data["evaluation"]),
        )
