"""What a run has otherwise than its preset: such runs are no further seeds of it."""

import json
from dataclasses import asdict
from typing import Any

from lsm_core.experiments.presets import experiment
from lsm_core.reporting.comparison import start_and_data


def own_settings(result: dict[str, Any]) -> str:
    """Return in what a run differs from its preset, like `epochs 300, selection best_test`.

    Empty if in nothing. What the preset did not know when the run was made is as it was then. A
    source and a part of the data are said with the rest, but not alone: they are no settings of a
    preset.
    """
    settings = result.get("settings", {})
    try:
        whole = experiment(
            result["preset"], result["benchmark"], result["model"], int(result["seed"])
        )
    except (KeyError, ValueError):
        return ""  # made by a preset or a model that is not here any more
    pairs = (
        (settings.get("training", {}), asdict(whole.training)),
        (settings.get("model", {}), asdict(whole.model)),
    )
    changes = [
        f"{name} {own[name]}"
        for own, preset in pairs
        for name, value in json.loads(json.dumps(preset)).items()
        if name in own and name != "fraction" and own[name] != value
    ]
    return ", ".join(part for part in (start_and_data(result), *changes) if part) if changes else ""
