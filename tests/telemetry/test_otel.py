"""Telemetry over real OTLP/HTTP to a collector on loopback that reads the protobuf."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from loopwright import Evaluation, Loop, MaxIterations, Passed, run
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal
from loopwright.models import Models, Redactor, ScriptedModel
from loopwright.prompts import prompt
from loopwright.telemetry import Telemetry, over_http, trace_id
from telemetry.sink import Server, attributes

REPLIES = """
- step: "*/execute"
  replies: ["first, with sk-canary-0123456789", "second"]
"""


async def judge(output: Any, ctx: Any) -> Evaluation:
    return Evaluation([0.25, 0.9][ctx.iteration - 1], ctx.iteration == 2, f"why {output}?")


refine = Loop(
    prompt("Write {{ loop.iteration }}"), judge, until=Passed() | MaxIterations(3), name="refine"
)


async def drive(telemetry: Telemetry, **options: Any) -> Any:
    resources = {"models": Models(ScriptedModel(REPLIES)), "model": "openai:gpt-4o"}
    return await run(
        refine, "about sk-canary-0123456789", listeners=[telemetry], resources=resources, **options
    )


async def test_a_run_arrives_as_one_trace_with_its_metrics_and_events() -> None:
    """Spans, metrics and events reach a collector over OTLP/HTTP under the names of the table."""
    with Server() as sink:
        telemetry = over_http(sink.url)
        result = await drive(telemetry)
        assert telemetry.close() == ""
        spans = sink.spans()
        assert {span.trace_id.hex() for span in spans} == {f"{trace_id(result.run_id):032x}"}
        named = [span.name for span in spans]
        assert sorted(named) == sorted(
            [
                "invoke_workflow refine", "loop refine", "iteration 1", "iteration 2", "execute",
                "execute", "evaluate", "evaluate", "chat gpt-4o", "chat gpt-4o",
            ]
        )  # fmt: skip
        known = {span.span_id for span in spans} | {b""}
        assert all(span.parent_span_id in known for span in spans)
        assert [span.name for span in spans if not span.parent_span_id] == [
            "invoke_workflow refine"
        ]
        chat = attributes(next(span for span in spans if span.name == "chat gpt-4o"))
        assert chat["gen_ai.operation.name"] == "chat"
        assert chat["gen_ai.provider.name"] == "openai"
        assert chat["gen_ai.request.model"] == "gpt-4o"
        assert chat["gen_ai.response.finish_reasons"] == ["stop"]
        events = sink.events()
        assert [event.event_name for event in events] == ["gen_ai.evaluation.result"] * 2
        replies = [span.span_id for span in spans if span.name == "chat gpt-4o"]
        assert [event.span_id for event in events] == replies
        assert [attributes(e)["gen_ai.evaluation.score.value"] for e in events] == [0.25, 0.9]
        metrics = sink.metrics()
        assert set(metrics) == {
            "gen_ai.client.token.usage", "gen_ai.client.operation.duration", "loopwright.iterations",
            "loopwright.iteration.duration", "loopwright.score", "loopwright.runs",
            "loopwright.run.duration",
        }  # fmt: skip
        tokens = {
            attributes(point)["gen_ai.token.type"]: point.sum
            for point in metrics["gen_ai.client.token.usage"]
        }
        assert tokens == {
            "input": result.usage.input_tokens,
            "output": result.usage.output_tokens,
        }
        assert sink.resources()[0]["service.name"] == "loopwright"


@pytest.mark.parametrize("capture", [False, True])
async def test_no_secret_and_without_capture_no_content_reaches_a_collector(capture: bool) -> None:
    """A key is redacted in every signal; what was written is only there where it is asked for."""
    with Server() as sink:
        telemetry = over_http(
            sink.url, capture=capture, redactor=Redactor(["sk-canary-0123456789"])
        )
        await drive(telemetry)
        telemetry.close()
        everything = b"".join(body for _, body in sink.bodies)
        assert b"sk-canary" not in everything
        assert (b"why second?" in everything) == capture
        assert (b"[redacted]" in everything) == capture


async def test_a_run_that_is_resumed_goes_on_in_the_trace_it_began() -> None:
    """Two processes that drive one run send one trace."""
    with Server() as sink:
        journal = MemoryJournal()
        for limit in (1, 2):
            telemetry = over_http(sink.url)
            once = Loop(lambda v: v, until=MaxIterations(limit), name="refine")
            await run(once, "x", journal=journal, run_id=f"r{limit}", listeners=[telemetry])
            again = await run(once, "x", journal=journal, run_id=f"r{limit}", listeners=[telemetry])
            assert again.run_id == f"r{limit}"
            telemetry.close()
        assert {span.trace_id.hex() for span in sink.spans()} == {
            f"{trace_id('r1'):032x}", f"{trace_id('r2'):032x}"
        }  # fmt: skip


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_a_collector_that_refuses_fails_no_run_and_is_told_of_once(status: int) -> None:
    """The run ends as it would have; closing says in a sentence that something was not sent."""
    with Server(status) as sink:
        telemetry = over_http(sink.url)
        result = await drive(telemetry)
        trouble = telemetry.close(timeout=1.0)
    assert result.status == "satisfied"
    assert result.warnings == ()
    assert trouble.startswith("telemetry: ")
    assert "\n" not in trouble


async def test_a_collector_that_never_answers_holds_nothing_up() -> None:
    """The run ends while the collector still holds the first request, and closing gives up."""
    with Server(answers=False) as sink:
        telemetry = over_http(sink.url)
        result = await drive(telemetry)
        assert result.status == "satisfied"
        assert sink.bodies == []
        assert telemetry.close(timeout=0.1).startswith("telemetry: not all of it was sent in time")


async def test_a_closed_telemetry_goes_on_trying_nothing() -> None:
    """Once closing has given up, the threads that wait to try a dead collector again end."""
    before = set(threading.enumerate())
    with Server() as sink:
        url = sink.url
    telemetry = over_http(url)
    await drive(telemetry)
    assert telemetry.close(timeout=0.1).startswith("telemetry: ")
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)
        assert not thread.is_alive(), thread


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "ftp://x", "file:///etc/passwd"])
def test_what_is_no_url_is_refused_with_an_example(endpoint: str) -> None:
    """An endpoint is an http(s) URL."""
    with pytest.raises(ConfigurationError, match="use one such as http://localhost:4318"):
        over_http(endpoint)


def test_without_the_extra_there_is_a_sentence_that_says_how_to_get_it() -> None:
    """Telemetry without its libraries is a configuration error, not a traceback."""
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "sys.modules['opentelemetry.exporter.otlp.proto.http'] = None\n"
        "from loopwright.telemetry import over_http\n"
        "try: over_http()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ConfigurationError telemetry needs the OpenTelemetry SDK")
    assert "pip install 'loopwright[otel]'" in done.stdout


def test_the_package_is_loaded_without_the_libraries() -> None:
    """Importing what observes costs no OpenTelemetry: it is loaded when telemetry is made."""
    code = "import sys, loopwright.telemetry; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
