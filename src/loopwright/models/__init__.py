"""Models: requests, replies, prices and errors of model calls.

Importing this package loads no client library; the first real request does.
"""

from ..errors import ModelError
from ..records.redaction import Redactor as Redactor
from ..records.redaction import secrets_in as secrets_in
from .call import Target, call_model
from .errors import KINDS as KINDS
from .errors import Policy
from .protocol import (
    File,
    FileReference,
    Finish,
    Message,
    Model,
    ModelSettings,
    Reply,
    Request,
    Role,
    Timers,
    ToolCall,
    ToolDefinition,
)
from .providers.endpoints import PROVIDERS, Api, Endpoint, Provider, ProviderModel, endpoint_of
from .registry import FREE, Models, Price, Tier, cost, price_of, read_prices, worst_case
from .reply_text import own_words
from .reply_values import Problem, Reading, read_value
from .scripted import ScriptedModel

__all__ = [
    "FREE",
    "PROVIDERS",
    "Api",
    "Endpoint",
    "File",
    "FileReference",
    "Finish",
    "Message",
    "Model",
    "ModelError",
    "ModelSettings",
    "Models",
    "Policy",
    "Price",
    "Problem",
    "Provider",
    "ProviderModel",
    "Reading",
    "Reply",
    "Request",
    "Role",
    "ScriptedModel",
    "Target",
    "Tier",
    "Timers",
    "ToolCall",
    "ToolDefinition",
    "call_model",
    "cost",
    "endpoint_of",
    "own_words",
    "price_of",
    "read_prices",
    "read_value",
    "worst_case",
]
