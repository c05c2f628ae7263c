"""The agent of this example: it changes one setting at random. A coding agent would read the code and think."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

sys.stdin.read()  # the prompt, with the changes so far
iteration = int(os.environ["LOOPWRIGHT_ITERATION"])
chance = random.Random(iteration)
file = Path("settings.json")
settings = json.loads(file.read_text(encoding="utf-8"))

name = chance.choice(sorted(settings))
before = settings[name]
if name == "momentum":
    settings[name] = round(min(0.98, max(0.0, before + chance.uniform(-0.2, 0.5))), 3)
elif name == "rate":
    settings[name] = round(before * chance.uniform(0.5, 4), 4)
elif name == "degree":
    settings[name] = before + chance.choice([1, 2])
else:
    settings[name] = round(before * chance.uniform(0.5, 3))

file.write_text(json.dumps(settings) + "\n", encoding="utf-8")
Path("IDEA.txt").write_text(f"{name} from {before} to {settings[name]}\n", encoding="utf-8")
