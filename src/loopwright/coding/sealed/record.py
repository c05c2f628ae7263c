"""The options of a sealed check, and what is recorded of the base before the first iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ...errors import ConfigurationError, nearest
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

    @classmethod
    def of(
        cls,
        name: str,
        *,
        protect: Sequence[str],
        allow: Sequence[str],
        on_tamper: str,
        setup: Sequence[str] | str,
        link: Sequence[str],
        **more: Any,
    ) -> Self:
        """Return the checked options of `tests` or of a sealed metric.

        Args:
            name: the evaluator, for messages.
            protect, allow, on_tamper, setup, link: as `tests` explains them.
            **more: the options that only `tests` has.

        Raises:
            ConfigurationError: for a pattern that leads out of the workspace, or an unknown `on_tamper`.
        """
        return cls(
            protect=_patterns(f"{name}: protect", protect),
            allow=_patterns(f"{name}: allow", allow),
            on_tamper=_one_of(name, on_tamper),
            setup=setup if isinstance(setup, str) else tuple(setup),
            link=_patterns(f"{name}: link", link),
            **more,
        )


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
        written: the protected files, and folders of them, that the check itself writes; None in earlier records.
    """

    protected: Mapping[str, str]
    baseline: Baseline | None
    canaries: str
    paths: tuple[str, ...]
    evaluation: Evaluation
    written: frozenset[str] | None = frozenset()

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
            "written": None if self.written is None else sorted(self.written),
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
            None if data.get("written") is None else frozenset(data["written"]),
        )


def _patterns(owner: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of paths inside the workspace.

    Raises:
        ConfigurationError: for one that leads out of it.
    """
    if isinstance(values, str):
        raise ConfigurationError(f"{owner}: use a list, such as [{values!r}]")
    for value in values:
        if not isinstance(value, str) or not value or value.startswith(("/", "../")):
            raise ConfigurationError(
                f"{owner}: {value!r} is not a path inside the workspace, or a pattern of one"
            )
    return tuple(values)


def _one_of(name: str, word: str) -> str:
    """Return a valid value of `on_tamper`.

    Raises:
        ConfigurationError: for another word.
    """
    if word not in ON_TAMPER:
        raise ConfigurationError(
            f"{name}: on_tamper: {word!r} is none of {', '.join(ON_TAMPER)}{nearest(str(word), ON_TAMPER)}"
        )
    return word
