"""Try every fault and print the table: `python -m tests.faults`, or `make faults`.

    python -m tests.faults --only "training process killed" --trials 5
    python -m tests.faults --page infra/faults.md

Trials that an earlier call has made are not made again, unless `--results` names another file; nor
are those of rows that the page has. A row that is removed from it is tried anew.
"""

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.faults import cells, page, work
from tests.faults.catalogue import FAULTS
from tests.faults.table import (
    keep_results,
    kept_promises,
    markdown_table,
    read_results,
    try_faults,
)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every promise was kept in every trial."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="FAULT", choices=[f.name for f in FAULTS])
    parser.add_argument("--trials", type=int, help="trials of each fault; its own number otherwise")
    parser.add_argument("--results", type=Path, default=Path(".lsm/faults.json"))
    parser.add_argument("--page", type=Path, help="write the table with its protocol here, too")
    options = parser.parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.page and options.page.exists() and not options.results.exists():
        keep_results(options.results, kept_promises(options.page.read_text()))
    work.prepare_children()
    chosen = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, closing(cells.shared):
        for name, tally in try_faults(chosen, options.results, Path(folder), options.trials):
            print(f"{name}: {tally.tried} tried, {tally.lost} lost", file=sys.stderr, flush=True)
    results = read_results(options.results)
    print(markdown_table(chosen, results))
    if options.page:
        options.page.write_text(page.page(FAULTS, results))
    failures = [f"{name}: {each}" for name, tally in results.items() for each in tally.failures]
    print("\n".join(failures), file=sys.stderr)
    return 0 if all(tally.is_clean for tally in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
