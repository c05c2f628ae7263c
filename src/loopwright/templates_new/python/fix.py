"""Let an agent repair slug.py until its test passes, and print the patch."""

import sys

from loopwright import Workspace, run_sync, until

# A script stands for the agent. With a coding agent, such as Claude Code: AGENT = ["claude"]
AGENT = ["python3", "agent.py"]


def show(item):
    print(item.number, "passed" if item.passed else item.feedback.splitlines()[0])


def main():
    loop = until(
        "python3 -m unittest",
        AGENT,
        max_iterations=3,
        workspace=Workspace(".", merge="patch"),
        on_iteration=show,
    )
    result = run_sync(loop, "")
    print(f"{result.status} ({result.reason}): {result.detail}")
    return result.status.exit_code


if __name__ == "__main__":
    sys.exit(main())
