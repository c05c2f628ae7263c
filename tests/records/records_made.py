"""Records of any kind, made up by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.support import json_values, scores, texts, usages
from loopwright import Criterion, Evaluation, Failure, Iteration, Reason, Stop

seconds = st.integers(0, 10**12).map(lambda n: n / 10**6)
failures = st.builds(
    Failure,
    stage=st.sampled_from(["adapt", "execute", "evaluate"]),
    kind=texts,
    message=texts,
    path=texts,
    retryable=st.booleans(),
    retry_after=st.none() | seconds,
)
criteria = st.builds(Criterion, name=texts, passed=st.booleans(), gap=texts)
evaluations = st.builds(
    Evaluation,
    score=st.none() | scores,
    passed=st.none() | st.booleans(),
    feedback=texts,
    improvements=st.lists(texts, max_size=3).map(tuple),
    criteria=st.lists(criteria, max_size=3).map(tuple),
    votes=st.lists(json_values, max_size=2).map(tuple),
    undecided=st.booleans(),
)
iterations = st.builds(
    Iteration,
    number=st.integers(1, 1000),
    input=json_values,
    output=json_values,
    evaluation=st.none() | evaluations,
    error=st.none() | failures,
    usage=usages,
    seconds=seconds,
    interrupted=st.booleans(),
    truncated=st.booleans(),
    steps=st.none() | st.dictionaries(texts, json_values, min_size=1, max_size=2),
)
stops = st.builds(
    Stop,
    reason=st.sampled_from(Reason),
    detail=texts,
    also=st.lists(st.sampled_from(Reason), max_size=3).map(tuple),
)
