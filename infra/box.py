"""Fill the box of trained models from the finished runs of a store.

    .venv/bin/python -m infra.box STORE [--preset night] [--model lsm_ours] [PROBLEM ...]

Each problem's run with the least validation error becomes `flows/box/PROBLEM.safetensors`. It is
calibrated on samples of new seeds and measured on others, which the solver makes: a minute or two a
problem on a quiet machine, half an hour for plasticity. With a thousand of each, the coverage that
is seen lies within 2.7 % of what is stated for all but one model in twenty.
"""

import argparse
from pathlib import Path

from flows.errors import BadInput
from flows.steps.models.shipped import BOX
from flows.steps.models.shipping import Effort, best_runs, ship
from storage.errors import StorageError
from storage.location import Location


def main() -> int:
    """Write the files and print a line for each; 1 if there is nothing to ship or one fails."""
    options = _options()
    root = Location.parse(options.store)
    found = best_runs(root, options.preset, options.model)
    wanted = options.problems or sorted(found)
    effort = Effort(
        n_calibration=options.samples,
        n_held_out=options.held_out,
        seconds=options.seconds,
    )
    if not wanted:
        print(f"{root} has no finished run of {options.model} at preset {options.preset}")
    failed = not wanted
    for name in wanted:
        try:
            if name not in found:
                raise BadInput(f"{root} has no finished run of {options.model} on {name}")
            card = ship(found[name].identity, root, options.out, effort, print)
        except (BadInput, StorageError) as error:
            print(f"{name}: {error}")
            failed = True
            continue
        seen = card["held_out"]
        print(
            f"{name}: error {seen['rel_l2']:.4f} on {seen['samples']} samples, coverage "
            f"{seen['observed_coverage']:.3f} of {seen['stated_coverage']:.3f}, false alarms "
            f"{seen['observed_false_alarms']:.3f} of {seen['stated_false_alarms']:.3f}",
            flush=True,
        )
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m infra.box", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("store", help="root of all data, like LSM_STORE")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--preset", default="night")
    parser.add_argument("--model", default="lsm_ours")
    parser.add_argument("--samples", type=int, default=1000, help="to calibrate on")
    parser.add_argument("--held-out", type=int, default=1000, help="to measure on")
    parser.add_argument("--seconds", type=float, default=900.0, help="for each of the two")
    parser.add_argument("--out", type=Path, default=BOX)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    raise SystemExit(main())
