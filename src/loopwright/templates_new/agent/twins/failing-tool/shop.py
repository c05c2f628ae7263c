"""A tool for the model, and the check of its answer."""

JACKETS = {"red": 4, "blue": 2}


def stock(colour: str) -> int:
    """Return how many jackets of a colour (red or blue) are in stock."""
    raise ConnectionError("the warehouse does not answer")


def is_true(answer):
    """Accept an answer with the right number."""
    passed = str(sum(JACKETS.values())) in answer
    return {"passed": passed, "feedback": "" if passed else "The number is wrong."}
