"""Wrong loops: conditions, limits, guards and ways to adapt."""

from __future__ import annotations

from documents.wrong_heads import HEAD, LOOP, Wrong

CHECKED = "      evaluate: {check: {max_words: 3}}\n"

LOOPS: Wrong = {
    "candidates number": (
        LOOP + CHECKED + "      candidates: 0\n",
        [
            "8:19: steps[0].loop.candidates: input should be greater than or equal to 1, not 0",
        ],
    ),
    "candidates pick": (
        LOOP + CHECKED + "      candidates: {n: 2, pick: best}\n",
        [
            "8:32: steps[0].loop.candidates.pick: 'best' is not 'score', 'duel', 'first_pass', 'combine' or 'ask'",
        ],
    ),
    "candidates key of another pick": (
        LOOP + CHECKED + "      candidates: {n: 2, combine: {set: a}}\n",
        [
            "8:19: steps[0].loop.candidates: combine is a key of pick: combine; write that too",
        ],
    ),
    "candidates duel without a judge": (
        LOOP + CHECKED + "      candidates: {n: 2, pick: duel}\n",
        [
            "8:19: steps[0].loop.candidates: pick: duel needs the key judge",
        ],
    ),
    "candidates condition": (
        LOOP + CHECKED + "      candidates: {n: 2, stop_rest: {max_iterations: 2}}\n",
        [
            "8:19: steps[0].loop.candidates: candidates: stop_rest: MaxIterations(limit=2) is not a condition of success, such as passed",
        ],
    ),
    "candidates min_ok": (
        LOOP + CHECKED + "      candidates: {n: 2, min_ok: 3}\n",
        [
            "8:19: steps[0].loop.candidates: candidates: min_ok: 3 is above the 2 candidates of an iteration",
        ],
    ),
    "candidates in one folder": (
        LOOP + CHECKED + "      candidates: 2\n      workspace: here\n",
        [
            "8:19: steps[0].loop.candidates: loop a: candidates: 2 candidates cannot edit one folder; use a workspace of the kind copy",
        ],
    ),
    "impossible key": (
        LOOP + CHECKED + "      impossible: {flor: 3}\n",
        [
            "8:20: steps[0].loop.impossible.flor: unknown key 'flor'; did you mean 'floor'?",
        ],
    ),
    "impossible floor": (
        LOOP + CHECKED + "      impossible: {floor: 0}\n",
        [
            "8:27: steps[0].loop.impossible.floor: input should be greater than or equal to 1, not 0",
        ],
    ),
    "impossible looks": (
        LOOP + CHECKED + "      impossible: {looks: 1}\n",
        [
            "8:27: steps[0].loop.impossible.looks: input should be greater than or equal to 2, not 1",
        ],
    ),
    "impossible no mapping": (
        LOOP + CHECKED + "      impossible: 5\n",
        [
            "8:19: steps[0].loop.impossible: expected a mapping, not 5",
        ],
    ),
    "stall word": (
        LOOP + CHECKED + "      on_stall: later\n",
        [
            "8:17: steps[0].loop.on_stall: 'later' is not 'best', 'last', 'fresh', 'ask' or 'stop'; did you mean 'last'?",
        ],
    ),
    "strategies without a stall": (
        LOOP + CHECKED + "      strategies: {a: 1}\n",
        [
            "8:19: steps[0].loop.strategies: loop a: strategies: each new chain takes the next one, and only a stall begins a chain; add on_stall",
        ],
    ),
    "drawn parents with a new chain": (
        LOOP + CHECKED + "      on_stall: fresh\n      refine_from: sample\n",
        [
            "8:17: steps[0].loop.on_stall: loop a: on_stall: refine_from: sample draws from all chains, so then: fresh cannot say where one begins; use ask or stop",
        ],
    ),
    "pareto of one value": (
        LOOP + CHECKED + "      refine_from: pareto\n",
        [
            "8:20: steps[0].loop.refine_from: loop a: refine_from: pareto needs several values of an iteration; use a data set as evaluator, or several objectives",
        ],
    ),
    "power of another rule": (
        LOOP + CHECKED + "      refine_from: {rule: best, power: 2}\n",
        [
            "8:20: steps[0].loop.refine_from: refine_from: power is of the rule sample, and the rule is best; remove it",
        ],
    ),
    "patience of the loop before that of a stall": (
        LOOP
        + CHECKED
        + "      on_stall: {patience: 3}\n      until: [passed, {no_improvement: {patience: 3}}]\n",
        [
            "9:14: steps[0].loop.until: loop a: until: no_improvement: a patience of 3 ends the loop before on_stall has an effect, after 3 iterations; use more than 3",
        ],
    ),
    "former key of a workspace": (
        LOOP + CHECKED + "      workspace: {refine_from: accepted}\n",
        [
            "8:19: steps[0].loop.workspace.refine_from: is a key of the loop now, not of the workspace; write refine_from: best in the loop",
        ],
    ),
    "undecided key": (
        LOOP + CHECKED + "      undecided: {aftr: 2}\n",
        [
            "8:19: steps[0].loop.undecided.aftr: unknown key 'aftr'; did you mean 'after'?",
        ],
    ),
    "undecided then": (
        LOOP + CHECKED + "      undecided: {then: paus}\n",
        [
            "8:25: steps[0].loop.undecided.then: 'paus' is not 'fail', 'pause', 'accept_check' or 'reject'; did you mean 'pause'?",
        ],
    ),
    "undecided after": (
        LOOP + CHECKED + "      undecided: {after: 0}\n",
        [
            "8:26: steps[0].loop.undecided.after: input should be greater than or equal to 1, not 0",
        ],
    ),
    "undecided without a judge": (
        LOOP + CHECKED + "      undecided: {then: accept_check}\n",
        [
            "8:18: steps[0].loop.undecided: loop: undecided: accept_check needs a deterministic evaluator and a judge. Use a list with a check and a judge, or then: reject.",
        ],
    ),
    "explore above 1": (
        LOOP + CHECKED + "      explore: 2\n",
        [
            "8:16: steps[0].loop.explore: input should be less than or equal to 1, not 2",
        ],
    ),
    "explore not a number": (
        LOOP + CHECKED + "      explore: .nan\n",
        [
            "8:16: steps[0].loop.explore: .nan is not a finite number; put quotes around it if it is text",
        ],
    ),
    "explore with an approval": (
        LOOP + CHECKED + "      approve: iteration\n      explore: 0.1\n",
        [
            "9:16: steps[0].loop.explore: loop a: explore: a loop that asks a person cannot explore, because the answer "
            "would have no effect. Remove approve, or explore.",
        ],
    ),
    "sigma of past runs": (
        LOOP + CHECKED + "      until: [passed, {degrading: {sigma: pst}}, {max_iterations: 3}]\n",
        [
            "8:24: steps[0].loop.until[1].degrading: degrading: sigma: 'pst' is not a number; did you mean 'past'?",
        ],
    ),
    "sigma below 0": (
        LOOP + CHECKED + "      until: [passed, {degrading: {sigma: -1}}, {max_iterations: 3}]\n",
        [
            "8:24: steps[0].loop.until[1].degrading: degrading: sigma: -1 is out of range; give a number at least 0",
        ],
    ),
    "the first of what a loop executes": (
        HEAD
        + "  - {name: a, loop: {max_iterations: 1, execute: {steps: [{name: b, set: 1}], output: first}}}\n",
        [
            "4:87: steps[0].loop.execute.output: the output of this group is all or last, not 'first'",
        ],
    ),
    "accept beside required": (
        HEAD
        + "  - {name: a, required: true, accept: [exhausted], loop: {execute: {set: 1}, max_iterations: 1}}\n",
        [
            "4:39: steps[0].accept: step: required and accept: exhausted contradict each other; "
            "remove one of the two",
        ],
    ),
    "accept of what is no loop": (
        HEAD + "  - {name: a, accept: failed, set: 1}\n",
        [
            "4:15: steps[0].accept: accept applies to loops and to steps that contain loops, not to set",
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
            "7:24: steps[0].loop.until[1].max_iterations: max_iterations: 1001 is above the ceiling of 1000; use at most 1000",
        ],
    ),
    "limit zero": (
        LOOP + "      until: {max_iterations: 0}\n",
        [
            "7:15: steps[0].loop.until.max_iterations: max_iterations: limit: 0 is too small; give at least 1",
        ],
    ),
    "limit a float": (
        LOOP + "      until: {max_iterations: 2.5}\n",
        [
            "7:15: steps[0].loop.until.max_iterations: max_iterations: limit: 2.5 is not an integer",
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
            "7:14: steps[0].loop.until: any_of: the list of conditions is empty; add at least one",
        ],
    ),
    "empty any_of": (
        LOOP + "      until: {any_of: []}\n",
        [
            "7:23: steps[0].loop.until.any_of: any_of: the list of conditions is empty; add at least one",
        ],
    ),
    "empty all_of in a list": (
        LOOP + "      until: [passed, {all_of: []}]\n",
        [
            "7:32: steps[0].loop.until[1].all_of: all_of: the list of conditions is empty; add at least one",
        ],
    ),
    "until a number": (
        LOOP + "      until: 3\n",
        [
            "7:14: steps[0].loop.until: 3 is not a condition; use one tag with its value",
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
            "7:15: steps[0].loop.guards: a sentence is asked after an iteration, and guards are checked before each step; move it to until",
        ],
    ),
    "keep": (
        LOOP + "      keep: bset\n",
        [
            "7:13: steps[0].loop.keep: 'bset' is not 'best' or 'last'; did you mean 'best'?",
        ],
    ),
    "until is true": (
        LOOP + "      until: true\n",
        ["7:14: steps[0].loop.until: true is not a condition; use one tag with its value"],
    ),
    "keep is a list": (
        LOOP + "      keep: [best, true]\n",
        ["7:13: steps[0].loop.keep: ['best', true] is not 'best' or 'last'"],
    ),
    "limit is true": (
        LOOP + "      until: [passed, {max_iterations: true}]\n      min_iterations: 2\n",
        [
            "7:24: steps[0].loop.until[1].max_iterations: max_iterations: limit: true is not an integer",
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
            "7:23: steps[0].loop.adapt.rotate: rotate: ['a', 'a']: use at least one strategy, and each only once",
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
}
