"""How wrong documents begin, where what is wrong comes later."""

from __future__ import annotations

# name: (text, problems without the name of the file)
Wrong = dict[str, tuple[str, list[str]]]

HEAD = "schema: loopwright/1\nname: x\nsteps:\n"
LOOP = HEAD + "  - name: a\n    loop:\n      execute: {set: 1}\n"
