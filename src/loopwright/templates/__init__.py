"""Templates in prompts and conditions: Jinja's syntax in a sandbox that only holds plain data."""

from typing import TYPE_CHECKING

from .._lazy import names_of
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
    # A document without a template needs no Jinja.
    __getattr__ = names_of(__name__, {".variables": ("TemplateValue",), ".template": __all__})
