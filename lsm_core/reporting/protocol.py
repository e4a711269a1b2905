"""What the runs were made with, beside what the paper used."""

from collections.abc import Sequence
from typing import Any

from lsm_core.reporting.comparison import describe_data, finished, grouped
from lsm_core.reporting.published_results import published_tables
from lsm_core.reporting.tables import Table, table_of
from lsm_core.result import Outcome, Result


def protocol_table(results: Sequence[Result]) -> Table:
    """Return sizes, epochs and widths of every benchmark, ours and the paper's."""
    paper = published_tables()["protocol"]
    lines = []
    for benchmark, some in grouped(results, lambda result: result.benchmark).items():
        known = paper["benchmarks"].get(benchmark, {})
        sizes = some[0].settings["data"]["split_sizes"]
        widths = next((lsm_widths(r) for r in some if r.model == "lsm"), None)
        batch = _range(r.settings["training"]["batch_size"] for r in some)
        lines.append(
            {
                "benchmark": benchmark,
                "training samples": _both(_range(r.n_train for r in some), known.get("n_train")),
                "test samples": _both(sizes["test"], known.get("n_test")),
                "points": _both(
                    _joined("×", some[0].resolution), _joined("×", known.get("points"))
                ),
                "epochs": _both(_range(r.epochs for r in some), paper["epochs"]),
                "batch": _both(batch, paper["batch_size"]),
                "widths of LSM": _both(_joined("-", widths), _joined("-", paper["lsm_widths"])),
                "seeds": _both(len({r.seed for r in some}), paper["seeds"]),
            }
        )
    caption = (
        "What differs in protocol: ours, and the paper's in brackets (a dash where it does not "
        f"say). {describe_data(results)}; the paper's times are of {paper['hardware']}."
    )
    return table_of(lines, caption)


def protocol_sentence(results: Sequence[Outcome]) -> str:
    """Return with how much data and training some results were made."""
    done = finished(results)
    if not done:
        return "Every run failed."
    paper = published_tables()["protocol"]
    parts = []
    for benchmark, some in grouped(done, lambda result: result.benchmark).items():
        samples = _range(r.n_train for r in some)
        epochs = _range(r.epochs for r in some)
        parts.append(f"{benchmark}: {samples} training samples, {epochs} epochs")
    seeds = len({result.seed for result in done})
    is_ours = all(result.origin == "generated" for result in done)
    data = "" if is_ours else f" {describe_data(done)}."
    return (
        f"Measured with {'; '.join(parts)}; {seeds} {'seed' if seeds == 1 else 'seeds'}. The paper "
        f"trains {paper['epochs']} epochs on its full data, {paper['seeds']} times.{data}"
    )


def lsm_widths(result: Result) -> list[int] | None:
    """Return the widths of an LSM, also of one inside a model on points."""
    model: dict[str, Any] = result.settings["model"]
    widths = model.get("body", model).get("widths")
    return None if widths is None else list(widths)


def _both(ours: Any, published: Any) -> str:
    shown = ("–" if value in (None, "") else str(value) for value in (ours, published))
    return "{} ({})".format(*shown)


def _range(values: Any) -> str:
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _joined(sign: str, sizes: Sequence[int] | None) -> str:
    return sign.join(str(size) for size in sizes or ())
