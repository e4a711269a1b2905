"""Flow `ingest`: files of one's own, as a problem that has a name like a benchmark."""

from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from flows.engine.progress import current_progress
from flows.engine.run_names import named
from flows.engine.tasks import PAUSES, announce_dataset, may_help
from flows.settings import Settings, current_settings


def _name(parameters: dict[str, Any]) -> str:
    return f"ingest-{parameters['declaration'].get('name', '')}: {len(parameters['files'])} files"


@flow(name="ingest", flow_run_name=named(_name))
def ingest(files: list[str], declaration: dict[str, Any]) -> dict[str, Any]:
    """Bring files into the store under a name that works wherever a benchmark's does.

    What is there already is kept: a run that was cut off goes on.

    Args:
        files: Files, or folders of them, on the machine that runs this.
        declaration: What they hold, as `lsm ingest` shows it: a name, the geometry, the variables
            with their roles and axes, and how samples are split.

    """
    facts = ingest_files(files, declaration, current_settings())
    page = f"`{facts['name']}`: {facts['samples']} samples in `{facts['dataset']}`"
    create_markdown_artifact(page, key="ingested", description="Data that was brought")
    return facts


@task(
    name="ingest-files",
    retries=len(PAUSES),
    retry_delay_seconds=PAUSES,
    retry_condition_fn=may_help,
    cache_policy=NO_CACHE,  # the store itself knows which blocks it has
)
def ingest_files(
    files: list[str], declaration: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    """Write the blocks that a dataset of files lacks, here or on a cluster; return what it is."""
    from pathlib import Path

    from flows.steps.data.compute import map_unordered
    from flows.steps.data.declaration import Declaration
    from flows.steps.data.file_arrays import files_of
    from flows.steps.data.ingestion import Ingestion, keep_problem, plan_ingestion, problem_facts
    from storage.runs.leases import Leases

    declared = Declaration.from_plain(declaration)
    title, progress = f"ingest {declared.name}", current_progress()
    progress.update(title, 0, 1, "looking at the files")
    job = plan_ingestion(declared, files_of(Path(each) for each in files), settings.root)
    total = job.schema.n_blocks
    with Leases(settings.root / "claims").hold(
        f"dataset-{job.schema.recipe}", lambda: progress.update(title, 0, total, "another has it")
    ):
        missing = job.begin()
        done = total - len(missing)
        progress.update(title, done, total)
        for _ in map_unordered(
            Ingestion.ingest_block,
            [(job, index) for index in missing],
            n_workers=settings.n_workers,
            dask_address=settings.dask_address,
        ):
            done += 1
            progress.update(title, done, total)
        keep_problem(job, settings.root)
    if missing:
        announce_dataset(declared.name, job.location.url)
    return problem_facts(job)
