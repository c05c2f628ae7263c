"""What tests of prompts and judges need: a model that answers from a script.

>>> from loopwright.testing.models import Models, ScriptedModel
>>> resources = {"models": Models(ScriptedModel([{"replies": ["a draft", "a better one"]}]))}
"""

from ..models import KINDS, Message, ModelFault, Models, Policy, Reply, Request, ScriptedModel

__all__ = [
    "KINDS",
    "Message",
    "ModelFault",
    "Models",
    "Policy",
    "Reply",
    "Request",
    "ScriptedModel",
]
