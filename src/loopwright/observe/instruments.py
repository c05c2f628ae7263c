"""The metrics of runs: what each is called, counted in and sorted into."""

from __future__ import annotations

from dataclasses import dataclass

from . import names

__all__ = ["INSTRUMENTS", "Instrument"]

# The boundaries of the conventions: tokens in powers of 4, seconds in powers of 2.
_TOKENS = tuple(float(4**power) for power in range(14))
_SECONDS = tuple(0.01 * 2**power for power in range(14))
_LONG = tuple(0.1 * 4**power for power in range(10))
_TENTHS = tuple(tenth / 10 for tenth in range(11))


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric: a histogram with `boundaries`, a sum that only grows without them."""

    name: str
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()


INSTRUMENTS = (
    Instrument(names.TOKEN_USAGE, "{token}", "Tokens of one model call.", _TOKENS),
    Instrument(names.OPERATION_DURATION, "s", "How long a model call took.", _SECONDS),
    Instrument(names.RUNS, "{run}", "Runs that ended or left off here, by status and reason."),
    Instrument(names.RUN_DURATION, "s", "How long this process drove a run.", _LONG),
    Instrument(names.ROUNDS, "{iteration}", "Iterations, by loop and outcome."),
    Instrument(names.ROUND_DURATION, "s", "How long an iteration took.", _LONG),
    Instrument(names.SCORES, "1", "Scores of iterations, from 0 to 1.", _TENTHS),
    Instrument(names.COST, "{USD}", "What calls cost, where the price is known."),
)
