"""The structure of the code as figures with targets: `make house`. Exits with 1 if a row misses its target."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "loopwright"
# Places that the layer contract reserves, and what the Python API and other platforms need.
LATER = frozenset(
    {"coding", "search", "datasets", "insight", "cluster", "serving"}
    | {"adapters", "interop", "progress", "types", "_statistics", "_extras", "_platform"}
)
UNCOUNTED = frozenset({"_aliases.py", "py.typed", "__pycache__"})
ALLOWED_CYCLES = (frozenset({"loopwright.errors", "loopwright.records"}),)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Figure:
    """One row: what is measured, its value as text, its target as text, and whether it is met."""

    name: str
    value: str
    target: str
    met: bool

    def __str__(self) -> str:
        return f"{'ok  ' if self.met else 'MISS'}  {self.name:<58} {self.value:>22}   {self.target}"


@dataclass(frozen=True)
class Import:
    """One import statement of a module of ours: its target, and where the statement stands."""

    target: str
    typing: bool
    inner: bool


class Module:
    """One parsed module of the package."""

    def __init__(self, path: Path) -> None:
        self.path = path
        relative = path.relative_to(PACKAGE.parent).with_suffix("")
        self.is_package = relative.name == "__init__"
        parts = relative.parts[:-1] if self.is_package else relative.parts
        self.name = ".".join(parts)
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def comments(self) -> int:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(t.type == tokenize.COMMENT and "fmt:" not in t.string for t in tokens)

    @cached_property
    def functions(self) -> list[int]:
        found = [node for node in ast.walk(self.tree) if isinstance(node, Function)]
        return [(node.end_lineno or 0) - node.lineno + 1 for node in found]

    def imports(self, known: frozenset[str]) -> Iterator[Import]:
        every = self._imports(self.tree, known, typing=False, inner=False)
        # A package that loads names at first use shows them to type checkers (decision 70).
        yield from (one for one in every if not (self.is_package and one.typing))

    def _imports(
        self, node: ast.AST, known: frozenset[str], *, typing: bool, inner: bool
    ) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                for target in self._targets(child, known):
                    yield Import(target, typing, inner)
                continue
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            within = inner or isinstance(child, Function | ast.Lambda)
            yield from self._imports(child, known, typing=typing or guarded, inner=within)

    def _targets(self, node: ast.Import | ast.ImportFrom, known: frozenset[str]) -> Iterable[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names if alias.name in known]
        base = node.module or ""
        if node.level:
            parts = self.name.split(".")
            parts = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
            base = ".".join([*parts, node.module] if node.module else parts)
        if base not in known:
            return []
        inside = [f"{base}.{alias.name}" for alias in node.names]
        modules = [name for name in inside if name in known]
        return modules + ([base] if len(modules) < len(inside) else [])


class House:
    """All modules, and what connects them."""

    def __init__(self) -> None:
        paths = sorted(p for p in PACKAGE.rglob("*.py") if p.name not in UNCOUNTED)
        self.modules = [Module(path) for path in paths]
        self.known = frozenset(module.name for module in self.modules)
        self.imports = {m.name: list(m.imports(self.known)) for m in self.modules}
        self.lines = sum(module.lines for module in self.modules)

    def graph(self, *, typing: bool) -> dict[str, set[str]]:
        return {
            name: {i.target for i in every if not i.inner and (typing or not i.typing)} - {name}
            for name, every in self.imports.items()
        }

    def importers(self) -> dict[str, set[str]]:
        result: dict[str, set[str]] = defaultdict(set)
        for name, every in self.imports.items():
            for one in every:
                if one.target != name:
                    result[one.target].add(name)
        return result


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected groups of more than one module (Tarjan 1972, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    result = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in graph:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    if len(group) > 1:
                        result.append(sorted(group))
    return result


TOLERANCE = 1.1  # a target that says "about" is met up to 10 % above it


def about(name: str, value: float, target: float) -> Figure:
    return Figure(name, f"{value:,.0f}", f"about {target:,.0f}", value <= TOLERANCE * target)


def spread(name: str, values: list[int], targets: tuple[int, int, int]) -> Figure:
    """Return the row for the median, the 90th percentile and the maximum of some sizes."""
    measured = (median(values), quantiles(values, n=10)[-1], max(values))
    return Figure(
        name,
        " / ".join(f"{value:.0f}" for value in measured),
        "about " + " / ".join(map(str, targets)),
        all(v <= TOLERANCE * target for v, target in zip(measured, targets, strict=True)),
    )


def at_most(name: str, value: float, bound: float, shown: str = "") -> Figure:
    text = shown or f"{value:.1f}".removesuffix(".0")
    return Figure(name, text, f"at most {bound:g}", value <= bound)


def below(name: str, value: float, bound: float) -> Figure:
    return Figure(name, f"{value:.1f}".removesuffix(".0"), f"under {bound:g}", value < bound)


def structure(house: House) -> Iterator[Figure]:
    """Return the figures that the source text alone gives."""
    top = {p.name for p in PACKAGE.iterdir()} - UNCOUNTED
    own = {name for name in top if name.removesuffix(".py") not in LATER}
    yield at_most("entries at the top of the package (without later packages)", len(own), 20)
    yield about("modules", len(house.modules), 230)
    yield about("lines", house.lines, 37_000)
    sizes = [module.lines for module in house.modules]
    yield spread("lines a file: median / p90 / max", sizes, (150, 350, 500))
    lengths = [length for module in house.modules for length in module.functions]
    yield spread("lines a function: median / p90 / max", lengths, (7, 19, 72))
    single = [name for name, importers in house.importers().items() if len(importers) == 1]
    early = [name for name in single if name.split(".")[1] not in LATER]
    yield below("modules imported by one other (without later packages)", len(early), 72)
    yield at_most("import cycles at run time", len(cycles(house.graph(typing=False))), 0)
    typed = cycles(house.graph(typing=True))
    yield at_most("import cycles with TYPE_CHECKING", len(typed), 1, _groups(typed))
    inner = sum(i.inner for every in house.imports.values() for i in every)
    yield below("imports of our own modules inside functions", inner, 15)
    thousand = house.lines / 1000
    comments = 100 * sum(module.comments for module in house.modules) / house.lines
    yield Figure("comments per 100 lines", f"{comments:.1f}", "about 4 to 6", comments >= 3.5)
    anys = sum(_names(module.tree, "Any") for module in house.modules)
    yield below("Any per 1,000 lines", anys / thousand, 8)
    ignores = sum(module.text.count("type: ignore") for module in house.modules)
    yield below("type: ignore per 1,000 lines", ignores / thousand, 1)
    yield at_most("functions above complexity 10", len(_complex()), 0)
    many = [place for module in house.modules for place in _positional(module)]
    yield at_most("calls with more than five positional arguments", len(many), 0)
    yield at_most("public class names that stand for several classes", len(_twice(house)), 0)
    steps = sum(_names(m.tree, "Step") for m in house.modules if not m.name.endswith(".step"))
    yield Figure(
        "uses of the Step protocol outside its module", str(steps), "at least 59", steps >= 59
    )


def _groups(found: list[list[str]]) -> str:
    return str(len(found)) + (f" (largest {max(map(len, found))})" if found else "")


def _names(tree: ast.AST, name: str) -> int:
    """Return how often a name is used, imports not counted."""
    return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _complex() -> list[Any]:
    command = [
        str(Path(sys.executable).with_name("ruff")), "check", str(PACKAGE), "--select", "C901",
        "--isolated", "--output-format", "json", "--config", "lint.mccabe.max-complexity=10",
    ]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found: list[Any] = json.loads(answer.stdout)
    return found


def _positional(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and len(node.args) > 5:
            starred = any(isinstance(a, ast.Starred) for a in node.args)
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if not starred and name not in {"print", "max", "min", "digest_of", "chain"}:
                yield f"{module.name}:{node.lineno}"


def _twice(house: House) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for module in house.modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return {name: where for name, where in places.items() if len(where) > 1}


class Hops:
    """Which modules a call enters, and how often it switches between them."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.switches = 0
        self._last = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        if file.startswith(str(PACKAGE)) and frame.f_code.co_name != "<module>":
            self.entered.add(file)
            self.switches += file != self._last
            self._last = file


