"""The engine: one step, one loop, one workflow, one run, and what they may spend.

`loop` declares a loop and decides, `loop_run` runs it, `run` starts and resumes a run, `context` is what a step
sees, `effects` is the protocol of one effect.
"""
