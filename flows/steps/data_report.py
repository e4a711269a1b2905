"""Draw the data: input and target of a few samples of every dataset, on their own positions."""

from flows.errors import BadInput
from flows.steps.datasets import find
from flows.steps.report_pictures import length_unit
from lsm_core.experiments.data_plans import DATA_PLANS
from lsm_core.names import PresetName
from lsm_core.reporting.document import Picture, gallery_page
from lsm_core.reporting.figures import panel_figure
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location

N_SAMPLES = 3


def write_data_report(root: Location, preset: PresetName) -> Location:
    """Write a page with a figure for each complete dataset of a preset, and return its place."""
    pictures = []
    for name, plans in DATA_PLANS.items():
        plan = plans[preset]
        try:
            dataset = find(plan, root)
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
    page.write_bytes(gallery_page(f"Data of preset {preset}", pictures).encode())
    return page
