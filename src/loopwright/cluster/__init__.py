"""Runs over several machines: an engine delivers run IDs, and the journal is the truth.

`submit` queues a run, a `Worker` runs what is delivered. See docs/guide/two_machines.md.
"""

from .deliverers.in_memory import InMemoryDeliverer
from .delivery import Deliverer, Delivery, open_deliverer
from .permits import Cap, Limits, Rate
from .shared_runs import QueueInfo, WorkerInfo
from .submit import Submission, requeue, submit, submit_all
from .worker import Worker

__all__ = [
    "Cap",
    "Deliverer",
    "Delivery",
    "InMemoryDeliverer",
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
