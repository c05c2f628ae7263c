"""The names under which runs are traced and measured.

`gen_ai.*` are those of the OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai), spelled out here: they are still in
development, and a library that renames one must not rename ours. `loopwright.*` are our own, for
what the conventions have no word for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Of the conventions: attributes.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
WORKFLOW: Final = "gen_ai.workflow.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
ERROR_TYPE: Final = "error.type"

# Of the conventions: operations, events and metrics.
CHAT: Final = "chat"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
EVALUATION_RESULT: Final = "gen_ai.evaluation.result"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"

# Our own: attributes.
KIND: Final = "loopwright.kind"
RUN_ID: Final = "loopwright.run.id"
RUN_RESUMED: Final = "loopwright.run.resumed"
PATH: Final = "loopwright.path"
LOOP: Final = "loopwright.loop.name"
ITERATIONS: Final = "loopwright.loop.iterations"
BEST_SCORE: Final = "loopwright.loop.best_score"
ITERATION: Final = "loopwright.iteration.number"
SCORE: Final = "loopwright.iteration.score"
PASSED: Final = "loopwright.iteration.passed"
OUTCOME: Final = "loopwright.iteration.outcome"
STATUS: Final = "loopwright.status"
REASON: Final = "loopwright.reason"
DETAIL: Final = "loopwright.detail"
ATTEMPT: Final = "loopwright.attempt"
INTERRUPTED: Final = "loopwright.interrupted"
WAITED: Final = "loopwright.waited_seconds"
CALLS: Final = "loopwright.usage.calls"
USED_INPUT: Final = "loopwright.usage.input_tokens"
USED_OUTPUT: Final = "loopwright.usage.output_tokens"
USD: Final = "loopwright.usage.usd"
UNPRICED: Final = "loopwright.usage.unpriced_calls"
ESTIMATED: Final = "loopwright.usage.estimated_calls"
PURPOSE: Final = "loopwright.purpose"
INPUT: Final = "loopwright.input"
OUTPUT: Final = "loopwright.output"
FEEDBACK: Final = "loopwright.feedback"

# Our own: metrics.
RUNS: Final = "loopwright.runs"
RUN_DURATION: Final = "loopwright.run.duration"
ROUNDS: Final = "loopwright.iterations"
ROUND_DURATION: Final = "loopwright.iteration.duration"
SCORES: Final = "loopwright.score"
COST: Final = "loopwright.cost"

PROVIDERS: Final[Mapping[str, str]] = {"gemini": "gcp.gemini"}
"""Our names of providers that the conventions call otherwise."""
FINISHES: Final[Mapping[str, str]] = {"refused": "content_filter"}
"""Our words for why a reply ended that the conventions call otherwise."""
