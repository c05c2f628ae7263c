"""The ledger: what is promised and spent never exceeds a cap, and no call that fits is refused."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Budget, Reason, Usage
from loopwright.engine.budgets import Account
from loopwright.errors import Stopped
from loopwright.testing import run_virtual

from .support import examples, usages


class Ledger:
    """A tree of accounts that watches itself: every change checks every cap."""

    def __init__(self, *caps: Budget | None) -> None:
        self.accounts: list[Account] = []
        for depth, cap in enumerate(caps):
            parent = self.accounts[-1] if self.accounts else None
            self.accounts.append(Account("/".join("abcdef"[:depth]), parent, cap))
        self.refused: list[str] = []
        self.billed = Usage()

    def check(self) -> None:
        """I29: settled + reserved <= cap in every account, at this instant."""
        for account in self.accounts:
            cap, total = account.cap, account.settled + account.reserved
            if cap is not None:
                assert cap.calls is None or total.calls <= cap.calls
                assert cap.tokens is None or total.tokens <= cap.tokens
                assert cap.usd is None or total.usd <= cap.usd + 1e-12

    async def call(self, path: str, worst: Usage, real: Usage, seconds: float) -> bool:
        """Make a call from the innermost account; answer whether it was let through."""
        account = self.accounts[-1]
        try:
            await account.reserve(path, worst)
        except Stopped:
            self.check()
            self.refused.append(path)
            return False
        self.check()
        await asyncio.sleep(seconds)
        account.settle(path, real)
        self.billed += real
        self.check()
        return True


def test_a_thousand_concurrent_calls_share_one_cap() -> None:
    """I29, I31, I34: with 1,000 calls at once, the cap holds at every instant and none that fits is refused."""

    async def work(seed: int) -> Ledger:
        chance = random.Random(seed)
        ledger = Ledger(Budget(calls=1000, tokens=100_400))
        await asyncio.gather(
            *(
                ledger.call(f"call-{n}", Usage(1, 400, 100), Usage(1, 50, 50), chance.random())
                for n in range(1000)
            )
        )
        return ledger

    for seed in (None, 1):
        ledger = run_virtual(work(7), seed=seed)
        assert ledger.refused == []
        assert ledger.accounts[0].settled == Usage(1000, 50_000, 50_000)
        assert ledger.accounts[0].reserved == Usage()


def test_what_cannot_fit_any_more_is_refused_and_not_before() -> None:
    """Of calls that cost what they promise, exactly as many pass as the cap has room for."""

    async def work() -> Ledger:
        ledger = Ledger(Budget(calls=300))
        await asyncio.gather(*(ledger.call(f"c{n}", Usage(1), Usage(1), 1.0) for n in range(1000)))
        return ledger

    ledger = run_virtual(work(), seed=3)
    assert len(ledger.refused) == 700
    assert ledger.accounts[0].settled == Usage(300)


calls = st.tuples(
    st.integers(1, 60), st.integers(0, 100), st.sampled_from([0.0, 1.0, 2.0, 3.5]), st.floats(0, 3)
)


@given(st.integers(20, 150), st.integers(20, 150), st.lists(calls, min_size=1, max_size=12),
       st.integers(0, 99))  # fmt: skip
def test_the_caps_hold_in_every_account_under_any_interleaving(
    outer: int, inner: int, made: list[tuple[int, int, float, float]], seed: int
) -> None:
    """I29, I30, I34: nested caps hold, spending is conserved up the tree, and a refusal was right."""
    ledger = Ledger(Budget(tokens=outer), None, Budget(tokens=inner))

    async def one(number: int, worst: int, share: int, seconds: float, wait: float) -> None:
        await asyncio.sleep(wait)
        promised, real = Usage(1, worst), Usage(1, worst * share // 100)
        spent = [a.settled for a in ledger.accounts]
        if not await ledger.call(f"call-{number}", promised, real, seconds):
            settled = [a.settled for a in ledger.accounts]
            assert settled[0].tokens + worst > outer or settled[2].tokens + worst > inner
            assert all(now.tokens >= then.tokens for now, then in zip(settled, spent, strict=True))

    async def work() -> None:
        await asyncio.gather(*(one(n, *call) for n, call in enumerate(made)))

    run_virtual(work(), seed=seed)
    assert [a.settled for a in ledger.accounts] == [ledger.billed] * 3
    assert [a.reserved for a in ledger.accounts] == [Usage()] * 3
    fits = [worst for worst, *_ in made if sum(w for w, *_ in made) <= min(outer, inner)]
    assert not fits or ledger.refused == []


def test_two_accounts_never_wait_for_each_other() -> None:
    """Rule 3: a call waiting outside and one waiting inside are served in order, not in a circle."""
    ledger = Ledger(Budget(tokens=150), Budget(tokens=100))
    outer, inner = ledger.accounts
    done: list[str] = []

    async def inside(path: str, worst: int) -> None:
        await inner.reserve(path, Usage(1, worst))
        done.append(path)
        inner.settle(path, Usage(1, 10))

    async def work() -> None:
        await inner.reserve("first", Usage(1, 60))
        waits_inside = asyncio.ensure_future(inside("y", 50))
        await asyncio.sleep(1)
        await outer.reserve("beside", Usage(1, 90))
        waits_outside = asyncio.ensure_future(inside("x", 10))
        await asyncio.sleep(1)
        outer.settle("beside", Usage(1, 10))
        await asyncio.sleep(1)
        inner.settle("first", Usage(1, 10))
        await asyncio.gather(waits_inside, waits_outside)

    run_virtual(work())
    assert sorted(done) == ["x", "y"]


def test_a_call_inside_a_call_goes_before_those_who_wait_for_it() -> None:
    """A call made by an effect that holds a promise is woken too, or all would wait for each other."""
    account = Ledger(Budget(tokens=100)).accounts[0]
    done: list[str] = []

    async def large() -> None:
        await account.reserve("large", Usage(1, 60))
        done.append("large")
        account.settle("large", Usage())

    async def nested() -> None:
        await account.reserve("effect/inner", Usage(1, 30))
        done.append("inner")
        account.settle("effect/inner", Usage(1, 5))
        account.settle("effect", Usage(1, 5))

    async def work() -> None:
        await account.reserve("effect", Usage(1, 50))
        await account.reserve("other", Usage(1, 30))
        waiting = [asyncio.ensure_future(large()), asyncio.ensure_future(nested())]
        await asyncio.sleep(1)
        account.settle("other", Usage())
        await asyncio.gather(*waiting)

    run_virtual(work())
    assert done == ["inner", "large"]


def test_who_comes_later_does_not_go_before_a_call_inside_a_call() -> None:
    """Rule 3: small calls that keep coming cannot starve a call whose effect holds a promise."""
    account = Ledger(Budget(tokens=100)).accounts[0]
    done: list[str] = []

    async def one(path: str, worst: int) -> None:
        await account.reserve(path, Usage(1, worst))
        done.append(path)
        account.settle(path, Usage(1, 1))

    async def work() -> None:
        await account.reserve("effect", Usage(1, 50))
        await account.reserve("other", Usage(1, 40))
        waiting = [asyncio.ensure_future(one("effect/inner", 30))]
        await asyncio.sleep(1)
        waiting.append(asyncio.ensure_future(one("small", 5)))
        await asyncio.sleep(1)
        account.settle("other", Usage())
        await asyncio.gather(*waiting)

    run_virtual(work())
    assert done == ["effect/inner", "small"]


def test_what_an_enclosing_call_holds_is_not_waited_for() -> None:
    """A call inside an effect is refused if only that effect's own promise is in its way."""
    account = Ledger(Budget(tokens=100)).accounts[0]

    async def work() -> None:
        await account.reserve("effect", Usage(1, 80))
        await account.reserve("effect/inner", Usage(1, 30))

    with pytest.raises(Stopped) as caught:
        run_virtual(work())
    assert caught.value.stop.detail == (
        "0 of 100 tokens spent; the call effect/inner may take 30 tokens and did not fit: "
        "a call starts only if its maximum cost fits"
    )


