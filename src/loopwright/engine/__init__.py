"""The engine: steps, loops, workflows and runs, with their budgets and deadlines.

- `step` defines steps, `functions` makes functions and objects of users steps, `composites`, `lists` and `workflow`
  combine steps.
- `loop` runs a loop and decides when it stops; `loop_options` has what it declares, `iteration` is one iteration,
  `candidates` makes several outputs in one and chooses, `metrics` orders iterations, `adapters` make the next input,
  `loop_memory` adds lessons.
- `files` captures and puts back the outside state of a loop, `workspace_loop` runs a loop with one.
- `run` starts and resumes runs, `run_record` opens them in the journal and has the results of runs that end outside
  their root step, `run_state` is the state of a run in this process. `change_limits` changes the limits of a recorded run,
  `steering` has hints and holds of people, `waiting` waits for what is outside of the run,
  `fork` begins a run with the results of another one, `streaming` iterates over the events of a run.
- `context` is the place of a step in a run, `effects` performs, records and replays its calls.
- `budgets` and `deadlines` limit all of them.
"""
