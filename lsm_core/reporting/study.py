"""The table of a study."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any


def study_table(results: Sequence[dict[str, Any]]) -> str:
    """Return settings and their errors as Markdown, mean and deviation over the seeds."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["benchmark"], result["setting"]), []).append(result)
    lines = [
        "| benchmark | setting | validation | test | parameters | seconds an epoch |",
        "|---|---|---|---|---|---|",
    ]
    for (benchmark, setting), some in groups.items():
        done = [result for result in some if "error" not in result]
        if not done:
            lines.append(f"| {benchmark} | {setting} | failed | failed | | |")
            continue
        errors = [_with_deviation([r[part]["rel_l2"] for r in done if r[part]]) for part in PARTS]
        seconds = mean(result["seconds_per_epoch"] for result in done)
        lines.append(
            f"| {benchmark} | {setting} | {' | '.join(errors)} | {done[0]['parameters']:,} "
            f"| {seconds:.2f} |"
        )
    return "\n".join(lines)


PARTS = ("validation", "test")


def _with_deviation(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {stdev(values):.5f}" if len(values) > 1 else ""
    return f"{mean(values):.5f}{spread}"
