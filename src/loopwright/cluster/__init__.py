"""Runs over several machines: an engine delivers run IDs, and the journal is the truth.

`submit` queues a run, a `Worker` runs what is delivered. See docs/guide/two_machines.md.
"""

from ..engine.budgets import Cap, Limit, Limits, Rate
from .delivery import Deliverer, Delivery, Handle, InMemoryDeliverer, open_deliverer
from .shared_runs import QueueInfo, WorkerInfo
from .submit import Submission, requeue, submit, submit_all
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
