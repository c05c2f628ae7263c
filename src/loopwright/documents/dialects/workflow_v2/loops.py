"""The loops of `workflow/v2.0` as native loops: until a condition holds, or over a list."""

from __future__ import annotations

from ....conditions import CEILING
from ....records.codec import Json
from ...yaml.reader import Location
from .names import Place
from .schema import LoopV2
from .steps import StepTranslator, TranslatedStep, call_settings

__all__ = ["WORKERS", "native_loop"]

WORKERS = 3  # the dialect's default for `parallel: true` without a number


def native_loop(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> None:
    """Translate a loop to a native loop, or to a native step over a list."""
    element.places |= {("loop",): at, ("each",): at}
    for kind in ("loop", "each"):
        element.places[kind, "execute", "with"] = (*at, "with")
        element.places[kind, "execute", "workflow"] = (*at, "workflow")
    _check_mode(translator, spec, at)
    if spec.mode == "iterate":
        element.native["each"] = _each(translator, spec, element, at)
    else:
        element.native["loop"] = _refine(translator, spec, element, at)
    element.native |= {"otherwise": ""}
    if spec.required:
        element.native["required"] = True
    if spec.accept:
        element.native["accept"] = spec.accept
        element.places[("accept",)] = (*at, "accept")
    # With a success rate, the rate decides whether the step fails.
    if spec.on_failure == "continue" and not spec.min_success_rate:
        element.native["on_failure"] = "continue"


def _refine(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> dict[str, Json]:
    until = translator.text(
        element, (*at, "until"), spec.until or "", Place(element.name, "until", "refine")
    )
    judge = {"criterion": until, "style": "yes_no", **_judge(translator, spec, at)}
    element.places["loop", "evaluate", "judge"] = (*at, "until")
    element.places["loop", "evaluate", "judge", "model"] = (*at, "judge", "provider")
    native: dict[str, Json] = {
        "execute": _child(translator, spec, element, at),
        "evaluate": {"judge": judge},
        "until": "passed",
        "max_iterations": spec.max_iterations,
        "keep": "last",  # this dialect has no scores, so there is no best iteration
        **_failure_settings(spec),
    }
    if spec.total_timeout is not None:
        native["guards"] = {"timeout": spec.total_timeout}
    return native


def _judge(translator: StepTranslator, spec: LoopV2, at: Location) -> dict[str, Json]:
    if spec.judge is None:
        return {}
    model = translator.model(spec.judge, [translator.execution], (*at, "judge"))
    native = call_settings(spec.judge)
    return {"model": model, **native} if model is not None else native


def _each(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> dict[str, Json]:
    place = Place(element.name, "items", "iterate")
    items = translator.value(element, (*at, "items"), spec.items, place)
    element.places["each", "items"] = (*at, "items")
    native: dict[str, Json] = {
        "items": items,
        "execute": _child(translator, spec, element, at),
        "keep": "last",
        **_failure_settings(spec),
    }
    if spec.max_iterations is not None:
        native["max_items"] = spec.max_iterations
    if spec.parallel:
        native["at_once"] = spec.max_workers or WORKERS
    # In this dialect a list succeeds without a rate, also if items fail; natively all must succeed.
    native["min_success_rate"] = spec.min_success_rate or 0.0
    if spec.min_success_rate is not None:
        native["unmet"] = "failed"
    if spec.timeout_per_item is not None:
        native["item_timeout"] = spec.timeout_per_item
    if spec.total_timeout is not None:
        native["timeout"] = spec.total_timeout
    return native


def _child(
    translator: StepTranslator, spec: LoopV2, element: TranslatedStep, at: Location
) -> dict[str, Json]:
    """Return the call of a loop's workflow.

    Without `with` its input is the output of the last iteration, or the item.
    """
    place = Place(element.name, "with", spec.mode)
    value = translator.variables(element, (*at, "with"), spec.with_ or {}, place)
    native: dict[str, Json] = {"workflow": spec.workflow}
    if spec.mode == "iterate":
        item = "{{ loop.current }}"
        native["with"] = {**value, "item": item} if value else {"item": item, "input": item}
    elif value:
        native["with"] = value
    else:
        native["input"] = "{{ loop.output }}"
    if spec.mode == "refine" and spec.timeout_per_item is not None:
        native["timeout"] = spec.timeout_per_item
    return native


def _check_mode(translator: StepTranslator, spec: LoopV2, at: Location) -> None:
    """Report the fields that a loop's mode lacks, and note those without effect."""
    if spec.mode == "refine":
        _check_refine(translator, spec, at)
    else:
        _check_iterate(translator, spec, at)
    if spec.max_workers is not None and not spec.parallel:
        translator.report((*at, "max_workers"), "max_workers needs parallel: true")


def _check_refine(translator: StepTranslator, spec: LoopV2, at: Location) -> None:
    until = spec.until or ""
    if not until.strip():
        translator.report(
            at, "needs 'until': the sentence that a model judges after each iteration"
        )
    if spec.items is not None:
        translator.report((*at, "items"), "items belong to mode: iterate")
    if spec.max_iterations is not None and spec.max_iterations > CEILING:
        what = f"{spec.max_iterations} is above the ceiling of {CEILING}"
        translator.report((*at, "max_iterations"), what)
    if spec.parallel:
        what = (
            "each iteration needs the output of the previous one, so they run one after the other"
        )
        translator.note((*at, "parallel"), what)
    if spec.min_success_rate is not None:
        translator.note((*at, "min_success_rate"), "this applies to mode: iterate only")
    if "{{" in until:
        what = "a condition that quotes the output reveals the answer to the judge"
        translator.note((*at, "until"), what)


def _check_iterate(translator: StepTranslator, spec: LoopV2, at: Location) -> None:
    if spec.items in (None, ""):
        translator.report(at, "needs 'items': a list, or text that contains one")
    if spec.until is not None:
        what = "a loop over items ends with the last item; until has no effect"
        translator.note((*at, "until"), what)


def _failure_settings(spec: LoopV2) -> dict[str, Json]:
    """Return the failure handling of a loop; the default is to halt."""
    if spec.on_failure in (None, "halt", "fail"):
        return {}
    native: dict[str, Json] = {"on_failure": spec.on_failure}
    if spec.on_failure == "continue" and spec.mode != "iterate":
        native["max_failures"] = "none"  # it continues to max_iterations
    if spec.on_failure == "retry":
        if spec.max_retries is not None:
            native["max_retries"] = spec.max_retries
        if spec.retry_delay is not None:
            native["retry_delay"] = spec.retry_delay
    return native
