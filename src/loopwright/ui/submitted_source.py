"""How workers load the source of a submitted run, and how they trust what it does."""

from __future__ import annotations

from collections.abc import Callable

from ..cluster.carried import carry
from ..cluster.shared_runs import CARRIED
from ..errors import ConfigurationError
from ..records.codec import Json
from .consent import actions_text, is_approved, trust_contents
from .sources import RunSource


def carried_source(
    source: RunSource, note: Callable[[str], None], *, yes: bool
) -> tuple[dict[str, Json], str]:
    """Return how workers load a source, and how other machines trust it.

    Its contents are trusted here if they are approved.
    """
    if "python" in source.source:
        if (kind := getattr(source, "kind", "step")) != "step":
            note(
                f"{source.source['python']} is a {kind}, and a worker with --root runs only steps: decorate a function "
                "with @step. Other workers run it if they register it"
            )
        # A folder of this machine means nothing to a worker, which has its own --root.
        return {key: value for key, value in source.source.items() if key != "root"}, ""
    actions = source.local_actions()
    contents = dict(actions.contents) if actions is not None else {}
    # A submission reads the files that a model may receive, and a worker sends them.
    if actions is not None and actions.files and not (yes or is_approved(actions)):
        raise ConfigurationError(
            f"{source.name} needs your approval: it {actions_text(actions)}. Review it with loopwright check, then "
            "approve it with --yes."
        )
    acts = actions is not None and actions.acts
    data = carry(source, contents, acts=acts)  # type: ignore[arg-type]
    digest = str(data[CARRIED]["digest"])
    # Who names functions by --agent chose them; the workers still decide.
    if not acts and "agents" not in data:
        return data, ""
    if yes or is_approved(actions):
        trust_contents(digest, note)
    does = (
        actions_text(actions) if actions is not None and acts else "runs the functions of --agent"
    )
    return data, (
        f"{source.name} {does}: other machines run it with loopwright worker start --trust {digest[:16]}"
    )
