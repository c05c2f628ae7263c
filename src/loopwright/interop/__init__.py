"""Objects of other libraries as steps and evaluators.

`Loop(execute=…, evaluate=…)`, workflows and `run` accept these objects directly: agents of pydantic-ai,
runnables of LangChain, graphs of LangGraph, and evaluators of pydantic-evals, autoevals, DeepEval and Inspect.
`as_step` and `as_evaluator` add options. An `Adapter` adds another library. A library is imported by its own
objects only, never by this package.
"""

from ..engine.functions import Factory, Purpose, register
from .objects import Adapter, EvaluatorStep, ObjectStep, as_evaluator, as_step

__all__ = [
    "Adapter",
    "EvaluatorStep",
    "Factory",
    "ObjectStep",
    "Purpose",
    "as_evaluator",
    "as_step",
    "register",
]
