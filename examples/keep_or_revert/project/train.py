"""Fit a polynomial by gradient descent with the settings of settings.json, and print its validation loss."""

from __future__ import annotations

import json
import math
from pathlib import Path

settings = json.loads(Path("settings.json").read_text(encoding="utf-8"))


def target(x: float) -> float:
    """The curve to learn."""
    return math.sin(2.5 * x) + 0.3 * x


def prediction(weights: list[float], x: float) -> float:
    """The value of the polynomial."""
    return sum(weight * x**power for power, weight in enumerate(weights))


train = [-1 + 2 * i / 39 for i in range(40)]
validation = [-0.975 + 2 * i / 40 for i in range(39)]
weights = [0.0] * (settings["degree"] + 1)
velocity = list(weights)
for _ in range(settings["steps"]):
    errors = [prediction(weights, x) - target(x) for x in train]
    for power in range(len(weights)):
        pairs = zip(errors, train, strict=True)
        gradient = 2 * sum(error * x**power for error, x in pairs) / len(train)
        velocity[power] = settings["momentum"] * velocity[power] - settings["rate"] * gradient
        weights[power] += velocity[power]

loss = sum((prediction(weights, x) - target(x)) ** 2 for x in validation) / len(validation)
print(f"val_loss: {loss:.5f}")
