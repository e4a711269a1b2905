"""Draw the data: input and target of a few samples of every dataset, on their own positions."""

from flows.errors import BadInput
from flows.steps.data.datasets import location_of
from flows.steps.reports.pictures import length_unit
from lsm_core.experiments.protocols import PROTOCOLS
from lsm_core.names import PresetName
from lsm_core.reporting.document import Picture, Section, html_page
from lsm_core.reporting.figures import panel_figure
from storage.datasets.reader import open_dataset
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location

N_SAMPLES = 3


def write_data_report(root: Location, preset: PresetName) -> Location:
    """Write a page with a figure for each complete dataset of a preset, and return its place."""
    pictures = []
    for name, protocol in PROTOCOLS.items():
        plan = protocol.plans[preset]
        try:
            dataset = open_dataset(location_of(plan, root))
        except (NotADataset, DatasetIncomplete):
            continue
        samples = dataset.part("train", [v.name for v in plan.benchmark.variables])
        shown = [plan.benchmark.panels(samples[index]) for index in range(N_SAMPLES)]
        space = " × ".join(str(size) for size in plan.benchmark.shape.space)
        sizes = ", ".join(f"{size} {split}" for split, size in plan.split_sizes.items())
        caption = (
            f"{plan.benchmark.title} ({name}): three training samples, inputs above, targets "
            f"below, on their {space} points. Samples: {sizes}. Data {dataset.digest[:16]}."
        )
        pictures.append(Picture(panel_figure(shown, length_unit(plan.benchmark)), caption))
    if not pictures:
        raise BadInput(f"no dataset of preset {preset} is complete; run `lsm prepare` first")
    page = root / "reports" / f"data-{preset}" / "index.html"
    section = Section("Samples", tuple(pictures))
    page.write_bytes(html_page(f"Data of preset {preset}", "", [section]).encode())
    return page
