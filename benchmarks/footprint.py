"""Size of an installation with each extra: `python -m benchmarks.footprint [EXTRA...]`.

Each row is a new environment with the wheel and the versions of the lock, without compiled modules.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.footprint.environment import create

EXTRAS = (
    "", "models", "anthropic", "google", "ui", "mcp", "otel", "postgres",
    "pgqueuer", "celery", "temporal", "dbos", "optimise", "gepa", "notebook", "all",
)  # fmt: skip


def main() -> None:
    """Print the megabytes and distributions of the core, and of each extra beyond the core."""
    core: tuple[float, int] | None = None
    print("| installation | MB | distributions | beyond the core |\n|---|---|---|---|")
    for extra in ("", *sys.argv[1:]) if sys.argv[1:] else EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            environment = create(Path(folder), *([extra] if extra else []))
            size, count = environment.megabytes(), len(environment.distributions())
        core = core or (size, count)
        more = f"+{size - core[0]:.0f} MB, {count - core[1]}" if extra else ""
        name = f"loopwright[{extra}]" if extra else "loopwright"
        print(f"| `{name}` | {size:.0f} | {count} | {more} |", flush=True)


if __name__ == "__main__":
    main()
