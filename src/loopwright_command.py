"""The start of the command line: a module of its own, because Ctrl-C can also come while the package is imported."""

from __future__ import annotations

import gc

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit code."""
    # To look for garbage while modules load, which live until the end, takes a fifth of a short command.
    gc.disable()
    try:
        from loopwright.ui.cli import main as command

        return command()
    except KeyboardInterrupt:
        # 128 + 2, as shells report the end by SIGINT.
        return 130
    finally:
        # Nor look for it at the end of the process.
        gc.freeze()
