"""Documents of `workflow/v2.0` as check, convert and the callers of the library see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents import Settings, load
from loopwright.documents.load import to_native_yaml
from loopwright.errors import DocumentError

HEAD = '$schema: "workflow/v2.0"\nname: main\nexecution: {provider: openai, model: gpt-4o'
SERVERS = HEAD + ", servers: [git]}\nsteps: [{name: a, run: x}]\n"


def test_servers_nobody_describes_are_told_by_check_and_refused_by_run(tmp_path: Path) -> None:
    """Without a file that says how they are started, what only looks is told, what runs is refused."""
    file = tmp_path / "main.yaml"
    file.write_text(SERVERS)
    (note,) = load(file, Settings(execute=False)).notes
    assert note.message == (
        "no file defines the server 'git'; add server_config.json beside the document: "
        '{"mcpServers": {"git": {"command": …, "args": […]}}}'
    )
    assert (note.line, note.path) == (3, "execution.servers[0]")
    with pytest.raises(DocumentError, match="no file defines the server 'git'"):
        load(file)


def test_strict_refuses_what_is_noted(tmp_path: Path) -> None:
    """A1: every note of a foreign document is a problem to who asks for that."""
    file = tmp_path / "main.yaml"
    file.write_text(SERVERS)
    with pytest.raises(DocumentError) as caught:
        load(file, Settings(execute=False, strict=True))
    assert len(caught.value.problems) == 1


def test_a_plan_counts_the_judges_too(tmp_path: Path) -> None:
    """A round is its steps and a judge, who may be asked twice; an item is its steps."""
    (tmp_path / "child.yaml").write_text(
        '$schema: "workflow/v2.0"\nname: child\nsteps: [{name: a, run: x}, {name: b, run: y}]\n'
    )
    file = tmp_path / "main.yaml"
    file.write_text(
        HEAD + "}\nloops:\n  - {name: l, workflow: child, max_iterations: 4, until: It is done}\n"
        "  - {name: e, mode: iterate, items: x, workflow: child, max_iterations: 5}\n"
    )
    plan = load(file).plan()
    assert plan["worst_case_calls"] == 4 * (2 + 2) + 5 * 2
    assert plan["bounds"]["loops"]["l"] == 4
    assert plan["models"] == ["openai:gpt-4o"]


def test_the_native_form_is_one_that_people_can_read(tmp_path: Path) -> None:
    """The words of the document, in the order in which it runs."""
    (tmp_path / "cycle.yaml").write_text(
        '$schema: "workflow/v2.0"\nname: cycle\nsteps: [{name: only, run: "{{task}} {{last}}"}]\n'
    )
    file = tmp_path / "main.yaml"
    file.write_text(
        HEAD + ", temperature: 0.5}\nenv: {TONE: calm}\nsteps:\n"
        '  - {name: report, run: "{{env.TONE}}: {{refine}} after {{loop.iteration}}\\n{% x %}"}\n'
        "loops:\n  - name: refine\n    workflow: cycle\n"
        '    with: {task: "{{input}}", last: "{{loop.last.output}}"}\n'
        "    max_iterations: 3\n    until: It is short\n    on_failure: retry\n    accumulate: all\n"
    )
    printed = to_native_yaml(next(iter(load(file).documents.values())))
    assert printed == (
        "schema: loopwright/1\nname: main\n"
        'input: ""\nenv:\n  TONE: calm\nmodel: openai:gpt-4o\ntemperature: 0.5\ncall_timeout: 60.0\n\n'
        "steps:\n"
        "  - name: refine\n"
        "    loop:\n"
        "      execute:\n"
        "        workflow: cycle\n"
        "        with:\n"
        "          task: '{{ input }}'\n"
        "          last: '{{ loop.output }}'\n"
        "      evaluate:\n"
        "        judge:\n"
        "          criterion: It is short\n"
        "          style: yes_no\n"
        "      until: passed\n"
        "      on_failure: retry\n"
        "      keep: last\n"
        "      max_iterations: 3\n"
        '    otherwise: ""\n'
        "\n"
        "  - name: report\n"
        "    needs: [refine]\n"
        "    prompt: |-\n"
        "      {{ env.TONE }}: {{ refine }} after {{ loop.iteration }}\n"
        '      {{ "{%" }} x %}\n'
    )


def test_looking_for_problems_has_an_end(tmp_path: Path) -> None:
    """After a hundred problems it says that it stops, and does not look on."""
    file = tmp_path / "main.yaml"
    steps = "".join(f"  - {{name: s{i}, run: x, needs: [t{i}]}}\n" for i in range(300))
    file.write_text(HEAD + "}\nsteps:\n" + steps)
    with pytest.raises(DocumentError) as caught:
        load(file)
    assert len(caught.value.problems) == 101
    assert "checking stops after 100 problems" in str(caught.value)
