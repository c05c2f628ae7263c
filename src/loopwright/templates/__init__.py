"""Templates in prompts and conditions: Jinja's syntax in a sandbox that only holds plain data."""

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import TemplateError

if TYPE_CHECKING:
    from .template import Expression, Rendered, Template, compile_expression, compile_template
    from .variables import TemplateValue

__all__ = [
    "Expression",
    "Rendered",
    "Template",
    "TemplateError",
    "TemplateValue",
    "compile_expression",
    "compile_template",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other

    def __getattr__(name):
        # At first use: a document without a template needs no Jinja.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "variables" if name == "TemplateValue" else "template"
        value = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value
