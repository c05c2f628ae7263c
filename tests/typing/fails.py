"""Lines that both checkers must refuse: each line that ends in `# refused`, and no other."""

from dataclasses import dataclass

from pydantic_ai import Agent

from loopwright import Context, Iteration, Loop, for_each, run_sync, sequence
from loopwright.prompts import prompt


@dataclass
class Brief:
    topic: str


@dataclass
class Draft:
    title: str


def write(brief: Brief) -> Draft:
    return Draft(brief.topic)


def read(draft: Draft) -> float:
    return len(draft.title) / 10


def of_text(text: str) -> float:
    return len(text) / 10


def to_text(draft: Draft) -> str:
    return draft.title


def adapt_to_text(last: Iteration[Brief, Draft]) -> str:
    return last.input.topic


def bad_hook(it: Iteration[Brief, Draft]) -> None:
    print(it.output.nope)  # refused


class Unrelated:
    """An object without an adapter."""

    def start(self) -> None: ...


loop = Loop(write, read)
result = run_sync(loop, Brief("a"))

Loop(write, of_text)  # refused
Loop(write, read, adapt_to_text)  # refused
run_sync(loop, "text")  # refused
number: int = result.unwrap()  # refused
sequence(read, write)  # refused
Loop(prompt("Write", output=Draft), of_text)  # refused
Loop(write, read, until=0.9)  # refused
print(result.output.title)  # refused
Loop(write, to_text)  # refused
prompt(3)  # refused
prompt("Write", temprature=0.2)  # refused
prompt("Write", on_cutoff="ignore")  # refused
Loop(write, read, max_iterations="3")  # refused
Loop(Unrelated(), read)  # refused
run_sync(for_each(write), ["text"])  # refused
run_sync(for_each(write), Brief("a"))  # refused
for_each(write, at_onse=2)  # refused
for_each(write, on_failure="stop")  # refused
Loop(write, Unrelated())  # refused
Loop(Agent("openai:gpt-4o-mini", output_type=Draft), of_text)  # refused


async def calls(value: Brief, ctx: Context) -> str:
    await ctx.call("text", write, "text")  # refused
    await ctx.call("unrelated", Unrelated(), value)  # refused
    return await ctx.call("draft", write, value)  # refused
