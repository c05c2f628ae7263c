"""Wrong outlines: the document as a whole, and the keys, kinds, names and needs of its steps."""

from __future__ import annotations

from documents.wrong_heads import HEAD, Wrong

OUTLINES: Wrong = {
    "empty": (
        "",
        [
            "1:1: the document is empty; write at least one 'key: value'",
        ],
    ),
    "a list": (
        "- a\n",
        [
            "1:1: a document is a mapping; begin with schema: loopwright/1",
        ],
    ),
    "a text": (
        "hello\n",
        [
            "1:1: a document is a mapping; begin with schema: loopwright/1",
        ],
    ),
    "no schema": (
        "name: x\nsteps: [{name: a, set: 1}]\n",
        [
            "1:1: needs 'schema'; begin with schema: loopwright/1",
        ],
    ),
    "other schema": (
        "schema: loopwright/2\nname: x\nsteps: [{name: a, set: 1}]\n",
        [
            "1:9: schema: 'loopwright/2' is not 'loopwright/1'",
        ],
    ),
    "no name": (
        "schema: loopwright/1\nsteps: [{name: a, set: 1}]\n",
        [
            "1:1: needs 'name'",
        ],
    ),
    "no steps": (
        "schema: loopwright/1\nname: x\n",
        [
            "1:1: needs 'steps'",
        ],
    ),
    "empty steps": (
        "schema: loopwright/1\nname: x\nsteps: []\n",
        [
            "3:8: steps: list should have at least 1 item, not 0",
        ],
    ),
    "steps is a mapping": (
        "schema: loopwright/1\nname: x\nsteps: {a: 1}\n",
        [
            "3:8: steps: expected a list, not a mapping with the key a; write each step as an item that begins with - name: a",
        ],
    ),
    "steps twice": (
        "schema: loopwright/1\nname: x\nsteps: [{name: a, set: 1}]\nsteps: [{name: b, set: 1}]\n",
        [
            "3:1: steps: 'steps' is set twice; join the lists",
        ],
    ),
    "key twice": (
        "schema: loopwright/1\nname: x\nname: y\nsteps: [{name: a, set: 1}]\n",
        [
            "3:1: name: key 'name' on line 3 is already set on line 2; remove one",
        ],
    ),
    "unknown top key": (
        "schema: loopwright/1\nname: x\nmodle: a\nsteps: [{name: a, set: 1}]\n",
        [
            "3:1: modle: unknown key 'modle'; did you mean 'model'?",
        ],
    ),
    "bad name": (
        "schema: loopwright/1\nname: 1x\nsteps: [{name: a, set: 1}]\n",
        [
            "2:7: name: '1x' is not a name; use letters, digits, _, - and spaces, starting with a letter",
        ],
    ),
    "tabs": (
        "schema: loopwright/1\n\tname: x\n",
        [
            "2:1: schema: not valid YAML: a tab cannot indent; use spaces",
        ],
    ),
    "unknown step key": (
        HEAD + "  - {name: a, sett: 1}\n",
        [
            "4:15: steps[0].sett: unknown key 'sett'; did you mean 'set'?",
        ],
    ),
    "unknown step key with a kind": (
        HEAD + "  - {name: a, set: 1, need: [b]}\n",
        [
            "4:23: steps[0].need: unknown key 'need'; did you mean 'needs'?",
        ],
    ),
    "no kind": (
        HEAD + "  - {name: a}\n",
        [
            "4:5: steps[0]: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, agent, gepa, memory, tool, wait, set, but has none",
        ],
    ),
    "two kinds": (
        HEAD + "  - {name: a, set: 1, shell: [ls]}\n",
        [
            "4:5: steps[0]: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, agent, gepa, memory, tool, wait, set, but has shell and set",
        ],
    ),
    "three kinds": (
        HEAD + "  - {name: a, set: 1, shell: [ls], prompt: hi}\n",
        [
            "4:5: steps[0]: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, agent, gepa, memory, tool, wait, set, but has shell and prompt and set",
        ],
    ),
    "misplaced env": (
        HEAD + "  - {name: a, set: 1, env: {A: b}}\n",
        [
            "4:23: steps[0].env: env belongs to shell, not to set",
        ],
    ),
    "misplaced with": (
        HEAD + "  - {name: a, shell: [ls], with: {A: b}}\n",
        [
            "4:28: steps[0].with: with belongs to workflow, not to shell",
        ],
    ),
    "misplaced model": (
        HEAD + '  - {name: a, shell: [ls], model: "openai:x"}\n',
        [
            "4:28: steps[0].model: model belongs to prompt, not to shell",
        ],
    ),
    "misplaced allow_exit": (
        HEAD + "  - {name: a, prompt: x, allow_exit: [1]}\n",
        [
            "4:26: steps[0].allow_exit: allow_exit belongs to shell, not to prompt",
        ],
    ),
    "no step name": (
        HEAD + "  - {set: 1}\n",
        [
            "4:5: steps[0]: needs 'name'",
        ],
    ),
    "step name a number": (
        HEAD + "  - {name: 12, set: 1}\n",
        [
            "4:12: steps[0].name: '12' is not a name; use letters, digits, _, - and spaces, starting with a letter",
        ],
    ),
    "step name with a slash": (
        HEAD + "  - {name: a/b, set: 1}\n",
        [
            "4:12: steps[0].name: 'a/b' is not a name; use letters, digits, _, - and spaces, starting with a letter",
        ],
    ),
    "step name too long": (
        HEAD
        + "  - {name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, set: 1}\n",
        [
            "4:12: steps[0].name: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa… is not a name; use letters, digits, _, - and spaces, starting with a letter",
        ],
    ),
    "step is a text": (
        HEAD + "  - hello\n",
        [
            "4:5: steps[0]: expected a mapping, not 'hello'",
        ],
    ),
    "step is null": (
        HEAD + "  - \n",
        [
            "4:4: steps[0]: expected a mapping, not nothing",
        ],
    ),
    "duplicate step": (
        HEAD + "  - {name: a, set: 1}\n  - {name: a, set: 2}\n",
        [
            "5:12: steps[1].name: 'a' is already the name of the step on line 4",
        ],
    ),
    "unknown need": (
        HEAD + "  - {name: fetch, set: 1}\n  - {name: b, needs: [fetsch], set: 2}\n",
        [
            "5:23: steps[1].needs[0]: there is no step 'fetsch'; did you mean 'fetch'?",
        ],
    ),
    "unknown need as text": (
        HEAD + "  - {name: fetch, set: 1}\n  - {name: b, needs: fetsch, set: 2}\n",
        [
            "5:22: steps[1].needs[0]: there is no step 'fetsch'; did you mean 'fetch'?",
        ],
    ),
    "needs itself": (
        HEAD + "  - {name: a, needs: [a], set: 1}\n",
        [
            "4:3: steps: workflow x: steps need each other: a -> a",
        ],
    ),
    "needs in a circle": (
        HEAD
        + "  - {name: a, needs: [b], set: 1}\n  - {name: b, needs: [c], set: 1}\n  - {name: c, needs: [a], set: 1}\n",
        [
            "4:3: steps: workflow x: steps need each other: a -> b -> c -> a",
        ],
    ),
    "needs a number": (
        HEAD + "  - {name: a, needs: [1], set: 1}\n",
        [
            "4:23: steps[0].needs[0]: there is no step '1'",
        ],
    ),
    "circle inside": (
        HEAD
        + "  - name: o\n    steps:\n      - {name: a, needs: [b], set: 1}\n      - {name: b, needs: [a], set: 1}\n",
        [
            "6:7: steps[0].steps: workflow o: steps need each other: a -> b -> a",
        ],
    ),
    "empty parallel": (
        HEAD + "  - {name: a, parallel: []}\n",
        [
            "4:25: steps[0].parallel: list should have at least 1 item, not 0",
        ],
    ),
    "wrong step in parallel": (
        HEAD + "  - name: a\n    parallel:\n      - {name: b, st: 1}\n      - {name: c, set: 1}\n",
        [
            "6:19: steps[0].parallel[0].st: unknown key 'st'; did you mean 'set'?",
        ],
    ),
    "duplicate in fallback": (
        HEAD + "  - name: a\n    fallback:\n      - {name: b, set: 1}\n      - {name: b, set: 1}\n",
        [
            "7:16: steps[0].fallback[1].name: 'b' is already the name of the step on line 6",
        ],
    ),
}
