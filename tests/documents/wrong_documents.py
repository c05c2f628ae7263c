"""Wrong documents with all that is said of each, whole: place, path, what, and the nearest name."""

from __future__ import annotations

__all__ = ["FILES", "WRONG"]

HEAD = "schema: loopwright/1\nname: x\nsteps:\n"
LOOP = HEAD + "  - name: a\n    loop:\n      execute: {set: 1}\n"

FILES = {
    "steps.py": "def upper(value):\n    return str(value).upper()\n\ndef rate(output):\n    return 0.5\n\ndef longer(last):\n    return last.output\n\nnumber = 3\n",
    "broken.py": "def f(:\n",
    "raises.py": "raise OSError('no luck')\ndef f(value): ...\n",
    "exits.py": "import sys\nsys.exit(3)\ndef f(value): ...\n",
    "child.yaml": "schema: loopwright/1\nname: child\nsteps: [{name: first, set: 1}, {name: second, set: 2}]\n",
    "needs.yaml": "schema: loopwright/1\nname: needy\nsteps:\n  - {name: first, set: '{{ topic }}'}\n",
    "wrong_child.yaml": "schema: loopwright/1\nname: wrong\nsteps: [{name: first, sett: 1}]\n",
    "back.yaml": "schema: loopwright/1\nname: back\nsteps: [{name: back, workflow: document.yaml}]\n",
    "binary.yaml": b"\xff\xfe\x00",
}

