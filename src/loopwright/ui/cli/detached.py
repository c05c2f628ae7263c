"""`--detach`: the same command again, in a process that outlives the terminal."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..._platform import new_group
from ...errors import LoopwrightError, StepError
from ...tools.process import tail
from ..journals import PROGRAM, command_line, create_folder, opened
from .output import Output

FOLDER = Path(".loopwright", "detached")  # of the logs
WAIT = 60.0  # seconds until the run is in the journal
CHECK = 0.05  # seconds between two looks at the journal


def start_detached(run_id: str, journal: str, output: Output) -> int:
    """Start the present command in the background, wait until its run is in the journal, and report both.

    Raises:
        LoopwrightError: if it ends before that, with the end of its log.
    """
    create_folder(FOLDER.parent)
    FOLDER.mkdir(exist_ok=True)
    log = FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]', '_', run_id)}.log"
    words = [*PROGRAM, *background_words(sys.argv[1:], run_id)]
    with log.open("ab") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, **new_group()
        )
    deadline = time.monotonic() + WAIT
    while not asyncio.run(_recorded(journal, run_id)):
        # A run that is satisfied at once may end before it is seen, so the exit code counts too.
        if process.poll() not in (None, 0, 3) or time.monotonic() > deadline:
            text = tail(log.read_text("utf-8", "replace"))
            raise StepError(f"the run did not start: {text or f'see {log}'}")
        time.sleep(CHECK)
    if output.as_json:
        output.write_json({"run_id": run_id, "pid": process.pid, "log": str(log)})
    else:
        output.write(f"Run {run_id} continues in the background, its log is {log}.")
        output.write(f"Watch it: {command_line('watch', run_id, journal)}")
    return 0


def background_words(arguments: Sequence[str], run_id: str) -> list[str]:
    """Return a command line without `--detach` and with the ID of its run.

    >>> background_words(["until", "pytest", "--detach", "--", "claude"], "a1")
    ['until', '--run-id=a1', 'pytest', '--', 'claude']
    """
    words = list(arguments)
    # Words after "--" belong to the agent.
    end = words.index("--") if "--" in words else len(words)
    own = [word for word in words[:end] if word != "--detach"]
    if not any(word.startswith("--run-id") for word in own):
        own.insert(1, f"--run-id={run_id}")
    return [*own, *words[end:]]


async def _recorded(journal: str, run_id: str) -> bool:
    try:
        async with opened(journal) as store:
            return (await store.find(run_id)).run_id == run_id
    except LoopwrightError:  # the process is creating the database at this moment
        return False
