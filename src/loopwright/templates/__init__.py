"""Templates in prompts and conditions: Jinja's syntax in a sandbox that only holds plain data."""

from .template import Expression, Rendered, Template, compile_expression, compile_template
from .values import TemplateError, TemplateValue

__all__ = [
    "Expression",
    "Rendered",
    "Template",
    "TemplateError",
    "TemplateValue",
    "compile_expression",
    "compile_template",
]
