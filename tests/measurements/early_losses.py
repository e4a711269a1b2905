"""Store the losses of the first epochs anew: `python -m tests.measurements.early_losses`.

After a change that is meant to move them; a test compares with what is stored.
"""

import json

from tests.lsm_core.experiments.learning import CHEAPEST, EARLY_LOSSES, early_losses


def main() -> None:
    """Train every model for a few epochs on its cheapest problem and write the losses."""
    stored = {}
    for model, benchmark in CHEAPEST.items():
        stored[model] = [round(loss, 4) for loss in early_losses(model)]
        print(f"{model:9s} {benchmark:14s} {stored[model]}", flush=True)
    lines = ",\n".join(f'  "{model}": {json.dumps(losses)}' for model, losses in stored.items())
    EARLY_LOSSES.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
