"""Runs over several machines: an engine delivers run IDs, and the journal is the truth.

`submit` queues a run, a `Worker` runs what is delivered. See docs/guide/two_machines.md.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of
from ..engine.budgets import Cap, Limit, Limits, Rate
from .delivery import Deliverer, Delivery, Handle, InMemoryDeliverer, open_deliverer
from .shared_runs import QueueInfo, WorkerInfo
from .submit import Submission, requeue, submit, submit_all

if TYPE_CHECKING:
    from .worker import Worker

__all__ = [
    "Cap",
    "Deliverer",
    "Delivery",
    "Handle",
    "InMemoryDeliverer",
    "Limit",
    "Limits",
    "QueueInfo",
    "Rate",
    "Submission",
    "Worker",
    "WorkerInfo",
    "open_deliverer",
    "requeue",
    "submit",
    "submit_all",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other
    # What lists workers and queues, or submits runs, needs no worker.
    __getattr__ = names_of(__name__, {".worker": ("Worker",)})
