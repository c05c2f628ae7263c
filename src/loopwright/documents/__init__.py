"""Documents: YAML of any dialect, compiled to the workflows and loops that Python users write."""

from .load import Loaded, Settings, check, convert, load
from .project import Recorded
from .schema.export import export_schema
from .trust import LocalActions

__all__ = [
    "Loaded",
    "LocalActions",
    "Recorded",
    "Settings",
    "check",
    "convert",
    "export_schema",
    "load",
]
