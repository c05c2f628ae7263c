"""Wrong parts inside of others, and much that is wrong at once."""

from __future__ import annotations

from documents.wrong_heads import HEAD, Wrong

PARTS: Wrong = {
    "inner loop wrong": (
        HEAD
        + "  - name: a\n    loop:\n      execute:\n        loop:\n          execute: {set: 1}\n          until: [{max_iterations: -1}]\n",
        [
            "9:20: steps[0].loop.execute.loop.until[0].max_iterations: max_iterations: limit: -1 is too small; give at least 1",
        ],
    ),
    "each no items": (
        HEAD + "  - {name: a, each: {execute: {set: 1}}}\n",
        [
            "4:21: steps[0].each: needs 'items'",
        ],
    ),
    "each at_once": (
        HEAD + "  - {name: a, each: {items: [1], execute: {set: 1}, at_once: 500}}\n",
        [
            "4:62: steps[0].each.at_once: input should be less than or equal to 256, not 500",
        ],
    ),
    "each rate": (
        HEAD + "  - {name: a, each: {items: [1], execute: {set: 1}, min_success_rate: 2}}\n",
        [
            "4:71: steps[0].each.min_success_rate: input should be less than or equal to 1, not 2",
        ],
    ),
    "each keep": (
        HEAD + "  - {name: a, each: {items: [1], execute: {set: 1}, keep: bset}}\n",
        [
            "4:59: steps[0].each.keep: 'bset' is not 'all' or 'last'",
        ],
    ),
    "consensus one voter": (
        HEAD + '  - {name: a, consensus: {prompt: x, voters: [{model: "openai:x"}]}}\n',
        [
            "4:46: steps[0].consensus.voters: list should have at least 2 items, not 1",
        ],
    ),
    "consensus require": (
        HEAD
        + '  - {name: a, consensus: {prompt: x, require: most, voters: [{model: "openai:x"}, {model: "openai:y"}]}}\n',
        [
            "4:47: steps[0].consensus.require: 'most' is not 'unanimous', '2/3' or 'majority'",
        ],
    ),
    "many at once": (
        "schema: loopwright/1\nname: 9\nmodle: x\nsteps:\n  - {name: a, sett: 1}\n  - {name: b, shell: [ls], timeout: 1 year}\n",
        [
            "2:7: name: '9' is not a name; use letters, digits, _, - and spaces, starting with a letter",
            "3:1: modle: unknown key 'modle'; did you mean 'model'?",
            "5:15: steps[0].sett: unknown key 'sett'; did you mean 'set'?",
            "6:37: steps[1].timeout: '1 year' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "many at once after reading": (
        HEAD
        + '  - {name: a, set: "{{ one }}"}\n  - {name: a, shell: ["{{ x }}"]}\n  - {name: c, python: "steps:nothing", needs: [z]}\n',
        [
            "4:24: steps[0].set: template: 'one' is not defined; known here: input; to set it, use --set one=…",
            "5:12: steps[1].name: 'a' is already the name of the step on line 4",
            "5:23: steps[1].shell[0]: commands cannot contain template values; pass values through env or stdin",
            "6:23: steps[2].python: 'steps:nothing': steps.py has no 'nothing'",
            "6:48: steps[2].needs[0]: there is no step 'z'",
        ],
    ),
    "addresses that cannot be": (
        "schema: loopwright/1\nname: x\nmodel_url: 'http://localhost[[]]:1/v1'\n"
        "steps:\n  - {name: a, prompt: x, model: 'openai:a', model_url: localhost}\n",
        [
            "3:12: model_url: 'http://localhost[[]]:1/v1' is not an http or https address; write one such as "
            "http://localhost:1234/v1",
            "5:56: steps[0].model_url: 'localhost' is not an http or https address; write one such as "
            "http://localhost:1234/v1",
        ],
    ),
    "names as they are in Python": (
        HEAD
        + "  - {name: a, set: 1, if_: 'true'}\n  - {name: b, workflow: child, with_: {x: 1}}\n",
        [
            "4:23: steps[0].if_: unknown key 'if_'; did you mean 'if'?",
            "5:32: steps[1].with_: unknown key 'with_'; did you mean 'with'?",
        ],
    ),
    "a key like no other of many": (
        HEAD + "  - {name: a, set: 1, zzqx: 1}\n",
        [
            "4:23: steps[0].zzqx: unknown key 'zzqx'; known here: model, models, system, "
            "temperature, max_tokens, model_url and 64 more (see loopwright schema)",
        ],
    ),
    "a name like no other of many": (
        HEAD
        + "".join(f"  - {{name: step_number_{i}, set: 1}}\n" for i in range(30))
        + "  - {name: a, set: '{{ zzqx }}'}\n",
        [
            "34:24: steps[30].set: template: 'zzqx' is not defined; known here: input, "
            "step_number_0, step_number_1, step_number_10 and 27 more (steps and variables); to set it, use --set zzqx=…",
        ],
    ),
}
