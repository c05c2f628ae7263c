"""Import paths and names of version 0.1, valid for one more release.

`import loopwright.loop` imports `loopwright.engine.loop`, and so on for every path in `MODULES`.
`loopwright.Journal` is `loopwright.journal.Journal`, and so on for every name in `NAMES`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importing importlib.abc takes 10 ms

MODULES = {
    "approvals": "journal.questions",
    "budget": "engine.budgets",
    "cli": "ui.cli",
    "codec": "records.codec",
    "composites": "engine.composites",
    "context": "engine.context",
    "loop": "engine.loop",
    "observe": "telemetry",
    "remembering": "engine.loop_memory",
    "replay": "journal.replay",
    "run": "engine.run",
    "step": "engine.step",
    "stores": "journal.open",
    "testing.models": "models",
    "variables": "templates.variables",
    "web": "ui.web",
    "workflow": "engine.workflow",
}

# Names that were in the package, and the modules that have them now.
NAMES = {
    "Entry": "journal",
    "Journal": "journal",
}


class _Alias(Loader):
    """Finds a module under its former path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != __package__ or name not in MODULES:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = spec.name.partition(".")[2]
        # The same module object, so that classes of both paths are identical.
        module = importlib.import_module(f"{__package__}.{MODULES[name]}")
        # Python replaces the module's spec by that of the alias, which would break reloading and pickling.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of the module, which is already loaded under its new path."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make the former paths importable; called once, when the package is imported."""
    for name in ("run", "step"):  # also functions of the package: an import must not replace them
        sys.modules[f"{__package__}.{name}"] = sys.modules[f"{__package__}.{MODULES[name]}"]
    # At the end: a path that exists is found before any alias is tried.
    sys.meta_path.append(_Alias())
