"""Wrong references: functions, documents, models, prices and budgets."""

from __future__ import annotations

from documents.wrong_heads import HEAD, Wrong

REFERENCES: Wrong = {
    "no module": (
        HEAD + '  - {name: a, python: "stps:upper"}\n',
        [
            "4:23: steps[0].python: no module 'stps' beside the document or among the installed packages; did you mean 'steps'?",
        ],
    ),
    "no function": (
        HEAD + '  - {name: a, python: "steps:uper"}\n',
        [
            "4:23: steps[0].python: 'steps:uper': steps.py has no 'uper'; did you mean 'upper'?",
        ],
    ),
    "no colon": (
        HEAD + "  - {name: a, python: steps.upper}\n",
        [
            "4:23: steps[0].python: 'steps.upper' is not a function reference; write package.module:function",
        ],
    ),
    "not callable": (
        HEAD + '  - {name: a, python: "steps:number"}\n',
        [
            "4:23: steps[0].python: 'steps:number' is of type int; name a function",
        ],
    ),
    "syntax error": (
        HEAD + '  - {name: a, python: "broken:f"}\n',
        [
            "4:23: steps[0].python: 'broken:f': broken.py cannot be read: invalid syntax on line 1",
        ],
    ),
    "raises on import": (
        HEAD + '  - {name: a, python: "raises:f"}\n',
        [
            "4:23: steps[0].python: 'raises:f': importing raises failed: OSError: no luck",
        ],
    ),
    "exits on import": (
        HEAD + '  - {name: a, python: "exits:f"}\n',
        [
            "4:23: steps[0].python: 'exits:f': importing exits failed: SystemExit: 3",
        ],
    ),
    "nul in reference": (
        HEAD + '  - {name: a, python: "ste\\0ps:f"}\n',
        [
            "4:23: steps[0].python: a text cannot contain the character U+0000; remove it",
        ],
    ),
    "no such document": (
        HEAD + "  - {name: a, workflow: chlid}\n",
        [
            "4:25: steps[0].workflow: there is no document 'chlid' beside this one; did you mean 'child'?",
        ],
    ),
    "absolute document": (
        HEAD + "  - {name: a, workflow: /etc/passwd}\n",
        [
            "4:25: steps[0].workflow: '/etc/passwd' is outside the project folder",
        ],
    ),
    "document above": (
        HEAD + "  - {name: a, workflow: ../child.yaml}\n",
        [
            "4:25: steps[0].workflow: '../child.yaml' is outside the project folder",
        ],
    ),
    "document by symlink": (
        HEAD + "  - {name: a, workflow: link.yaml}\n",
        [
            "4:25: steps[0].workflow: 'link.yaml' is outside the project folder",
        ],
    ),
    "calls itself": (
        HEAD + "  - {name: a, workflow: document.yaml}\n",
        [
            "4:25: steps[0].workflow: documents call each other in a cycle: document.yaml -> document.yaml",
        ],
    ),
    "circle of two": (
        HEAD + "  - {name: a, workflow: back.yaml}\n",
        [
            "back.yaml:3:32: steps[0].workflow: documents call each other in a cycle: document.yaml -> back.yaml -> document.yaml",
        ],
    ),
    "wrong child": (
        HEAD + "  - {name: a, workflow: wrong_child.yaml}\n",
        [
            "wrong_child.yaml:3:23: steps[0].sett: unknown key 'sett'; did you mean 'set'?",
        ],
    ),
    "not YAML": (
        HEAD + "  - {name: a, workflow: binary.yaml}\n",
        [
            "binary.yaml:1:1: the document is UTF-16; save it as UTF-8",
        ],
    ),
    "expose unknown": (
        HEAD + "  - {name: a, workflow: child.yaml, expose: [secnd]}\n",
        [
            "4:46: steps[0].expose[0]: child.yaml has no step 'secnd'; did you mean 'second'?",
        ],
    ),
    "child without a value": (
        HEAD + "  - {name: a, workflow: needs.yaml}\n",
        [
            "needs.yaml:4:28: steps[0].set: template: 'topic' is not defined; known here: input",
        ],
    ),
    "no model": (
        HEAD + "  - {name: a, prompt: hello}\n",
        [
            "4:5: steps[0]: no model is set; set model: provider:model here or in the document, use --model, or set LOOPWRIGHT_MODEL in the environment",
        ],
    ),
    "model without provider": (
        HEAD + "  - {name: a, prompt: hello, model: gpt-4o}\n",
        [
            "4:37: steps[0].model: 'gpt-4o' is not a model; write provider:model, like openai:gpt-4o",
        ],
    ),
    "model of the document without provider": (
        HEAD.replace("steps:", "model: gpt-4o\nsteps:")
        + "  - {name: a, prompt: hello}\n  - {name: b, prompt: hi}\n",
        [
            "3:8: model: 'gpt-4o' is not a model; write provider:model, like openai:gpt-4o",
        ],
    ),
    "unknown provider": (
        HEAD + '  - {name: a, prompt: hello, model: "opnai:gpt-4o"}\n',
        [
            "4:37: steps[0].model: the provider 'opnai' is not available; did you mean 'openai'?",
        ],
    ),
    "temperature too high": (
        HEAD + '  - {name: a, prompt: hello, model: "openai:gpt-4o", temperature: 3}\n',
        [
            "4:67: steps[0].temperature: input should be less than or equal to 2, not 3",
        ],
    ),
    "temperature a text": (
        HEAD + '  - {name: a, prompt: hello, model: "openai:gpt-4o", temperature: warm}\n',
        [
            "4:67: steps[0].temperature: expected a number, not 'warm'",
        ],
    ),
    "max_tokens zero": (
        HEAD + '  - {name: a, prompt: hello, model: "openai:gpt-4o", max_tokens: 0}\n',
        [
            "4:66: steps[0].max_tokens: input should be greater than or equal to 1, not 0",
        ],
    ),
    "prompt output": (
        HEAD + '  - {name: a, prompt: hello, model: "openai:gpt-4o", output: json}\n',
        [
            "4:62: steps[0].output: the output of a prompt must be {schema: JSON_SCHEMA}, or with otherwise: FIELD too",
        ],
    ),
    "empty models": (
        HEAD + "  - {name: a, prompt: hello, models: []}\n",
        [
            "4:38: steps[0].models: list should have at least 1 item, not 0",
        ],
    ),
    "conversation": (
        HEAD + '  - {name: a, prompt: hello, model: "openai:gpt-4o", conversation: fersh}\n',
        [
            "4:68: steps[0].conversation: 'fersh' is not 'fresh' or 'carried'; did you mean 'fresh'?",
        ],
    ),
    "unknown price under a cap": (
        "schema: loopwright/1\nname: x\nbudget: {usd: 1}\nsteps:\n  - {name: a, prompt: hi, model: 'openai:nobody-knows'}\n",
        [
            "1:1: prices: a budget in dollars needs the price of openai:nobody-knows, which is unknown; state it as prices: {nobody-knows: {input: USD per million tokens, output: …}}, or free",
        ],
    ),
    "bad price": (
        "schema: loopwright/1\nname: x\nprices: {m: {input: -1}}\nsteps: [{name: a, set: 1}]\n",
        [
            "3:13: prices.m: needs 'output'",
            "3:21: prices.m.input: input should be greater than or equal to 0, not -1",
        ],
    ),
    "price a text": (
        "schema: loopwright/1\nname: x\nprices: {m: gratis}\nsteps: [{name: a, set: 1}]\n",
        [
            "3:13: prices.m: 'gratis' is not 'free'",
        ],
    ),
    "budget unknown key": (
        "schema: loopwright/1\nname: x\nbudget: {dollars: 1}\nsteps: [{name: a, set: 1}]\n",
        [
            "3:10: budget.dollars: unknown key 'dollars'; known here: calls, tokens, usd, effects",
        ],
    ),
    "budget zero": (
        "schema: loopwright/1\nname: x\nbudget: {usd: 0}\nsteps: [{name: a, set: 1}]\n",
        [
            "3:15: budget.usd: input should be greater than 0, not 0",
        ],
    ),
    "at_once zero": (
        "schema: loopwright/1\nname: x\nat_once: 0\nsteps: [{name: a, set: 1}]\n",
        [
            "3:10: at_once: input should be greater than or equal to 1, not 0",
        ],
    ),
    "env a number in a list": (
        "schema: loopwright/1\nname: x\nenv: {A: [1]}\nsteps: [{name: a, set: 1}]\n",
        [
            "3:10: env.A: expected text, not [1]",
        ],
    ),
}
