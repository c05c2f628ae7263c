"""Wrong evaluations: checks, checklists, scores and judges."""

from __future__ import annotations

from documents.wrong_heads import LOOP, Wrong

EVALUATIONS: Wrong = {
    "judge impossible": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', impossible: maybe}}\n",
        [
            "7:80: steps[0].loop.evaluate.judge.impossible: expected true or false, not 'maybe'",
        ],
    ),
    "judge measured key": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', mesured: m.json}}\n",
        [
            "7:68: steps[0].loop.evaluate.judge.mesured: unknown key 'mesured'; did you mean 'measured'?",
        ],
    ),
    "judge measured file": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', measured: none.json}}\n",
        [
            "7:78: steps[0].loop.evaluate.judge.measured: none.json: cannot be read: No such file or directory",
        ],
    ),
    "judge alpha": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', measured: m.json, alpha: 2}}\n",
        [
            "7:93: steps[0].loop.evaluate.judge.alpha: input should be less than 1, not 2",
        ],
    ),
    "judge alpha key": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', measured: m.json, alhpa: 0.05}}\n",
        [
            "7:86: steps[0].loop.evaluate.judge.alhpa: unknown key 'alhpa'; did you mean 'alpha'?",
        ],
    ),
    "judge alpha without a measurement": (
        LOOP + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', alpha: 0.05}}\n",
        [
            "7:75: steps[0].loop.evaluate.judge.alpha: alpha needs measured, the report of measure judge",
        ],
    ),
    "judge leads beside a measurement": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', measured: m.json, accept_lead: 2}}\n",
        [
            "7:78: steps[0].loop.evaluate.judge.measured: measured decides the leads; remove accept_lead, reject_lead and confirm",
        ],
    ),
    "judge accept_unattainable": (
        LOOP
        + "      evaluate: {judge: {criterion: It is good, model: 'openai:x', measured: m.json, accept_unattainable: maybe}}\n",
        [
            "7:107: steps[0].loop.evaluate.judge.accept_unattainable: expected true or false, not 'maybe'",
        ],
    ),
    "metric sealed": (
        LOOP
        + "      evaluate: {metric: {name: loss, command: 'echo 1', pattern: '(.*)', sealed: maybe}}\n",
        [
            "7:83: steps[0].loop.evaluate.metric.sealed: expected true or false, not 'maybe'",
        ],
    ),
    "metric sealed key": (
        LOOP
        + "      evaluate: {metric: {name: loss, command: 'echo 1', pattern: '(.*)', seald: true}}\n",
        [
            "7:75: steps[0].loop.evaluate.metric.seald: unknown key 'seald'; did you mean 'sealed'?",
        ],
    ),
    "metric protect": (
        LOOP
        + "      evaluate: {metric: {name: loss, command: 'echo 1', pattern: '(.*)', sealed: true, protect: 5}}\n",
        [
            "7:98: steps[0].loop.evaluate.metric.protect: expected a list, not 5",
        ],
    ),
    "metric protect without a seal": (
        LOOP
        + "      evaluate: {metric: {name: loss, command: 'echo 1', pattern: '(.*)', protect: [a]}}\n",
        [
            "7:26: steps[0].loop.evaluate.metric: protect needs sealed: true",
        ],
    ),
    "metric protect outside": (
        LOOP
        + "      evaluate: {metric: {name: loss, command: 'echo 1', pattern: '(.*)', sealed: true, protect: [../x]}}\n",
        [
            "7:26: steps[0].loop.evaluate.metric: metric loss: protect: '../x' is not a path inside the workspace, or a pattern of one",
        ],
    ),
    "evaluate nothing": (
        LOOP + "      evaluate: {}\n",
        [
            "7:17: steps[0].loop.evaluate: needs one of check, checklist, score, tests, metric, judge, confidence, python, dataset",
        ],
    ),
    "evaluate graded": (
        LOOP + "      evaluate: {graded: true}\n",
        [
            "7:17: steps[0].loop.evaluate: needs one of check, checklist, score, tests, metric, judge, confidence, python, dataset",
        ],
    ),
    "judge of": (
        LOOP + "      evaluate: {judge: {criterion: x, of: change}}\n",
        [
            "7:44: steps[0].loop.evaluate.judge.of: 'change' is not 'output' or 'changes'; did you mean 'changes'?",
        ],
    ),
    "tests sandbox": (
        LOOP + "      evaluate: {tests: {command: pytest, sandbox: {mod: auto}}}\n",
        [
            "7:53: steps[0].loop.evaluate.tests.sandbox.mod: unknown key 'mod'; did you mean 'mode'?",
        ],
    ),
    "tests on_tamper": (
        LOOP + "      evaluate: {tests: {command: pytest, on_tamper: putback}}\n",
        [
            "7:54: steps[0].loop.evaluate.tests.on_tamper: 'putback' is not 'put_back', 'reject' or 'stop'; did you mean 'put_back'?",
        ],
    ),
    "tests held_out": (
        LOOP + "      evaluate: {tests: {command: 'true', held_out: hidden}}\n",
        [
            "7:25: steps[0].loop.evaluate.tests: tests: held_out needs a sealed check with a report; name a test program, or its report",
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
            "7:25: steps[0].loop.evaluate.check: needs one of command, schema, python, matches, not_matches, contains, max_words, min_words, max_chars, min_chars, max_seconds, max_usd",
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
            "7:42: steps[0].loop.evaluate.check.command[1]: commands cannot contain template values; pass values through env or stdin",
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
            "7:46: steps[0].loop.evaluate.check.cwd: '../..' is outside the project folder",
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
            "7:30: steps[0].loop.evaluate.score.of: needs exactly one of python, shell, workflow, loop, each, steps, parallel, fallback, prompt, consensus, phased, reasoning, agent, gepa, memory, tool, wait, set, but has shell and set",
        ],
    ),
    "score tests template": (
        LOOP + '      evaluate: {score: {tests: "pytest {{ value }}"}}\n',
        [
            "7:33: steps[0].loop.evaluate.score.tests: commands cannot contain template values; pass values through env or stdin",
        ],
    ),
    "judge without criteria": (
        LOOP + '      evaluate: {judge: {model: "openai:x"}}\n',
        [
            "7:25: steps[0].loop.evaluate.judge: a judge needs one of criterion, criteria and preset, but has none",
        ],
    ),
    "judge without a model": (
        LOOP + "      evaluate: {judge: It is good}\n",
        [
            "7:25: steps[0].loop.evaluate.judge: no model is set; set model: provider:model here or in the document, use --model, or set LOOPWRIGHT_MODEL in the environment",
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
            "7:25: steps[0].loop.evaluate.judge: votes: a lead of 3 needs at least as many votes, not 1. Raise max_votes or lower the lead.",
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
            "7:14: steps[0].loop.until: no model is set; set model: provider:model here or in the document, use --model, or set LOOPWRIGHT_MODEL in the environment",
        ],
    ),
}
