"""What of a store nothing refers to any more, and how it is freed.

    found = unused(root, uri)            datasets, weights and added samples, each with the reason
    freed = free(found, root, uri)       what of that was still unused when nobody could begin it

A dataset is in use as long as a run of a comparison, a registered model, a run that is not finished
or a cell that waits has it as its data, a preset is of it, or it is what a name means that somebody
gave to data of his own. Of retrainings, weights and samples
are in use as long as their model is registered. Results are never freed.

Whoever begins a cell notes it (`experiments/`) before its dataset is asked for, and asks under a
lease. What is freed is leased first and looked at again then: a training that begins meanwhile
either is seen, or waits and makes the data anew.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from flows.steps.data.datasets import location_of
from flows.steps.data.given import given_names, given_plan
from flows.steps.results import begun_in, result_in
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.protocols import data_plan
from lsm_core.names import BenchmarkName, PresetName
from lsm_core.result import Begun, Result
from storage.datasets.writer import read_attributes
from storage.errors import StorageError
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.runs.leases import Leases
from storage.tracking.registry import ModelRegistry

RETRAINED, CONTROL = "retrain", "control"
WEIGHTS = (".checkpoint", ".sha256", ".weights")


@dataclass(frozen=True, kw_only=True)
class Unused:
    """Something that nothing refers to."""

    kind: Literal["dataset", "weights", "samples"]
    place: Location
    lease: str
    """What whoever uses it leases."""
    why: str
    n_bytes: int = field(compare=False)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "place": str(self.place)}


def unused(
    root: Location,
    tracking_uri: str,
    benchmark: str | None = None,
    *,
    retrained_only: bool = False,
) -> list[Unused]:
    """Return what nothing refers to, of one problem or of all; of retrainings alone if asked."""
    uses = _Uses(root, tracking_uri, presets=not retrained_only)
    folders = [benchmark] if benchmark else (root / "datasets").names()
    found = [*uses.unused_weights(benchmark)]
    for name in folders:
        found += uses.unused_datasets(name, retrained_only)
        found += uses.unused_samples(name)
    return found


def free(found: Sequence[Unused], root: Location, tracking_uri: str) -> list[Unused]:
    """Free what is still unused once nobody else can begin to use it, and return that.

    What others have in hand is left.
    """
    leases, freed = Leases(root / "claims"), []
    with ExitStack() as held:
        mine = []
        for each in found:
            lease = leases.acquire(each.lease)
            if lease is not None:
                held.callback(lease.release)
                mine.append(each)
        still = unused(root, tracking_uri)
        for each in mine:
            if each in still:
                _remove(each)
                freed.append(each)
    return freed


def _remove(each: Unused) -> None:
    if each.kind == "weights":
        for name in each.place.names():
            if name.endswith(WEIGHTS):
                (each.place / name).remove()
        return
    if each.kind == "dataset":
        # First no longer complete: one that is half removed is begun anew, never read.
        metadata = json.loads((each.place / "zarr.json").read_bytes())
        metadata["attributes"]["complete"] = False
        (each.place / "zarr.json").write_bytes(json.dumps(metadata).encode())
        for name in each.place.names():
            if name != "zarr.json":
                (each.place / name).remove()
    each.place.remove()


class _Uses:
    """Which runs there are, and what the registry, comparisons and presets have use for."""

    def __init__(self, root: Location, tracking_uri: str, *, presets: bool) -> None:
        self.root = root
        self.runs: dict[str, Result | Begun] = {}
        for identity in (root / "checkpoints").names():
            checkpoints = Checkpoints(root / "checkpoints" / identity)
            run = result_in(checkpoints) or begun_in(checkpoints)
            if run is not None:
                self.runs[identity] = run
        self._read_registry(ModelRegistry(tracking_uri, root))
        self.needed = {run for run in self.runs if self._is_needed(run)}
        self.datasets = {self.runs[run].dataset.name for run in self.needed}
        self.samples = {each for run in self.needed for each in _digests(self.runs[run].settings)}
        for plain in self._waiting():
            data = Experiment.from_plain(plain["protocol"]).data
            self.datasets.add(location_of(data, root).name)
            self.samples |= _digests(plain["protocol"])
            self.needed.add(str(plain["source"]))
        # What somebody brought is not made anew: it stays as long as it has its name.
        self.datasets |= {given_plan(name, root).dataset for name in given_names(root)}
        if presets:
            for name in get_args(BenchmarkName):
                plans = {data_plan(preset, name) for preset in get_args(PresetName)}
                self.datasets |= {location_of(plan, root).name for plan in plans}

    def _read_registry(self, registry: ModelRegistry) -> None:
        self.registered, self.retired, self.in_use = set[str](), set[str](), set[str]()
        for name in registry.record.names():
            state = registry.state(name)
            self.registered |= {tags.get("identity", "") for tags in state.versions.values()}
            self.in_use |= {state.versions[n].get("identity", "") for n in state.in_use}
            for change in registry.record.history(name):
                known = change.versions.values()
                self.retired |= {tags["identity"] for tags in known if "identity" in tags}
        self.retired -= self.registered

    def _is_needed(self, identity: str) -> bool:
        run = self.runs[identity]
        if run.study != RETRAINED or not isinstance(run, Result):
            return True
        if run.setting == CONTROL:
            return run.source in self.in_use
        return identity not in self.retired

    def _waiting(self) -> Iterator[dict[str, Any]]:
        """Yield cells that were asked for and have no result yet."""
        for name in (self.root / "experiments").names():
            run = self.runs.get(name.removesuffix(".json"))
            if isinstance(run, Result):
                continue
            with suppress(FileNotFoundError, KeyError, TypeError, ValueError):
                plain = json.loads((self.root / "experiments" / name).read_bytes())
                while isinstance(plain, dict):
                    yield plain
                    plain = plain["source"]

    def unused_weights(self, benchmark: str | None) -> Iterator[Unused]:
        for identity, run in self.runs.items():
            place = self.root / "checkpoints" / identity
            if identity in self.needed or (benchmark and run.benchmark != benchmark):
                continue
            if any(name.endswith(WEIGHTS) for name in place.names()):
                why = "its champion has gone" if run.setting == CONTROL else "it is retired"
                yield Unused(
                    kind="weights", place=place, lease=identity, why=why, n_bytes=place.n_bytes()
                )

    def unused_datasets(self, benchmark: str, retrained_only: bool) -> Iterator[Unused]:
        folder = self.root / "datasets" / benchmark
        known = {}
        for name in folder.names():
            with suppress(StorageError):
                attributes = read_attributes(folder / name) if name.endswith(".zarr") else None
                if attributes and attributes.get("provenance", {}).get("kind") == "generated":
                    known[name] = attributes
        tests = [name for name, each in known.items() if not _size(each, "train")]
        largest = max(tests, key=lambda name: _size(known[name], "test"), default="")
        trained = {run.dataset.name for run in self.runs.values()}
        for name, attributes in known.items():
            if name in self.datasets or name == largest:
                continue
            if name in tests:
                why = f"{largest} has all its samples"
            elif name in trained:
                why = "the models of it are retired"
            elif retrained_only:
                continue
            else:
                why = "no run is of it"
            yield Unused(
                kind="dataset",
                place=folder / name,
                lease=f"dataset-{attributes['recipe']}",
                why=why,
                n_bytes=(folder / name).n_bytes(),
            )

    def unused_samples(self, benchmark: str) -> Iterator[Unused]:
        folder = self.root / "added" / benchmark
        used = {each for run in self.runs.values() for each in _digests(run.settings)}
        for name in folder.names():
            digest = name.removesuffix(".npz")
            # A file that no run was of yet waits for its retraining.
            if digest in used - self.samples:
                yield Unused(
                    kind="samples",
                    place=folder / name,
                    lease=f"retrain-{benchmark}-samples",
                    why="the models of them are retired",
                    n_bytes=(folder / name).n_bytes(),
                )


def _digests(settings: Any) -> set[str]:
    """Return the files that the data of a run have samples of."""
    return {str(each["digest"]) for each in settings.get("data", {}).get("added", [])}


def _size(attributes: Any, split: str) -> int:
    return int(attributes.get("split_sizes", {}).get(split, 0))