def hops(work: Callable[[], Any]) -> Hops:
    """Return the modules that a piece of work enters, on every thread; the second run is counted."""
    import gc
    import threading

    work()
    gc.collect()  # what the first run left is not part of the second
    counter = Hops()
    threading.setprofile(counter)
    sys.setprofile(counter)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return counter


def _one_loop() -> Hops:
    from loopwright import Loop, MaxIterations, run_sync

    loop = Loop(lambda value: value, lambda output: 1.0, until=MaxIterations(1), name="one")
    with tempfile.TemporaryDirectory() as folder:
        return hops(lambda: run_sync(loop, "x", journal=f"sqlite:{folder}/runs.db"))


def _document(name: str) -> Hops:
    from loopwright import run_sync
    from loopwright.documents import Settings, load

    folder = ROOT / "examples" / "other_dialects"
    settings = Settings(model="scripted:replies", replies=str(folder / f"{name}_replies.yaml"))

    loaded = load(folder / f"{name}.yaml", settings)

    def work() -> None:
        with tempfile.TemporaryDirectory() as place:
            url = f"sqlite:{place}/runs.db"
            run_sync(loaded, "x", journal=url)

    return hops(work)


def distances() -> Iterator[Figure]:
    """Return how far one call goes through the modules."""
    one = _one_loop()
    yield at_most("modules that one loop of one iteration enters (SQLite)", len(one.entered), 28)
    yield at_most("switches between modules in that loop", one.switches, 180)
    for name, bound in (("announce", 50), ("debate", 58)):
        try:
            count = len(_document(name).entered)
        except Exception as error:
            yield Figure(
                f"modules that {name}.yaml enters", f"{error}"[:22], f"at most {bound}", False
            )
        else:
            yield at_most(f"modules that {name}.yaml enters", count, bound)


def main() -> int:
    """Print every figure, with the places behind a missed one under --verbose."""
    house = House()
    figures = [*structure(house), *distances()]
    for figure in figures:
        print(figure)
    if "--verbose" in sys.argv:
        for group in cycles(house.graph(typing=True)):
            print("cycle:", ", ".join(group))
        for name, where in sorted(_twice(house).items()):
            print("class:", name, ", ".join(where))
        for module in house.modules:
            for place in _positional(module):
                print("positional:", place)
        for one in _complex():
            print("complex:", one["filename"], one["message"])
        for name, importers in sorted(house.importers().items()):
            if len(importers) == 1:
                print("imported by one other:", name, "<-", *importers)
        for name, every in house.imports.items():
            for i in every:
                if i.inner:
                    print("inner import:", name, "->", i.target)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
