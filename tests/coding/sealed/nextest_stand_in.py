"""A stand-in for cargo-nextest: `cargo nextest run` as its documentation and its reports describe it.

Cargo compiles the tests, each test is a process, a test passes if its process exits with 0, and the JUnit report has one suite
for each test program. It runs all tests, as with `fail-fast = false`. The real program is on no index that Debian, PyPI or npm has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr


def programs() -> dict[str, str]:
    """Compile; return the test programs by their id: the package, and the name of an integration test."""
    command = ["cargo", "test", "--no-run", "--offline", "--quiet", "--message-format", "json"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit(101)
    found = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("profile", {}).get("test") and message.get("executable"):
            package = Path(message["manifest_path"]).parent.name
            name, kind = message["target"]["name"], message["target"]["kind"]
            found[f"{package}::{name}" if "test" in kind else package] = message["executable"]
    return found


def main(profile: str) -> int:
    """Run the tests; return the exit code of nextest."""
    suites, total, failed = [], 0, 0
    for program, path in programs().items():
        listed = subprocess.run(
            [path, "--list", "--format", "terse"], capture_output=True, text=True, check=False
        )
        cases = []
        for name in (
            line.removesuffix(": test")
            for line in listed.stdout.splitlines()
            if line.endswith(": test")
        ):
            ended = subprocess.run(
                [path, "--exact", name, "--nocapture"], capture_output=True, text=True, check=False
            )
            total, failed = total + 1, failed + bool(ended.returncode)
            failure = (
                f'<failure type="test failure">{escape(ended.stderr)}</failure>'
                if ended.returncode
                else ""
            )
            cases.append(
                f"<testcase name={quoteattr(name)} classname={quoteattr(program)}>{failure}</testcase>"
            )
        suites.append(f"<testsuite name={quoteattr(program)}>{''.join(cases)}</testsuite>")
    if not total:
        return 4
    report = Path("target/nextest") / profile / "junit.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(f'<testsuites name="nextest-run">{"".join(suites)}</testsuites>')
    return 100 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[sys.argv.index("--profile") + 1]))
