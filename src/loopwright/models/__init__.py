"""Models: what is asked, what is answered, and everything that can go wrong in between.

Importing this package loads no client library; the first real request does.
"""

from .calls import Target, call_model
from .endpoints import PROVIDERS, Endpoint, Provider, endpoint_of
from .faults import KINDS, ModelFault
from .policy import Policy
from .pool import Models
from .prices import FREE, Price, cost, price_of, read_prices, worst_case
from .protocol import Finish, Message, Model, Reply, Request, Timers, Tool, ToolCall
from .providers import ProviderModel
from .redaction import Redactor
from .scripted import ScriptedModel

__all__ = [
    "FREE",
    "KINDS",
    "PROVIDERS",
    "Endpoint",
    "Finish",
    "Message",
    "Model",
    "ModelFault",
    "Models",
    "Policy",
    "Price",
    "Provider",
    "ProviderModel",
    "Redactor",
    "Reply",
    "Request",
    "ScriptedModel",
    "Target",
    "Timers",
    "Tool",
    "ToolCall",
    "call_model",
    "cost",
    "endpoint_of",
    "price_of",
    "read_prices",
    "worst_case",
]
