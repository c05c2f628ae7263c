"""Models: requests, replies, prices and errors of model calls.

Importing this package loads no client library; the first real request does.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
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

# Loaded at first use: a tool or a check needs few of them.
_MODULES = {
    "..errors": ("ModelError",),
    "..records.redaction": (
        "Redactor",
        "secrets_in",
    ),
    ".call": (
        "Target",
        "call_model",
    ),
    ".errors": (
        "KINDS",
        "Policy",
    ),
    ".protocol": (
        "File",
        "FileReference",
        "Finish",
        "Message",
        "Model",
        "ModelSettings",
        "Reply",
        "Request",
        "Role",
        "Timers",
        "ToolCall",
        "ToolDefinition",
    ),
    ".providers.endpoints": (
        "PROVIDERS",
        "Api",
        "Endpoint",
        "Provider",
        "ProviderModel",
        "endpoint_of",
    ),
    ".registry": (
        "FREE",
        "Models",
        "Price",
        "Tier",
        "cost",
        "price_of",
        "read_prices",
        "worst_case",
    ),
    ".reply_text": ("own_words",),
    ".reply_values": (
        "Problem",
        "Reading",
        "read_value",
    ),
    ".scripted": ("ScriptedModel",),
}

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other
    __getattr__ = names_of(__name__, _MODULES)
