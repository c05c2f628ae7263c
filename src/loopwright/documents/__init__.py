"""Documents: YAML of any dialect, compiled to the workflows and loops that Python users write."""

from .loading import Loaded, Settings, load
from .schema import export_schema

__all__ = ["Loaded", "Settings", "export_schema", "load"]
