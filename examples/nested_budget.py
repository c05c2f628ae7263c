"""A loop in a loop that pays for what it measures: the outer budget binds the inner loop.

The inner loop climbs from a starting temperature, the outer one tries several of them, until the
money is spent; the best that was found is kept.
"""

import math

import loopwright as lw

STARTS = (20, 95, 50, 70)
Point = dict[str, float]
PRICE = lw.Usage(calls=1, usd=0.02)  # of one measurement


@lw.step(reserve=PRICE)  # the most that a call may cost: one that might not fit is never made
def measure(request: Point, ctx: lw.Context) -> Point:
    ctx.spend(PRICE)  # what it did cost
    at = request["at"]
    strength = 0.7 * math.exp(-(((at - 30) / 15) ** 2)) + 0.97 * math.exp(-(((at - 76) / 9) ** 2))
    return {"at": at, "strength": round(strength, 4)}


def strength(output: Point) -> float:
    return output["strength"]


def climb_on(last: lw.Iteration, ctx: lw.Context) -> Point:
    best, pace = ctx.history.best or last, last.input["pace"]
    if last.number > best.number:  # too far: turn round, in smaller steps
        pace = -pace / 2
    return {"at": best.output["at"] + pace, "pace": pace}


def next_start(last: lw.Iteration) -> Point:
    return {"at": STARTS[last.number % len(STARTS)], "pace": 8}


climb = lw.Loop(measure, strength, climb_on, lw.NoImprovement(4), name="climb")
good = lw.ScoreAtLeast(0.99) | lw.MaxIterations(10)
search = lw.Loop(climb, strength, next_start, good, guards=lw.Budget(usd=0.65), name="search")

if __name__ == "__main__":
    result = lw.run_sync(search, {"at": STARTS[0], "pace": 8})
    for item in result.history:
        print(f"{item.number}  from {item.input['at']}  ${item.usage.usd:.2f}  ", end="")
        print(item.output or f"cut short: {item.feedback}")
    print(f"{result.status} by {result.reason}: {result.detail}")
    print(f"best: {result.output}, for ${result.usage.usd:.2f} in {result.usage.calls} calls")
