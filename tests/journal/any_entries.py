"""Any entry that an engine could append, for properties that hold of all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from loopwright.journal import Entry
from loopwright.records import Candidate, Criterion, Evaluation, Failure, Iteration, Usage

from .recording import LONG

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | texts | st.sampled_from([LONG, "$text", '"$json"'])
keys = texts | st.sampled_from(["$text", "$json", "$here", "output", "steps"])
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 10**9)
usages = st.builds(
    Usage, counts, counts, counts, st.integers(0, 10**9).map(lambda n: n / 1000), counts, counts
)
failures = st.builds(Failure, texts, texts, texts | st.just(LONG), texts, st.booleans())
scores = st.none() | st.floats(0, 1)
criteria = st.lists(st.builds(Criterion, texts, st.booleans(), texts), max_size=2).map(tuple)
evaluations = st.builds(
    Evaluation,
    scores,
    st.none() | st.booleans(),
    texts | st.just(LONG),
    st.lists(texts, max_size=2).map(tuple),
    criteria,
    st.lists(values, max_size=2).map(tuple),
    st.booleans(),
    st.dictionaries(keys, values, max_size=2),
    st.dictionaries(texts, st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9), max_size=2),
)
times = st.integers(0, 10**10).map(lambda n: n / 1_000_000)
candidates = st.builds(
    Candidate,
    st.integers(1, 1024),
    st.sampled_from(["chosen", "lost", "failed", "stopped", "skipped"]),
    scores,
    st.none() | st.booleans(),
    st.dictionaries(texts, st.floats(-1e9, 1e9), max_size=2),
    texts | st.just(LONG),
    st.none() | failures,
    values,
    usages,
    times,
    texts,
)
iterations = st.builds(
    Iteration,
    st.integers(1, 1000),
    values,
    values,
    st.none() | evaluations,
    st.none() | failures,
    usages,
    times,
    st.booleans(),
    st.booleans(),
    st.none() | st.dictionaries(keys, values, min_size=1, max_size=3),
    parent=st.none() | st.integers(0, 1000),
    chain=st.integers(1, 9),
    strategy=texts,
    candidate=st.none() | st.integers(1, 1024),
    candidates=st.lists(candidates, max_size=2).map(tuple),
)
paths = st.sampled_from(["", "refine", "refine/1/execute", "outer/2/execute/inner/ü x"])
plain_kinds = ("started", "finished", "cut", "ended", "suspended", "answered", "accepted")
fields = {
    "fingerprint": st.sampled_from(["", "abc:12", "abc:'it\\'s'"]),
    "error": st.none() | failures,
    "usage": usages | st.just(Usage()),
    "reserved": usages | st.just(Usage()),
    "seconds": times,
}
plain_entries = st.builds(Entry, st.sampled_from(plain_kinds), paths, times, values, **fields)
round_entries = st.builds(Entry, st.just("iteration"), paths, times, iterations, **fields)