# name: (text, problems without the name of the file)
WRONG: dict[str, tuple[str, list[str]]] = {
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
            "3:8: steps: expected a list, not {'a': 1}",
        ],
    ),
    "steps twice": (
        "schema: loopwright/1\nname: x\nsteps: [{name: a, set: 1}]\nsteps: [{name: b, set: 1}]\n",
        [
            "3:1: steps: 'steps' is given twice; join the lists",
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
            "2:7: name: '1x' is not a name; use letters, digits, _, - and spaces, a letter first",
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
            "4:5: steps[0]: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, memory, tool, set, and has none",
        ],
    ),
    "two kinds": (
        HEAD + "  - {name: a, set: 1, shell: [ls]}\n",
        [
            "4:5: steps[0]: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, memory, tool, set, and has shell and set",
        ],
    ),
    "three kinds": (
        HEAD + "  - {name: a, set: 1, shell: [ls], prompt: hi}\n",
        [
            "4:5: steps[0]: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, memory, tool, set, and has shell and prompt and set",
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
            "4:12: steps[0].name: '12' is not a name; use letters, digits, _, - and spaces, a letter first",
        ],
    ),
    "step name with a slash": (
        HEAD + "  - {name: a/b, set: 1}\n",
        [
            "4:12: steps[0].name: 'a/b' is not a name; use letters, digits, _, - and spaces, a letter first",
        ],
    ),
    "step name too long": (
        HEAD
        + "  - {name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, set: 1}\n",
        [
            "4:12: steps[0].name: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa… is not a name; use letters, digits, _, - and spaces, a letter first",
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
            "4:4: steps[0]: expected a mapping, not None",
        ],
    ),
    "duplicate step": (
        HEAD + "  - {name: a, set: 1}\n  - {name: a, set: 2}\n",
        [
            "5:12: steps[1].name: 'a' is already a step, on line 4",
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
            "7:16: steps[0].fallback[1].name: 'b' is already a step, on line 6",
        ],
    ),
    "unknown output": (
        "schema: loopwright/1\nname: x\nsteps: [{name: first, set: 1}]\noutput: frist\n",
        [
            "4:9: output: there is no step 'frist'; did you mean 'first'?",
        ],
    ),
    "bad on_failure": (
        HEAD + "  - {name: a, set: 1, on_failure: retyr}\n",
        [
            "4:35: steps[0].on_failure: 'retyr' is not 'halt', 'continue' or 'retry'; did you mean 'retry'?",
        ],
    ),
    "bad max_retries": (
        HEAD + "  - {name: a, set: 1, on_failure: retry, max_retries: 101}\n",
        [
            "4:55: steps[0].max_retries: input should be less than or equal to 100, not 101",
        ],
    ),
    "max_retries a text": (
        HEAD + "  - {name: a, set: 1, on_failure: retry, max_retries: many}\n",
        [
            "4:55: steps[0].max_retries: expected a whole number, not 'many'",
        ],
    ),
    "bad timeout": (
        HEAD + "  - {name: a, set: 1, timeout: 5 parsecs}\n",
        [
            "4:32: steps[0].timeout: '5 parsecs' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "zero timeout": (
        HEAD + "  - {name: a, set: 1, timeout: 0}\n",
        [
            "4:32: steps[0].timeout: input should be greater than 0, not 0",
        ],
    ),
    "negative timeout": (
        HEAD + "  - {name: a, set: 1, timeout: -1}\n",
        [
            "4:32: steps[0].timeout: input should be greater than 0, not -1",
        ],
    ),
    "timeout a list": (
        HEAD + "  - {name: a, set: 1, timeout: [1]}\n",
        [
            "4:32: steps[0].timeout: expected a number, not [1]",
        ],
    ),
    "a duration without end": (
        HEAD + f"  - {{name: a, set: 1, timeout: '{'1' * 200_000}'}}\n",
        [
            f"4:32: steps[0].timeout: '{'1' * 59}…' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "steps that are a number": (
        "steps: 3\n",
        [
            "1:1: needs 'schema'; begin with schema: loopwright/1",
            "1:1: needs 'name'",
            "1:8: steps: expected a list, not 3",
        ],
    ),
    "bad duration order": (
        HEAD + "  - {name: a, set: 1, timeout: s30}\n",
        [
            "4:32: steps[0].timeout: 's30' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "bad retry_delay": (
        HEAD + "  - {name: a, set: 1, retry_delay: soon}\n",
        [
            "4:36: steps[0].retry_delay: 'soon' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "required a text": (
        HEAD + "  - {name: a, set: 1, required: maybe}\n",
        [
            "4:33: steps[0].required: expected true or false, not 'maybe'",
        ],
    ),
    "if a list": (
        HEAD + "  - {name: a, set: 1, if: [1]}\n",
        [
            "4:27: steps[0].if: expected a text, not [1]",
        ],
    ),
    "if not an expression": (
        HEAD + '  - {name: a, set: 1, if: "a b"}\n',
        [
            "4:27: steps[0].if: template line 1, column 3: unexpected 'b'",
        ],
    ),
    "if unknown name": (
        HEAD + '  - {name: alpha, set: 1}\n  - {name: b, set: 1, if: "alhpa == 1"}\n',
        [
            "5:27: steps[1].if: template: nothing supplies 'alhpa'; did you mean 'alpha'?",
        ],
    ),
    "unknown name in a template": (
        HEAD + '  - {name: draft, set: 1}\n  - {name: b, set: "{{ drfat }}"}\n',
        [
            "5:20: steps[1].set: template: nothing supplies 'drfat'; did you mean 'draft'?",
        ],
    ),
    "later name in a template": (
        HEAD + '  - {name: a, set: "{{ b }}"}\n  - {name: b, set: 1}\n',
        [
            "4:20: steps[0].set: template: nothing supplies 'b'; known here: input",
        ],
    ),
    "itself in a template": (
        HEAD + '  - {name: a, set: "{{ a }}"}\n',
        [
            "4:20: steps[0].set: template: nothing supplies 'a'; known here: input",
        ],
    ),
    "unclosed template": (
        HEAD + '  - {name: a, set: "{{ input"}\n',
        [
            "4:20: steps[0].set: template line 1, column 1: unexpected end of template, expected 'end of print statement'",
        ],
    ),
    "unknown tag": (
        HEAD + '  - {name: a, set: "{% fro a in input %}"}\n',
        [
            "4:20: steps[0].set: template line 1, column 4: unknown tag 'fro'; did you mean 'for'?",
        ],
    ),
    "unknown filter": (
        HEAD + '  - {name: a, set: "{{ input | uper }}"}\n',
        [
            "4:20: steps[0].set: template line 1, column 12: there is no filter 'uper'; did you mean 'upper'?",
        ],
    ),
    "loop outside": (
        HEAD + '  - {name: a, set: "{{ loop.iteration }}"}\n',
        [
            "4:20: steps[0].set: template: nothing supplies 'loop'; no loop is around it or has ended before it",
        ],
    ),
    "two unknown names": (
        HEAD + '  - {name: a, set: ["{{ one }}", {k: "{{ two }}"}]}\n',
        [
            "4:20: steps[0].set: template: nothing supplies 'one'; known here: input",
            "4:20: steps[0].set: template: nothing supplies 'two'; known here: input",
        ],
    ),
    "unquoted template": (
        HEAD + "  - {name: a, set: {{ input }}}\n",
        [
            "4:20: steps[0].set: '{{' without quotes begins a mapping; put quotes around the value: \"{{ input }}\"",
        ],
    ),
    "template in a command": (
        HEAD + '  - {name: a, shell: [echo, "{{ input }}"]}\n',
        [
            "4:29: steps[0].shell[1]: a template inside command text would let a value become a command; pass values by env or stdin",
        ],
    ),
    "template in a script": (
        HEAD + '  - {name: a, shell: "echo {{ input }}"}\n',
        [
            "4:22: steps[0].shell: a template inside command text would let a value become a command; pass values by env or stdin",
        ],
    ),
    "tag in a script": (
        HEAD + '  - {name: a, shell: "echo {% if a %}"}\n',
        [
            "4:22: steps[0].shell: a template inside command text would let a value become a command; pass values by env or stdin",
        ],
    ),
    "empty command": (
        HEAD + "  - {name: a, shell: []}\n",
        [
            "4:22: steps[0].shell: shell: () is not a command; give a list of words, or a script as text",
        ],
    ),
    "empty script": (
        HEAD + '  - {name: a, shell: ""}\n',
        [
            "4:22: steps[0].shell: shell: () is not a command; give a list of words, or a script as text",
        ],
    ),
    "command of numbers": (
        HEAD + "  - {name: a, shell: {a: b}}\n",
        [
            "4:22: steps[0].shell: expected a list or a text, not {'a': 'b'}",
        ],
    ),
    "cwd up": (
        HEAD + "  - {name: a, shell: [ls], cwd: ../..}\n",
        [
            "4:33: steps[0].cwd: '../..' leads out of the project folder",
        ],
    ),
    "cwd absolute": (
        HEAD + "  - {name: a, shell: [ls], cwd: /etc}\n",
        [
            "4:33: steps[0].cwd: '/etc' leads out of the project folder",
        ],
    ),
    "shell output": (
        HEAD + "  - {name: a, shell: [ls], output: jason}\n",
        [
            "4:36: steps[0].output: 'jason' is none of text, json, result",
        ],
    ),
    "shell output a number": (
        HEAD + "  - {name: a, shell: [ls], output: 3}\n",
        [
            "4:36: steps[0].output: 3 is none of text, json, result",
        ],
    ),
    "env unknown name": (
        HEAD + '  - {name: a, shell: [ls], env: {A: "{{ nobody }}"}}\n',
        [
            "4:37: steps[0].env.A: template: nothing supplies 'nobody'; known here: input",
        ],
    ),
    "stdin unknown name": (
        HEAD + '  - {name: a, shell: [ls], stdin: "{{ nobody }}"}\n',
        [
            "4:35: steps[0].stdin: template: nothing supplies 'nobody'; known here: input",
        ],
    ),
    "env a list": (
        HEAD + "  - {name: a, shell: [ls], env: [A]}\n",
        [
            "4:33: steps[0].env: expected a mapping, not ['A']",
        ],
    ),
    "no module": (
        HEAD + '  - {name: a, python: "stps:upper"}\n',
        [
            "4:23: steps[0].python: there is no module 'stps' beside the document or installed; did you mean 'steps'?",
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
            "4:23: steps[0].python: 'steps.upper' names no function; write package.module:function",
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
            "4:23: steps[0].python: a text cannot hold the character U+0000; remove it",
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
            "4:25: steps[0].workflow: '/etc/passwd' leads out of the project folder",
        ],
    ),
    "document above": (
        HEAD + "  - {name: a, workflow: ../child.yaml}\n",
        [
            "4:25: steps[0].workflow: '../child.yaml' leads out of the project folder",
        ],
    ),
    "document by symlink": (
        HEAD + "  - {name: a, workflow: link.yaml}\n",
        [
            "4:25: steps[0].workflow: 'link.yaml' leads out of the project folder",
        ],
    ),
    "calls itself": (
        HEAD + "  - {name: a, workflow: document.yaml}\n",
        [
            "4:25: steps[0].workflow: documents call each other in a circle: document.yaml -> document.yaml",
        ],
    ),
    "circle of two": (
        HEAD + "  - {name: a, workflow: back.yaml}\n",
        [
            "back.yaml:3:32: steps[0].workflow: documents call each other in a circle: document.yaml -> back.yaml -> document.yaml",
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
            "needs.yaml:4:24: steps[0].set: template: nothing supplies 'topic'; known here: input",
        ],
    ),
    "no model": (
        HEAD + "  - {name: a, prompt: hello}\n",
        [
            "4:5: steps[0]: no model is named; give model: provider:model here, in the document, or with --model",
        ],
    ),
    "model without provider": (
        HEAD + "  - {name: a, prompt: hello, model: gpt-4o}\n",
        [
            "4:37: steps[0].model: 'gpt-4o' is not a model; write provider:model, like openai:gpt-4o",
        ],
    ),
    "unknown provider": (
        HEAD + '  - {name: a, prompt: hello, model: "opnai:gpt-4o"}\n',
        [
            "4:37: steps[0].model: there is no provider 'opnai'; did you mean 'openai'?",
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
            "4:62: steps[0].output: the output of a prompt is {schema: a JSON Schema}",
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
            "1:1: prices: a cap in dollars needs the price of openai:nobody-knows, which is unknown; state it as prices: {nobody-knows: {input: USD per million tokens, output: …}}, or free",
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
            "3:10: budget.dollars: unknown key 'dollars'; known here: calls, tokens, usd",
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
            "3:10: env.A: expected a text, not [1]",
        ],
    ),
    "loop without execute": (
        HEAD + "  - {name: a, loop: {until: passed}}\n",
        [
            "4:21: steps[0].loop: needs 'execute'",
        ],
    ),
    "unknown loop key": (
        LOOP + "      untl: passed\n",
        [
            "7:7: steps[0].loop.untl: unknown key 'untl'; did you mean 'until'?",
        ],
    ),
    "unknown condition": (
        LOOP + "      until: [{max_iteration: 3}]\n",
        [
            "7:16: steps[0].loop.until[0].max_iteration: unknown condition 'max_iteration'; did you mean 'max_iterations'?",
        ],
    ),
    "unknown word condition": (
        LOOP + "      until: pased\n",
        [
            "7:14: steps[0].loop.until: 'pased' is neither a condition nor a sentence; did you mean 'passed'?",
        ],
    ),
    "unknown condition in a tree": (
        LOOP
        + "      until:\n        any_of:\n          - passed\n          - all_of: [passed, {score_atleast: 0.5}]\n",
        [
            "10:31: steps[0].loop.until.any_of[1].all_of[1].score_atleast: unknown condition 'score_atleast'; did you mean 'score_at_least'?",
        ],
    ),
    "unknown field": (
        LOOP + "      until: [{no_improvement: {patients: 2}}]\n",
        [
            "7:16: steps[0].loop.until[0].no_improvement: no_improvement: unknown field 'patients'; did you mean 'patience'?",
        ],
    ),
    "threshold off scale": (
        LOOP + "      until: {score_at_least: 85}\n",
        [
            "7:15: steps[0].loop.until.score_at_least: score_at_least: threshold: 85 is out of range; give a number at least 0 and at most 1",
        ],
    ),
    "negative threshold": (
        LOOP + "      until: [passed, {score_at_least: -0.1}]\n",
        [
            "7:24: steps[0].loop.until[1].score_at_least: score_at_least: threshold: -0.1 is out of range; give a number at least 0 and at most 1",
        ],
    ),
    "threshold nan text": (
        LOOP + "      until: {score_at_least: high}\n",
        [
            "7:15: steps[0].loop.until.score_at_least: score_at_least: threshold: 'high' is not a number",
        ],
    ),
    "patience zero": (
        LOOP + "      until: {no_improvement: 0}\n",
        [
            "7:15: steps[0].loop.until.no_improvement: no_improvement: patience: 0 is too small; give at least 1",
        ],
    ),
    "limit above ceiling": (
        LOOP + "      until: [passed, {max_iterations: 1001}]\n",
        [
            "7:24: steps[0].loop.until[1].max_iterations: max_iterations: 1001 is above the ceiling of 1000; give at most 1000",
        ],
    ),
    "limit zero": (
        LOOP + "      until: {max_iterations: 0}\n",
        [
            "6:7: steps[0].loop.min_iterations: min_iterations: 1 is above the limit of 0, which ends the loop first",
            "7:15: steps[0].loop.until.max_iterations: max_iterations: limit: 0 is too small; give at least 1",
        ],
    ),
    "limit a float": (
        LOOP + "      until: {max_iterations: 2.5}\n",
        [
            "7:15: steps[0].loop.until.max_iterations: max_iterations: limit: 2.5 is not a whole number",
        ],
    ),
    "max_iterations above ceiling": (
        LOOP + "      max_iterations: 5000\n",
        [
            "7:23: steps[0].loop.max_iterations: input should be less than or equal to 1000, not 5000",
        ],
    ),
    "empty until": (
        LOOP + "      until: []\n",
        [
            "7:14: steps[0].loop.until: any_of: the list of conditions is empty; name at least one",
        ],
    ),
    "empty any_of": (
        LOOP + "      until: {any_of: []}\n",
        [
            "7:23: steps[0].loop.until.any_of: any_of: the list of conditions is empty; name at least one",
        ],
    ),
    "empty all_of in a list": (
        LOOP + "      until: [passed, {all_of: []}]\n",
        [
            "7:32: steps[0].loop.until[1].all_of: all_of: the list of conditions is empty; name at least one",
        ],
    ),
    "until a number": (
        LOOP + "      until: 3\n",
        [
            "7:14: steps[0].loop.until: 3 is not a condition; write one tag with its value",
        ],
    ),
    "bad regex": (
        LOOP + "      until: {output_matches: '('}\n",
        [
            "7:15: steps[0].loop.until.output_matches: pattern '(': missing ) at position 1",
        ],
    ),
    "guards unknown": (
        LOOP + "      guards: [{timout: 3}]\n",
        [
            "7:17: steps[0].loop.guards[0].timout: unknown condition 'timout'; did you mean 'timeout'?",
        ],
    ),
    "guards bad duration": (
        LOOP + "      guards: [{timeout: 3 weeks}]\n",
        [
            "7:17: steps[0].loop.guards[0].timeout: timeout: '3 weeks' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "guards word": (
        LOOP + "      guards: soon\n",
        [
            "7:15: steps[0].loop.guards: unknown condition 'soon'",
        ],
    ),
    "guards sentence": (
        LOOP + "      guards: The text is good enough\n",
        [
            "7:15: steps[0].loop.guards: unknown condition 'The text is good enough'",
        ],
    ),
    "keep": (
        LOOP + "      keep: bset\n",
        [
            "7:13: steps[0].loop.keep: 'bset' is not 'best' or 'last'; did you mean 'best'?",
        ],
    ),
    "min above max": (
        LOOP + "      min_iterations: 5\n      max_iterations: 3\n",
        [
            "7:23: steps[0].loop.min_iterations: min_iterations: 5 is above the limit of 3, which ends the loop first",
        ],
    ),
    "adapt unknown": (
        LOOP + "      adapt: feedbak\n",
        [
            "7:14: steps[0].loop.adapt: 'feedbak' is not 'feedback', 'keep_input' or 'use_output'; did you mean 'feedback'?",
        ],
    ),
    "adapt two": (
        LOOP + "      adapt: {set: 1, rotate: [a]}\n",
        [
            "7:14: steps[0].loop.adapt: needs exactly one of python, rotate, set, merge",
        ],
    ),
    "adapt none": (
        LOOP + "      adapt: {}\n",
        [
            "7:14: steps[0].loop.adapt: needs exactly one of python, rotate, set, merge",
        ],
    ),
    "adapt empty rotate": (
        LOOP + "      adapt: {rotate: []}\n",
        [
            "7:23: steps[0].loop.adapt.rotate: list should have at least 1 item, not 0",
        ],
    ),
    "adapt same strategy twice": (
        LOOP + "      adapt: {rotate: [a, a]}\n",
        [
            "7:23: steps[0].loop.adapt.rotate: rotate: ['a', 'a'] are not strategies to take in turn; give at least one, and each once",
        ],
    ),
    "adapt unknown key": (
        LOOP + "      adapt: {rotat: [a]}\n",
        [
            "7:15: steps[0].loop.adapt.rotat: unknown key 'rotat'; did you mean 'rotate'?",
        ],
    ),
    "adapt no function": (
        LOOP + '      adapt: {python: "steps:longr"}\n',
        [
            "7:23: steps[0].loop.adapt.python: 'steps:longr': steps.py has no 'longr'; did you mean 'longer'?",
        ],
    ),
    "evaluate nothing": (
        LOOP + "      evaluate: {}\n",
        [
            "7:17: steps[0].loop.evaluate: needs one of check, checklist, score, judge, confidence, python",
        ],
    ),
    "evaluate unknown": (
        LOOP + "      evaluate: {chek: {max_words: 3}}\n",
        [
            "7:18: steps[0].loop.evaluate.chek: unknown key 'chek'; did you mean 'check'?",
        ],
    ),
    "check nothing": (
        LOOP + "      evaluate: {check: {}}\n",
        [
            "7:25: steps[0].loop.evaluate.check: needs one of command, schema, python, matches, not_matches, contains, max_words, min_words, max_chars, min_chars",
        ],
    ),
    "check unknown": (
        LOOP + "      evaluate: {check: {max_word: 3}}\n",
        [
            "7:26: steps[0].loop.evaluate.check.max_word: unknown key 'max_word'; did you mean 'max_words'?",
        ],
    ),
    "check negative": (
        LOOP + "      evaluate: {check: {max_words: -3}}\n",
        [
            "7:37: steps[0].loop.evaluate.check.max_words: input should be greater than or equal to 0, not -3",
        ],
    ),
    "check template in command": (
        LOOP + '      evaluate: {check: {command: [test, "{{ value }}"]}}\n',
        [
            "7:35: steps[0].loop.evaluate.check.command: a template inside command text would let a value become a command; pass values by env or stdin",
        ],
    ),
    "check bad regex": (
        LOOP + "      evaluate: {check: {matches: '['}}\n",
        [
            "7:35: steps[0].loop.evaluate.check.matches: pattern '[': unterminated character set at position 1",
        ],
    ),
    "check bad schema": (
        LOOP + "      evaluate: {check: {schema: {type: strin}}}\n",
        [
            "7:34: steps[0].loop.evaluate.check.schema: check: schema: $.type: 'strin' is not valid under any of the given schemas",
        ],
    ),
    "check cwd": (
        LOOP + "      evaluate: {check: {command: [ls], cwd: ../..}}\n",
        [
            "7:46: steps[0].loop.evaluate.check.cwd: '../..' leads out of the project folder",
        ],
    ),
    "checklist empty": (
        LOOP + "      evaluate: {checklist: []}\n",
        [
            "7:29: steps[0].loop.evaluate.checklist: list should have at least 1 item, not 0",
        ],
    ),
    "checklist twice": (
        LOOP + "      evaluate: {checklist: [{name: a, max_words: 3}, {name: a, min_words: 1}]}\n",
        [
            "7:55: steps[0].loop.evaluate.checklist[1]: the checklist has two items named 'a'",
        ],
    ),
    "checklist weight": (
        LOOP + "      evaluate: {checklist: [{name: a, max_words: 3, weight: 0}]}\n",
        [
            "7:62: steps[0].loop.evaluate.checklist[0].weight: input should be greater than 0, not 0",
        ],
    ),
    "score scale": (
        LOOP + "      evaluate: {score: {scale: [1]}}\n",
        [
            "7:33: steps[0].loop.evaluate.score.scale: list should have at least 2 items, not 1",
        ],
    ),
    "score scale reversed": (
        LOOP + "      evaluate: {score: {scale: [10, 0]}}\n",
        [
            "7:25: steps[0].loop.evaluate.score: the scale of a score is (10.0, 0.0), expected two finite numbers, the lower first; write (0, 10) for a score from 0 to 10",
        ],
    ),
    "score bad pattern": (
        LOOP + "      evaluate: {score: {pattern: '('}}\n",
        [
            "7:25: steps[0].loop.evaluate.score: pattern '(': missing ) at position 1",
        ],
    ),
    "score of two kinds": (
        LOOP + "      evaluate: {score: {of: {set: 1, shell: [ls]}}}\n",
        [
            "7:30: steps[0].loop.evaluate.score.of: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, memory, tool, set, and has shell and set",
        ],
    ),
    "score tests template": (
        LOOP + '      evaluate: {score: {tests: "pytest {{ value }}"}}\n',
        [
            "7:33: steps[0].loop.evaluate.score.tests: a template inside command text would let a value become a command; pass values by env or stdin",
        ],
    ),
    "judge without criteria": (
        LOOP + '      evaluate: {judge: {model: "openai:x"}}\n',
        [
            "7:25: steps[0].loop.evaluate.judge: a judge needs one of criterion, criteria and preset, and has none",
        ],
    ),
    "judge without a model": (
        LOOP + "      evaluate: {judge: It is good}\n",
        [
            "7:25: steps[0].loop.evaluate.judge: no model is named; give model: provider:model here, in the document, or with --model",
        ],
    ),
    "judge votes": (
        LOOP
        + '      evaluate: {judge: {criterion: It is good, model: "openai:x", max_votes: 16}}\n',
        [
            "7:79: steps[0].loop.evaluate.judge.max_votes: input should be less than or equal to 15, not 16",
        ],
    ),
    "judge lead": (
        LOOP
        + '      evaluate: {judge: {criterion: It is good, model: "openai:x", max_votes: 1, accept_lead: 3}}\n',
        [
            "7:25: steps[0].loop.evaluate.judge: votes: a lead of 3 needs at least as many votes, not 1; raise max_votes or lower the lead",
        ],
    ),
    "judge style": (
        LOOP + '      evaluate: {judge: {criterion: It is good, model: "openai:x", style: yes}}\n',
        [
            "7:75: steps[0].loop.evaluate.judge.style: 'yes' is not 'structured' or 'yes_no'; did you mean 'yes_no'?",
        ],
    ),
    "evaluate python": (
        LOOP + '      evaluate: {python: "steps:rat"}\n',
        [
            "7:26: steps[0].loop.evaluate.python: 'steps:rat': steps.py has no 'rat'; did you mean 'rate'?",
        ],
    ),
    "evaluate list": (
        LOOP + "      evaluate: [{check: {max_words: 3}}, {judgee: x}]\n",
        [
            "7:44: steps[0].loop.evaluate[1].judgee: unknown key 'judgee'; did you mean 'judge'?",
        ],
    ),
    "sentence without a model": (
        LOOP + "      until: It is as good as it can be\n",
        [
            "7:14: steps[0].loop.until: no model is named; give model: provider:model here, in the document, or with --model",
        ],
    ),
    "inner loop wrong": (
        HEAD
        + "  - name: a\n    loop:\n      execute:\n        loop:\n          execute: {set: 1}\n          until: [{max_iterations: -1}]\n",
        [
            "8:11: steps[0].loop.execute.loop.min_iterations: min_iterations: 1 is above the limit of -1, which ends the loop first",
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
            "2:7: name: '9' is not a name; use letters, digits, _, - and spaces, a letter first",
            "3:1: modle: unknown key 'modle'; did you mean 'model'?",
            "5:15: steps[0].sett: unknown key 'sett'; did you mean 'set'?",
            "6:37: steps[1].timeout: '1 year' is not a duration; write seconds, or text like 30s or 5m",
        ],
    ),
    "many at once after reading": (
        HEAD
        + '  - {name: a, set: "{{ one }}"}\n  - {name: a, shell: ["{{ x }}"]}\n  - {name: c, python: "steps:nothing", needs: [z]}\n',
        [
            "4:20: steps[0].set: template: nothing supplies 'one'; known here: input",
            "5:12: steps[1].name: 'a' is already a step, on line 4",
            "6:23: steps[2].python: 'steps:nothing': steps.py has no 'nothing'",
            "6:48: steps[2].needs[0]: there is no step 'z'",
        ],
    ),
    "addresses that cannot be": (
        "schema: loopwright/1\nname: x\nmodel_url: 'http://localhost[[]]:1/v1'\n"
        "steps:\n  - {name: a, prompt: x, model: 'openai:a', model_url: localhost}\n",
        [
            "3:12: model_url: 'http://localhost[[]]:1/v1' is no http or https address; write one such as "
            "http://localhost:1234/v1",
            "5:56: steps[0].model_url: 'localhost' is no http or https address; write one such as "
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
            "temperature, max_tokens, model_url and 43 more (see loopwright schema)",
        ],
    ),
    "a name like no other of many": (
        HEAD
        + "".join(f"  - {{name: step_number_{i}, set: 1}}\n" for i in range(30))
        + "  - {name: a, set: '{{ zzqx }}'}\n",
        [
            "34:20: steps[30].set: template: nothing supplies 'zzqx'; known here: input, "
            "step_number_0, step_number_1, step_number_10 and 27 more (steps and variables)",
        ],
    ),
}
