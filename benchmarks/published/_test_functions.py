"""Test functions of optimisers, written anew from their published formulae; nothing of this is a copy of a library.

Formulae, ranges and minima: M. Jamil and X.-S. Yang, A literature survey of benchmark functions for global optimisation
problems (2013), arXiv 1308.4008; S. Surjanovic and D. Bingham, Virtual Library of Simulation Experiments (2013). All are
part of the set of test functions of `sigopt/evalset` too, some with other ranges.

Only the standard library is imported, so that the peers can use this module in their environment.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

Point = Sequence[float]


class Function(NamedTuple):
    """A function to minimise, its range in each dimension, and its lowest value."""

    of: Callable[[Point], float]
    ranges: tuple[tuple[float, float], ...]
    lowest: float


def tripod(x: Point) -> float:
    p, q = float(x[0] >= 0), float(x[1] >= 0)
    return q * (1 + p) + abs(x[0] + 50 * q * (1 - 2 * p)) + abs(x[1] + 50 * (1 - 2 * q))


def ackley(x: Point) -> float:
    n = len(x)
    a = math.sqrt(sum(v * v for v in x) / n)
    b = sum(math.cos(2 * math.pi * v) for v in x) / n
    return -20 * math.exp(-0.2 * a) - math.exp(b) + 20 + math.e


def egg_holder(x: Point) -> float:
    a, b = x[0], x[1] + 47
    return -b * math.sin(math.sqrt(abs(b + a / 2))) - a * math.sin(math.sqrt(abs(a - b)))


def rastrigin(x: Point) -> float:
    return 10 * len(x) + sum(v * v - 10 * math.cos(2 * math.pi * v) for v in x)


def schwefel(x: Point) -> float:
    return 418.98288727243 * len(x) - sum(v * math.sin(math.sqrt(abs(v))) for v in x)


def griewank(x: Point) -> float:
    waves = math.prod(math.cos(v / math.sqrt(nth)) for nth, v in enumerate(x, start=1))
    return 1 + sum(v * v for v in x) / 4000 - waves


def easom(x: Point) -> float:
    near = math.exp(-((x[0] - math.pi) ** 2) - (x[1] - math.pi) ** 2)
    return -math.cos(x[0]) * math.cos(x[1]) * near


def holder_table(x: Point) -> float:
    far = math.exp(abs(1 - math.hypot(x[0], x[1]) / math.pi))
    return -abs(math.sin(x[0]) * math.cos(x[1]) * far)


_SHEKEL = (
    ((4, 4, 4, 4), 0.1), ((1, 1, 1, 1), 0.2), ((8, 8, 8, 8), 0.2), ((6, 6, 6, 6), 0.4), ((3, 7, 3, 7), 0.4),
    ((2, 9, 2, 9), 0.6), ((5, 5, 3, 3), 0.3), ((8, 1, 8, 1), 0.7), ((6, 2, 6, 2), 0.5), ((7, 3.6, 7, 3.6), 0.5),
)  # fmt: skip


def shekel(x: Point) -> float:
    return -sum(
        1 / (c + sum((v - a) ** 2 for v, a in zip(x, at, strict=True))) for at, c in _SHEKEL
    )


def michalewicz(x: Point) -> float:
    return -sum(
        math.sin(v) * math.sin(nth * v * v / math.pi) ** 20 for nth, v in enumerate(x, start=1)
    )


def trefethen(x: Point) -> float:
    a, b = x
    return (
        math.exp(math.sin(50 * a)) + math.sin(60 * math.exp(b)) + math.sin(70 * math.sin(a))
        + math.sin(math.sin(80 * b)) - math.sin(10 * (a + b)) + (a * a + b * b) / 4
    )  # fmt: skip


def bukin_6(x: Point) -> float:
    return 100 * math.sqrt(abs(x[1] - 0.01 * x[0] ** 2)) + 0.01 * abs(x[0] + 10)


def drop_wave(x: Point) -> float:
    r2 = sum(v * v for v in x)
    return -(1 + math.cos(12 * math.sqrt(r2))) / (2 + 0.5 * r2)


def rosenbrock(x: Point) -> float:
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x))


def levy(x: Point) -> float:
    w = [1 + (v - 1) / 4 for v in x]
    middle = sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
    last = (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    return math.sin(math.pi * w[0]) ** 2 + middle + last


def styblinski_tang(x: Point) -> float:
    return sum(v**4 - 16 * v * v + 5 * v for v in x) / 2


def damavandi(x: Point) -> float:
    a, b = math.pi * (x[0] - 2), math.pi * (x[1] - 2)
    wave = (math.sin(a) / a if a else 1.0) * (math.sin(b) / b if b else 1.0)
    return (1 - abs(wave) ** 5) * (2 + (x[0] - 7) ** 2 + 2 * (x[1] - 7) ** 2)


def salomon(x: Point) -> float:
    r = math.sqrt(sum(v * v for v in x))
    return 1 - math.cos(2 * math.pi * r) + 0.1 * r


def xin_she_yang_2(x: Point) -> float:
    return sum(map(abs, x)) * math.exp(-sum(math.sin(v * v) for v in x))


def powell(x: Point) -> float:
    return sum(
        (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4
        for a, b, c, d in zip(x[::4], x[1::4], x[2::4], x[3::4], strict=True)
    )


def schaffer_2(x: Point) -> float:
    a, b = x[0] ** 2, x[1] ** 2
    return 0.5 + (math.sin(a - b) ** 2 - 0.5) / (1 + 0.001 * (a + b)) ** 2


# Ranges that are not centred at the minimum: a search that begins in the middle would find it without searching.
FUNCTIONS = {
    "tripod": Function(tripod, ((-100, 100),) * 2, 0.0),
    "ackley": Function(ackley, ((-10, 30),) * 11, 0.0),
    "egg_holder": Function(egg_holder, ((-512, 512),) * 2, -959.640662711),
    "rastrigin": Function(rastrigin, ((-5, 2),) * 8, 0.0),
    "schwefel": Function(schwefel, ((-500, 500),) * 7, 0.0),
    "griewank": Function(griewank, ((-50, 20),) * 6, 0.0),
    "easom": Function(easom, ((-100, 20),) * 2, -1.0),
    "holder_table": Function(holder_table, ((-10, 10),) * 2, -19.20850256788675),
    "shekel": Function(shekel, ((0, 10),) * 4, -10.536409816692045),
    "michalewicz": Function(michalewicz, ((0, math.pi),) * 10, -9.66015171564135),
    "trefethen": Function(trefethen, ((-1, 1),) * 2, -3.306868647475237),
    "bukin_6": Function(bukin_6, ((-15, -5), (-3, 3)), 0.0),
    "drop_wave": Function(drop_wave, ((-2, 5.12),) * 10, -1.0),
    "rosenbrock": Function(rosenbrock, ((-2, 8),) * 8, 0.0),
    "levy": Function(levy, ((-10, 10),) * 8, 0.0),
    "styblinski_tang": Function(styblinski_tang, ((-5, 5),) * 5, 5 * -39.16616570377142),
    "damavandi": Function(damavandi, ((0, 14),) * 2, 0.0),
    "salomon": Function(salomon, ((-100, 50),) * 5, 0.0),
    "xin_she_yang_2": Function(xin_she_yang_2, ((-math.pi, 2 * math.pi),) * 2, 0.0),
    "powell": Function(powell, ((-4, 5),) * 8, 0.0),
    "schaffer_2": Function(schaffer_2, ((-100, 30),) * 2, 0.0),
}


def scale(name: str) -> float:
    """Return the median of 1,000 random points above the lowest value: the unit of a regret."""
    function, chance = FUNCTIONS[name], random.Random(name)
    points = [[chance.uniform(*ends) for ends in function.ranges] for _ in range(1000)]
    return statistics.median(map(function.of, points)) - function.lowest
