"""Jobs, done from the documentation alone: its files and commands, in a clean environment and an empty folder."""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.blocks import Block, blocks_of
from footprint.environment import ROOT
from jobs.environment import Environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Job:
    """A job, the page that explains it, and the sections that are followed; without any, the complete page."""

    name: str
    page: str
    sections: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Iterate over the blocks of the sections, in the order of the page."""
        text = (ROOT / "docs" / self.page).read_text(encoding="utf-8")
        for section in self.sections:
            assert f"\n## {section}\n" in text, section
        for start, _, block in blocks_of(text):
            headings = re.findall(r"^## (.+)$", text[:start], re.MULTILINE)
            if not self.sections or (headings and headings[-1] in self.sections):
                yield block


JOBS = [
    Job("text_until_a_judge_is_satisfied", "start/tutorial.md", ("3. Add a model and a judge",)),
    Job("tests_until_they_pass", "guide/tests.md", ("In YAML",)),
    Job("a_list_in_parallel_under_a_budget", "guide/lists.md"),
    Job("approval_and_resume", "guide/approvals.md"),
    Job("wait_for_ci", "guide/waiting.md", ("Wait for CI",)),
    Job("tools_of_an_mcp_server", "guide/tools.md", ("Use the tools of an MCP server",)),
    Job("an_evaluator", "guide/own-evaluator.md"),
    Job("a_condition", "guide/own-condition.md"),
    Job("inside_a_pytest_suite", "guide/testing.md"),
    Job("a_service_with_100_runs", "guide/service.md", ("In FastAPI",)),
    Job("typed_extraction", "guide/extraction.md"),
    Job("retry_after_a_failure", "guide/resume.md", ("Retry",)),
    Job("a_template_and_its_twin", "guide/templates.md"),
    Job("a_tool_called_over_mcp", "guide/serving.md"),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_is_done_from_its_page(job: Job, environment: Environment, tmp_path: Path) -> None:
    """The files of the page are written, its commands and programs run, and print what the page shows."""
    program: list[str] = []  # Python of the page so far: its blocks share their names
    printed = ""
    ran = 0
    for block in job.blocks():
        if block.skip:
            continue
        if block.title:
            (tmp_path / block.title).parent.mkdir(exist_ok=True)
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            program.append(block.text)
            output = run(environment, tmp_path, program)
            assert output.startswith(printed)
            shown, printed = output[len(printed) :], output
            ran += 1
        elif block.language == "text":
            compare(block.text, shown)
        elif block.language == "console":
            ran += follow(block.text, environment, tmp_path)
    assert ran, "a job runs something"


def run(environment: Environment, folder: Path, program: list[str]) -> str:
    """Run the Python of a page as a script and return what it prints."""
    script = folder / "page_script.py"
    script.write_text("\n".join(program), encoding="utf-8")
    done = environment.run(f"python {script.name}", folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


def follow(text: str, environment: Environment, folder: Path) -> int:
    """Type the commands of a console block, compare what they print, and return how many there are."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for part in parts:
        command, _, shown = part.partition("\n")
        done = environment.run(command, folder)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if shown.strip():
            compare(shown, done.stdout)
    return len(parts)


def compare(shown: str, printed: str) -> None:
    """Compare what a page shows with what was printed; `...` stands for anything."""
    printed = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    assert doctest.OutputChecker().check_output(shown, printed, COMPARED), (
        f"the page shows:\n{shown}\nprinted:\n{printed}"
    )


def test_the_environment_is_clean(environment: Environment, tmp_path: Path) -> None:
    """The package comes from its wheel, and the tools of its developers are not installed."""
    code = (
        "import importlib.util as u, loopwright; print(loopwright.__file__, u.find_spec('sybil'))"
    )
    done = environment.run(f'python -c "{code}"', tmp_path)
    assert str(environment.folder) in done.stdout
    assert done.stdout.endswith("None\n")
    assert sys.prefix not in done.stdout


REPLIES = [
    # thinking, prose and a fence, as Qwen and DeepSeek write
    '<think>\nA chair and the post.\n</think>\n\nSure! Here is the JSON:\n\n```json\n{"number": "A-17", "currency": "EUR", '
    '"lines": [{"text": "Chair", "amount": 90}, {"text": "Post", "amount": 5}], "total": 95, "paid": false}\n```\nAsk me if you need more.',
    # a wrapper, numbers as text and other letter case, as Llama writes
    '{"Invoice": {"Number": "A-17", "Currency": "eur", "Lines": [{"Text": "Chair", "Amount": "90"}, '
    '{"Text": "Post", "Amount": "5.0"}], "Total": "95", "Paid": "false"}}',
    # Python words, single quotes and a trailing comma, as Phi and Gemma write
    "{'number': 'A-17', 'currency': 'EUR', 'lines': [{'text': 'Chair', 'amount': 90.0}, {'text': 'Post', 'amount': 5},], "
    "'total': 95.0, 'paid': False,}<end_of_turn>",
]
EXTRACT = """
import sys
from invoices import extract
from loopwright import Models, run_sync

models = Models(default="openai_compatible:small", base_url=sys.argv[1])
result = run_sync(extract, "Invoice A-17", models=models)
print(result.status, result.iterations, result.unwrap().total)
"""


@pytest.mark.parametrize("reply", REPLIES, ids=["thinking", "wrapped", "python"])
def test_the_extraction_reads_replies_of_small_models(
    reply: str, environment: Environment, tmp_path: Path
) -> None:
    """The module of the page extracts the invoice from replies of a server that does not support schemas."""
    from models.mock_server import serving

    job = next(job for job in JOBS if job.name == "typed_extraction")
    for block in job.blocks():
        if block.title:
            (tmp_path / block.title).parent.mkdir(exist_ok=True)
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    (tmp_path / "extract.py").write_text(EXTRACT, encoding="utf-8")

    def answer(body: dict[str, object], headers: dict[str, str]) -> tuple[int, str]:
        unsupported = body.get("response_format") or body.get("tools")
        return (400, "response_format is not supported") if unsupported else (200, reply)

    with serving(answer) as url:
        done = environment.run(f"python extract.py {url}", tmp_path)
    assert done.stdout == "satisfied 1 95.0\n"
