"""Documents: YAML of any dialect, compiled to the workflows and loops that Python users write."""

from .load import Loaded, Settings, check, convert, load
from .schema.document import export_schema

__all__ = ["Loaded", "Settings", "check", "convert", "export_schema", "load"]