def test_two_effects_that_each_need_what_the_other_holds_do_not_wait_for_ever() -> None:
    """I11: where only stuck calls hold promises, nothing in flight can free enough: one is refused."""
    account = Ledger(Budget(tokens=100)).accounts[0]
    ended: list[str] = []

    async def effect(path: str) -> None:
        await account.reserve(path, Usage(1, 50))
        await asyncio.sleep(1)
        try:
            await account.reserve(f"{path}/inner", Usage(1, 30))
            account.settle(f"{path}/inner", Usage(1, 5))
            ended.append(path)
        except Stopped:
            ended.append(f"{path} refused")
        account.settle(path, Usage(1, 5))

    async def work() -> None:
        await asyncio.gather(effect("a"), effect("b"))

    run_virtual(work())
    assert ended == ["b refused", "a"]


def test_small_calls_do_not_starve_a_large_one() -> None:
    """Rule 3: a large call that waits is served before small ones that came later."""
    ledger = Ledger(Budget(tokens=100))
    order: list[str] = []

    async def one(path: str, worst: int, at: float) -> None:
        await asyncio.sleep(at)
        account = ledger.accounts[0]
        await account.reserve(path, Usage(1, worst))
        order.append(path)
        await asyncio.sleep(10)
        account.settle(path, Usage(1, 1))

    async def work() -> None:
        await asyncio.gather(
            one("a", 60, 0), one("large", 90, 1), *(one(f"s{n}", 10, 2 + n) for n in range(5))
        )

    run_virtual(work())
    assert order[:2] == ["a", "large"]


