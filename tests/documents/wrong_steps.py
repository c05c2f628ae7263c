"""Wrong steps: their settings, their templates and their commands."""

from __future__ import annotations

from documents.wrong_heads import HEAD, Wrong

STEPS: Wrong = {
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
    "a comma in a text between brackets": (
        HEAD + "  - {name: a, loop: {execute: {set: 1}, evaluate: {judge: who, and by when}}}\n",
        [
            "4:64: steps[0].loop.evaluate['and by when']: unknown key 'and by when'; "
            "put quotes around a text that contains a comma",
        ],
    ),
    "what others call a pattern": (
        HEAD + "  - {name: a, loop: {execute: {set: 1}, evaluate: {check: {regex: x}}}}\n",
        [
            "4:60: steps[0].loop.evaluate.check.regex: unknown key 'regex'; use 'matches' instead",
        ],
    ),
    "steps that are nothing": (
        "schema: loopwright/1\nname: x\nsteps:\n",
        [
            "3:7: steps: expected a list, not nothing",
        ],
    ),
    "a field that no loop has": (
        HEAD + "  - {name: a, loop: {execute: {set: 'x {{ loop.passed }}'}}}\n",
        [
            "4:43: steps[0].loop.execute.set: template: 'loop.passed' is not defined; "
            "did you mean 'loop.last.passed'?",
        ],
    ),
    "nearly a field of an item": (
        HEAD + "  - {name: a, each: {items: [1], execute: {set: '{{ loop.curent }}'}}}\n",
        [
            "4:53: steps[0].each.execute.set: template: 'loop.curent' is not defined; "
            "did you mean 'loop.current'?",
        ],
    ),
    "an unknown tool": (
        HEAD + "  - {name: a, tool: nope}\n",
        [
            "4:21: steps[0].tool: there is no tool or server 'nope'; declare it in tools:",
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
            "4:55: steps[0].max_retries: expected an integer, not 'many'",
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
            "4:27: steps[0].if: expected text, not [1]",
        ],
    ),
    "if not an expression": (
        HEAD + '  - {name: a, set: 1, if: "a b"}\n',
        [
            "4:30: steps[0].if: template: unexpected 'b'",
        ],
    ),
    "if unknown name": (
        HEAD + '  - {name: alpha, set: 1}\n  - {name: b, set: 1, if: "alhpa == 1"}\n',
        [
            "5:28: steps[1].if: template: 'alhpa' is not defined; did you mean 'alpha'?",
        ],
    ),
    "unknown name in a template": (
        HEAD + '  - {name: draft, set: 1}\n  - {name: b, set: "{{ drfat }}"}\n',
        [
            "5:24: steps[1].set: template: 'drfat' is not defined; did you mean 'draft'?",
        ],
    ),
    "later name in a template": (
        HEAD + '  - {name: a, set: "{{ b }}"}\n  - {name: b, set: 1}\n',
        [
            "4:24: steps[0].set: template: 'b' is not defined; known here: input; to set it, use --set b=…",
        ],
    ),
    "itself in a template": (
        HEAD + '  - {name: a, set: "{{ a }}"}\n',
        [
            "4:24: steps[0].set: template: 'a' is not defined; known here: input; to set it, use --set a=…",
        ],
    ),
    "unclosed template": (
        HEAD + '  - {name: a, set: "{{ input"}\n',
        [
            "4:21: steps[0].set: template: {{ is not closed; close it with }}",
        ],
    ),
    "unknown tag": (
        HEAD + '  - {name: a, set: "{% fro a in input %}"}\n',
        [
            "4:24: steps[0].set: template: unknown tag 'fro'; did you mean 'for'?",
        ],
    ),
    "unknown filter": (
        HEAD + '  - {name: a, set: "{{ input | uper }}"}\n',
        [
            "4:32: steps[0].set: template: there is no filter 'uper'; did you mean 'upper'?",
        ],
    ),
    "loop outside": (
        HEAD + '  - {name: a, set: "{{ loop.iteration }}"}\n',
        [
            "4:24: steps[0].set: template: 'loop' is not defined; no loop contains this step or ends before it",
        ],
    ),
    "two unknown names": (
        HEAD + '  - {name: a, set: ["{{ one }}", {k: "{{ two }}"}]}\n',
        [
            "4:25: steps[0].set[0]: template: 'one' is not defined; known here: input; to set it, use --set one=…",
            "4:42: steps[0].set[1].k: template: 'two' is not defined; known here: input; to set it, use --set two=…",
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
            "4:29: steps[0].shell[1]: commands cannot contain template values; pass values through env or stdin",
        ],
    ),
    "template in a script": (
        HEAD + '  - {name: a, shell: "echo {{ input }}"}\n',
        [
            "4:22: steps[0].shell: commands cannot contain template values; pass values through env or stdin",
        ],
    ),
    "tag in a script": (
        HEAD + '  - {name: a, shell: "echo {% if a %}"}\n',
        [
            "4:22: steps[0].shell: commands cannot contain template values; pass values through env or stdin",
        ],
    ),
    "empty command": (
        HEAD + "  - {name: a, shell: []}\n",
        [
            "4:22: steps[0].shell: shell: [] is not a command. Use a list of words, or a script as text.",
        ],
    ),
    "empty script": (
        HEAD + '  - {name: a, shell: ""}\n',
        [
            "4:22: steps[0].shell: shell: [] is not a command. Use a list of words, or a script as text.",
        ],
    ),
    "command of numbers": (
        HEAD + "  - {name: a, shell: {a: b}}\n",
        [
            "4:22: steps[0].shell: expected a list or text, not a mapping with the key a",
        ],
    ),
    "cwd up": (
        HEAD + "  - {name: a, shell: [ls], cwd: ../..}\n",
        [
            "4:33: steps[0].cwd: '../..' is outside the project folder",
        ],
    ),
    "cwd absolute": (
        HEAD + "  - {name: a, shell: [ls], cwd: /etc}\n",
        [
            "4:33: steps[0].cwd: '/etc' is outside the project folder",
        ],
    ),
    "shell output": (
        HEAD + "  - {name: a, shell: [ls], output: jason}\n",
        [
            "4:36: steps[0].output: the output of a command is text, json or result, not 'jason'",
        ],
    ),
    "shell output a number": (
        HEAD + "  - {name: a, shell: [ls], output: 3}\n",
        [
            "4:36: steps[0].output: the output of a command is text, json or result, not 3",
        ],
    ),
    "env unknown name": (
        HEAD + '  - {name: a, shell: [ls], env: {A: "{{ nobody }}"}}\n',
        [
            "4:41: steps[0].env.A: template: 'nobody' is not defined; known here: input; to set it, use --set nobody=…",
        ],
    ),
    "stdin unknown name": (
        HEAD + '  - {name: a, shell: [ls], stdin: "{{ nobody }}"}\n',
        [
            "4:39: steps[0].stdin: template: 'nobody' is not defined; known here: input; to set it, use --set nobody=…",
        ],
    ),
    "env a list": (
        HEAD + "  - {name: a, shell: [ls], env: [A]}\n",
        [
            "4:33: steps[0].env: expected a mapping, not ['A']",
        ],
    ),
}
