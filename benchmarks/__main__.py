"""All benchmarks: `make bench`. Exits with 1 if a figure is over its bound."""

from __future__ import annotations

import sys

from . import (
    cluster,
    decomposition,
    documents,
    durable,
    engine,
    memory,
    models,
    startup,
    tools,
    typed,
    wait_agents,
    workers,
    workspace,
)


def main() -> int:
    """Run every benchmark and print its rows."""
    over = 0
    for module in (
        startup,
        documents,
        engine,
        typed,
        durable,
        decomposition,
        memory,
        models,
        tools,
        cluster,
        wait_agents,
        workers,
        workspace,
    ):
        print(f"# {(module.__doc__ or '').splitlines()[0]}")
        for row in module.rows():
            print(row, flush=True)
            over += not row.holds
    print(f"{over} over their bounds" if over else "all within their bounds")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
