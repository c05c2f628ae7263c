"""Python steps by `module:attribute`, from a folder of the worker."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from ..engine.step import Step, as_step
from ..errors import ConfigurationError, nearest

__all__ = ["step_of"]


def step_of(reference: str, roots: Sequence[str]) -> Step:
    """Return the step at `module:attribute`, imported with `roots` first on the import path, in this order.

    Raises:
        ConfigurationError: if it cannot be imported.
    """
    module, _, attribute = reference.partition(":")
    sys.path[:0] = [root for root in dict.fromkeys(roots) if root not in sys.path]
    target: Any = None
    try:
        target = importlib.import_module(module)
        for part in attribute.split("."):
            if not hasattr(target, part):
                hint = nearest(part, [name for name in dir(target) if not name.startswith("_")])
                raise ConfigurationError(f"{reference}: there is no {part!r}{hint}")
            target = getattr(target, part)
    except ConfigurationError:
        raise
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if module == missing or module.startswith(f"{missing}."):
            remedy = (
                f"no folder of --root has the module {missing}, and it is not installed. Start the worker with "
                "--root FOLDER, the folder of the module"
            )
        else:
            remedy = f"its module imports {missing}, which is not installed on this worker"
        raise ConfigurationError(f"{reference} cannot be imported here: {remedy}") from error
    except (Exception, SystemExit) as error:  # the user's module can raise anything
        raise ConfigurationError(
            f"{reference} cannot be imported here: {type(error).__name__}: {error}"
        ) from error
    return as_step(target)
