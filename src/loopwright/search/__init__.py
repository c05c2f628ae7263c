"""Search by optimisers of others: numbers by Optuna and cma, prompts by GEPA; each is imported on use."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from .optimise import Optimise
    from .texts import gepa

__all__ = ["Optimise", "gepa"]

__getattr__ = names_of(__name__, {".optimise": ("Optimise",), ".texts": ("gepa",)})
