"""The engine: steps, loops, workflows and runs, with their budgets and deadlines.

- `step` defines steps, `fingerprints` their identity, `composites` and `workflow` combine them.
- `loop` declares a loop and decides, `loop_run` runs it, `loop_attempt` is one iteration while it runs.
- `loop_evaluations` evaluates the input before the first iteration and the output at the end,
  `workspace_loop` captures and puts back the files of a loop.
- `run` starts and resumes runs, `run_record` checks their options and opens them in the journal, `run_results` has the
  results of runs that end outside their root step, `run_state` is the state of a run in this process.
- `context` is the place of a step in a run, `effects` performs, records and replays its calls.
- `budget` and `deadlines` limit all of them.
"""
