"""The types that public signatures name, for annotations of your own.

`StepLike[In, Out]` is everything that `Loop` and `run` accept as a step, `EvaluatorLike[Out]` everything that
they accept as an evaluator. `Step` and its subclasses are the results of `step`, `sequence` and the like.
"""

from .datasets.results import CaseOptions, EvaluateOptions
from .engine.change_limits import Clear, LimitChange, LimitInForce, LimitOptions, Tuned
from .engine.files import Edits, LoopState, StateRun, StateSource
from .engine.fork import Forked
from .engine.run_record import (
    ModelCall,
    OnText,
    ResumeLimits,
    ResumeOptions,
    RunOptions,
    StepWithResources,
)
from .engine.run_state import Clock, Listener, RunObserver
from .engine.steering import Hint
from .engine.step import (
    CompositeStep,
    EvaluationLike,
    EvaluatorLike,
    Function,
    FunctionStep,
    Leaf,
    MetricLike,
    Reserve,
    Step,
    StepDecorator,
    StepLike,
)
from .engine.streaming import StreamEvent
from .engine.waiting import Probe, Probed
from .journal.events import Event, OpenWait, Signalled
from .journal.views import RunPage, RunView, Wanted, Watch
from .records.codec import Json
from .records.evaluation import Tampering
from .records.json_schema import Schema
from .records.redaction import Redactor
from .records.result import ItemOutcome, StepOutcome
from .records.typed import ValueType
from .tools.process import OnOutput

__all__ = [
    "CaseOptions",
    "Clear",
    "Clock",
    "CompositeStep",
    "Edits",
    "EvaluateOptions",
    "EvaluationLike",
    "EvaluatorLike",
    "Event",
    "Forked",
    "Function",
    "FunctionStep",
    "Hint",
    "ItemOutcome",
    "Json",
    "Leaf",
    "LimitChange",
    "LimitInForce",
    "LimitOptions",
    "Listener",
    "LoopState",
    "MetricLike",
    "ModelCall",
    "OnOutput",
    "OnText",
    "OpenWait",
    "Probe",
    "Probed",
    "Redactor",
    "Reserve",
    "ResumeLimits",
    "ResumeOptions",
    "RunObserver",
    "RunOptions",
    "RunPage",
    "RunView",
    "Schema",
    "Signalled",
    "StateRun",
    "StateSource",
    "Step",
    "StepDecorator",
    "StepLike",
    "StepOutcome",
    "StepWithResources",
    "StreamEvent",
    "Tampering",
    "Tuned",
    "ValueType",
    "Wanted",
    "Watch",
]
