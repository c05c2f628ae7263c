"""The same loop as job_matching.yaml, in Python: `python examples/job_matching/job_matching.py`."""

from __future__ import annotations

from dataclasses import replace

from jobs import adapt, judge, search
from loopwright import (
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    Passed,
    Timeout,
    run_sync,
)

REQUEST = {
    "person": {
        "skills": ["python", "sql", "airflow", "dbt", "spark"],
        "locations": ["Lisbon", "Porto", "Remote", "Madrid"],
        "levels": ["senior", "lead", "mid"],
        "salary_floor": 60_000,
    },
    "filters": {
        "locations": ["Lisbon"],
        "levels": ["senior"],
        "salary_from": 75_000,
        "relevance_from": 0.4,
    },
}


def tell(item: Iteration) -> None:
    """Print a round once it is recorded."""
    print(f"{item.number}  score {item.score:.3f}  {item.feedback}")


matching = Loop(
    search,
    judge,
    adapt,
    until=Passed() | NoImprovement(patience=3) | MaxIterations(8),
    guards=Timeout(60),
    name="matching",
)

if __name__ == "__main__":
    result = run_sync(replace(matching, on_iteration=tell), REQUEST)
    print(f"{result.status} after {result.iterations} iterations: {result.detail}")
    for match in result.output["matches"]:
        print("  {relevance:.2f}  {title}, {company}, {location}, {salary}".format(**match))
