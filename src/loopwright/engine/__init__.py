"""The engine: steps, loops, workflows and runs, with their budgets and deadlines.

- `step` defines steps, `functions` the signatures and identities of users' functions, `composites`, `lists` and `workflow` combine steps.
- `loop` declares a loop, runs it and decides when it stops, `iteration` is one iteration, `loop_options` has the options and their checks,
  `metrics` orders iterations, `workspace_loop` captures and puts back the files of a loop.
- `run` starts and resumes runs, `run_record` opens them in the journal and has the results of runs that end outside their
  root step, `run_state` is the state of a run in this process.
- `context` is the place of a step in a run, `effects` performs, records and replays its calls.
- `budgets` and `deadlines` limit all of them.
"""