def test_a_waiting_call_that_is_cancelled_leaves_the_queue() -> None:
    """A cancelled waiter holds nothing and nobody waits behind it."""
    account = Ledger(Budget(tokens=100)).accounts[0]

    async def work() -> str:
        await account.reserve("a", Usage(1, 90))
        waits = asyncio.ensure_future(account.reserve("b", Usage(1, 50)))
        await asyncio.sleep(1)
        behind = asyncio.ensure_future(account.reserve("c", Usage(1, 10)))
        await asyncio.sleep(1)
        waits.cancel()
        await behind
        return "served"

    assert run_virtual(work()) == "served"
    assert account.reserved == Usage(2, 100)


@pytest.mark.parametrize(
    ("cap", "worst", "detail"),
    [
        (Budget(calls=1), Usage(2), "0 of 1 calls spent; the call p may take 2 calls and did not fit: "),
        (Budget(tokens=10), Usage(1, 11),
         "0 of 10 tokens spent; the call p may take 11 tokens and did not fit: "),
        (Budget(usd=0.5), Usage(1, usd=0.75),
         "0 of 0.5 usd spent; the call p may take 0.75 usd and did not fit: "),
    ],
)  # fmt: skip
def test_a_refusal_names_the_call_and_the_figures(cap: Budget, worst: Usage, detail: str) -> None:
    """The sentence says what the call may take, what is spent and what the cap is."""
    account = Ledger(cap).accounts[0]
    with pytest.raises(Stopped) as caught:
        run_virtual(account.reserve("p", worst))
    detail += "a call starts only if its maximum cost fits"
    assert (caught.value.stop.reason, caught.value.stop.detail) == (Reason.BUDGET, detail)
    assert account.reserved == Usage()


def test_the_outermost_account_is_the_one_to_blame() -> None:
    """Where several caps are in the way, the outermost one stops the call."""
    ledger = Ledger(Budget(calls=1), Budget(calls=1))
    with pytest.raises(Stopped) as caught:
        run_virtual(ledger.accounts[1].reserve("p", Usage(2)))
    assert caught.value.owner == ""


def test_cents_add_up_to_the_cap_exactly() -> None:
    """Ten calls of ten cents fit under a dollar: sums of dollars do not drift."""
    ledger = Ledger(Budget(usd=1.0))

    async def work() -> None:
        for number in range(10):
            assert await ledger.call(f"c{number}", Usage(1, usd=0.1), Usage(1, usd=0.1), 0)
        assert not await ledger.call("over", Usage(1, usd=0.1), Usage(), 0)

    run_virtual(work())


@examples(0.5)
@given(st.lists(usages, max_size=6))
def test_what_is_spent_reaches_every_account_above(spent: list[Usage]) -> None:
    """I30, I32: each account holds the sum of all that was spent at and below it."""
    ledger = Ledger(None, Budget(calls=10**6), None)
    total = Usage()
    for usage in spent:
        ledger.accounts[-1].spend(usage)
        total += usage
    assert [a.settled for a in ledger.accounts] == [total] * 3
    assert [a.iteration_usage for a in ledger.accounts] == [total] * 3


def test_settling_a_call_that_reserved_nothing_only_spends() -> None:
    """A call without a promise is counted all the same."""
    account = Ledger(Budget(calls=5)).accounts[0]
    account.settle("p", Usage(2))
    assert (account.settled, account.reserved) == (Usage(2), Usage())


def test_a_call_may_cost_more_than_it_promised() -> None:
    """What was really spent counts, also above the promise; the next call is then refused."""
    account = Ledger(Budget(calls=2)).accounts[0]

    async def work() -> Any:
        await account.reserve("a", Usage(1))
        account.settle("a", Usage(3))
        await account.reserve("b", Usage(1))

    with pytest.raises(Stopped, match="3 of 2 calls spent"):
        run_virtual(work())
