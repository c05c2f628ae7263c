"""The codes of the warnings of a run and of the notes of `loopwright check`, each with its cause and its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["NOTES", "WARNINGS"]

# By code: the cause and the remedy. The reference is generated from this table.
WARNINGS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "no_goal": (
        "The evaluator returns scores only, and no condition names a sufficient score.",
        "Add `ScoreAtLeast(0.8)` to `until`, or return a verdict.",
    ),
    "unattainable": (
        "The measured judge cannot keep the share of false accepts, and the document has `accept_unattainable: true`.",
        "Use a second judge, a checklist, or a deterministic check.",
    ),
    "unjudged": (
        "The judge could not decide, and the loop has `undecided: {then: accept_check}`.",
        "Check the output yourself, and repair the judge: its feedback names the cause.",
    ),
    "limit_unreachable": (
        "A condition needs more iterations than the loop can run.",
        "Raise the limit of iterations, or lower `min_iterations` of the condition.",
    ),
    "budget_cannot_bind": (
        "A budget limits calls, tokens or dollars, and no step in it reports usage.",
        "Call `ctx.spend(Usage(...))`, declare `usage:` for the command, or limit `effects`.",
    ),
    "overshoot": (
        "A call cost more than the budget had left, because its cost was not reserved.",
        "State the maximum cost: `step(function, reserve=Usage(usd=0.02))`.",
    ),
    "unreported_usage": (
        "A command should report its usage and does not, or an object of another library cannot report it.",
        "Write JSON to the path in `$LOOPWRIGHT_USAGE`, or give `reserve=Usage(...)` to `as_step` or `as_evaluator`.",
    ),
    "adapter_broken": (
        "The entry point of an adapter for another library cannot be loaded.",
        "Update or uninstall the package that the warning names.",
    ),
    "budget_too_small": (
        "A phase's share of the token budget is smaller than one reply.",
        "Raise `token_budget` or lower `max_tokens`.",
    ),
    "repaired_reply": (
        "A reply was not exactly in the form that the prompt asks for, and was read after small corrections.",
        "Nothing, if the value is correct. `strict=True` asks the model again instead.",
    ),
    "unknown_fields": (
        "An evaluator returned an object without a score and a verdict, whose field has almost the name of one.",
        "Correct the name of the field.",
    ),
    "flaky_tests": (
        "A check had different results in two runs on the unchanged files.",
        "Repair the tests that the warning names. They do not count until then.",
    ),
    "not_held_out": (
        "The held-out tests could not run at the end of the loop.",
        "Run them yourself on the files of the result. The warning has the cause.",
    ),
    "check_without_canaries": (
        "The test program does not run tests that are added beside the others, so a forged report may not be noticed.",
        "Let the command run a folder, and leave out options that select tests or stop at the first failure.",
    ),
    "outside_edit": (
        "The files of a workspace were changed outside the run.",
        "Nothing, if the changes are yours: the next iteration continues from them.",
    ),
    "secrets_in_files": (
        "A file that a loop changed has a key. With `secrets: drop` the file was left out of the branch or patch.",
        "Remove the key from the file, and replace the key if the branch was shared.",
    ),
    "agent_limit": (
        "A coding agent reached `max_turns` or `max_usd`. Its work so far was kept.",
        "Raise the limit, or split the task.",
    ),
    "no_sandbox": (
        "A command with `sandbox: auto` ran without one, because bubblewrap does not work on this machine.",
        "Install bubblewrap (`apt install bubblewrap`), or choose `sandbox: none`. `loopwright agents` says why it does not work.",
    ),
    "session_gone": (
        "A coding agent did not find the session that it was to continue. It began a new one.",
        "Nothing, unless it happens in every run: then check the folder in which the program keeps its state.",
    ),
    "lines_omitted": (
        "A coding agent printed a line of more than 16 MiB, which was not read.",
        "Nothing, if the result is correct.",
    ),
    "untested_version": (
        "The installed version of a coding agent was not tested with this version of Loopwright.",
        "Check the result, or install a tested version.",
    ),
    "blocking_event_loop": (
        "A step held the event loop past its deadline, or `run_sync` was called inside a running event loop.",
        "Await the slow call, or make the step a plain function. Instead of `run_sync`, use `await run(...)`.",
    ),
    "hook_failed": (
        "`on_iteration` or `on_terminate` raised an exception. The run continued.",
        "Correct the function.",
    ),
    "listener_failed": (
        "A listener raised an exception. The run continued.",
        "Correct the listener.",
    ),
    "condition_not_applicable": (
        "No evaluation had the field that a success condition reads, so the condition could not hold.",
        "Return this field from the evaluator, or use another condition.",
    ),
    "untyped_output": (
        "A step without a return annotation returned a dataclass or a model, which the next step receives as a `dict`.",
        "Add the return annotation.",
    ),
    "annotation_unreadable": (
        "An annotation names an unknown class, or a class without a JSON form. It is ignored.",
        "Import the class, or use one of the types in [typed steps](../guide/typed-steps.md#types-that-you-can-use).",
    ),
    "rejudge_failed": (
        "`rejudge` could not judge the final output again. The result has the score of the iteration.",
        "Read the cause in the warning.",
    ),
    "no_journal": (
        "A step asked a person a question, and the run has no journal for the answer.",
        "Pass `journal='sqlite:.loopwright/runs.db'`.",
    ),
    "processes_left": (
        "Processes of an earlier attempt of the run could not be ended.",
        "End the processes that the warning names.",
    ),
    "memory_damaged": (
        "Entries of a memory do not match their checksums and were left out.",
        "Restore the database from a copy if you need them.",
    ),
    "memory_unavailable": (
        "The memory of a loop could not be read or written. The run continued without it.",
        "Correct the cause that the warning names, such as a full disk.",
    ),
    "setting_ignored": (
        "The endpoint of a model does not support a setting, so it was left out.",
        "Remove the setting, or use another model.",
    ),
    "address_changed": (
        "`model_url` or `base_url` was changed to the base address of the API.",
        "Write the address that the warning names.",
    ),
    "cut_off": (
        "A reply reached `max_tokens`, and `on_cutoff: accept` keeps the cut text.",
        "Raise `max_tokens` if you need the complete text.",
    ),
    "text_shortened": (
        "A value was too long for a prompt and was cut.",
        "Pass a shorter value, or raise the limit of characters.",
    ),
    "invalid_utf8": (
        "A reply or the output of a command is not valid UTF-8. The invalid bytes were replaced by U+FFFD.",
        "Correct the encoding at the source.",
    ),
    "output_shortened": (
        "The output of a command exceeded `max_output`. The rest was left out.",
        "Raise `max_output`, or write a file.",
    ),
    "transcript_failed": (
        "The transcript of model calls could not be written. The run continued.",
        "Check the path and the free space.",
    ),
    "fewer_tests": (
        "Fewer tests ran than in an earlier iteration.",
        "Check that the step did not delete or skip tests.",
    ),
    "judge_accepts_bad_output": (
        "In its self-test, the judge accepted an output that is obviously wrong.",
        "Use a stronger model, a more exact criterion, or a check in code.",
    ),
    "no_criteria": (
        "`rubric` could not derive criteria from the goal, so the goal is the only criterion.",
        "List the criteria.",
    ),
    "criteria_unreadable": (
        "The reply of a judge with a preset could not be read twice. The evaluation is undecided.",
        "Use a larger model, or fewer criteria.",
    ),
    "invalid_confidence": (
        "A phase returned a `confidence` that is not a number from 0 to 1. It is ignored.",
        "Return a number from 0 to 1.",
    ),
    "unknown_phase": (
        "A phase returned a `next_phase` that does not exist. It is ignored.",
        "Return `planning`, `execution` or `refinement`.",
    ),
    "phases_capped": (
        "`max_iterations` of a phased agent is below the sum of its phases.",
        "Leave `max_iterations` out, or set `reserve_refinement`.",
    ),
    "capability_failed": (
        "A hook of a capability raised an exception or returned a value of a wrong type. Its result is ignored.",
        "Correct the hook.",
    ),
    "step_failed": (
        "A step with `on_failure: continue` was not satisfied, and the workflow continued.",
        "Read the cause in the warning. Use `on_failure: halt` to end the workflow instead.",
    ),
    "items_left_out": (
        "A list has more items than `max_items`.",
        "Raise `max_items`.",
    ),
    "voter_failed": (
        "A voter of a consensus failed and does not count.",
        "Read the cause in the warning.",
    ),
    "no_score": (
        "An iteration of a loop node has no score. It is undecided.",
        "Let the agent print its score in the form that the document describes, or set `score_missing: re_ask`.",
    ),
    "undefined_name": (
        "A template of a loop node uses a name without a value. It is left empty.",
        "Correct the name.",
    ),
    "template_failed": (
        "A template of `past_loops_metadata` failed. Its entry is empty.",
        "Correct the template.",
    ),
})  # fmt: skip

# The codes of the notes of `loopwright check` that are not warnings of a run too, in the same form.
NOTES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "accept_ignored": (
        "`accept: failed` has no effect without `on_failure: continue`.",
        "Add `on_failure: continue`, or remove `accept`.",
    ),
    "code_can_decide": (
        "A judge decides a requirement that code can decide, such as a number of words.",
        "Put a `check` before the judge.",
    ),
    "constant_condition": (
        "An `if` is always true or always false.",
        "Compare the output of a step, or remove the `if`.",
    ),
    "dialect_difference": (
        "A key of another dialect has no effect in Loopwright, or another effect than in its own program.",
        "Read the note. In Python, `Settings(strict=True)` turns it into an error.",
    ),
    "document_gone": (
        "A document of a recorded run no longer exists. The run continues with the recorded text.",
        "Nothing, or restore the file.",
    ),
    "exit_code_only": (
        "A sealed check runs a command without a report of its tests: only the protected files and the exit code count.",
        "Name a known test program, or the report of the command with `report`.",
    ),
    "explored_python": (
        "A loop with `explore` executes Python functions, and an explored run calls them after the normal end too.",
        "Nothing, if they do not act outside the run. Otherwise remove `explore`, or give the loop a workspace.",
    ),
    "goal_without_evaluator": (
        "A success condition needs an evaluation, and the loop has no `evaluate`.",
        "Add `evaluate`, or remove the condition.",
    ),
    "keys_joined": (
        "A key occurs twice, and its lists were joined.",
        "Write one list.",
    ),
    "other_output": (
        "A judge or a prompt names a step, but receives the output of another step.",
        "Set `output`, or expose the step and use `loop.steps.NAME`.",
    ),
    "limit_unused": (
        "`limits` has a name that is not a provider, step or tool of the document.",
        "Correct the name, or remove the limit.",
    ),
    "price_unused": (
        "`prices` has a model that the document does not use.",
        "Correct the name of the model, or remove the price.",
    ),
})  # fmt: skip
