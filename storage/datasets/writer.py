"""Write a dataset: a template first, then blocks in any order, then the mark of completion.

    job = DatasetJob(location=location, schema=schema)
    for index in job.begin():                     template; the blocks that are missing
        job.write_block(index, samples)           whole shards and their record; any process
    job.finish()                                  verify, consolidate metadata, mark complete

Every step may be killed and called again. Blocks already recorded are kept. The records lie beside
the dataset until it is complete, so that a dataset in the making is never taken for a whole one.
So do single samples of problems that take long to solve, until their block is whole.
"""

import hashlib
import io
import json
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.errors import ContainsArrayError, ContainsGroupError, ZarrUserWarning
from zarr.storage import MemoryStore

from storage.datasets.schema import DatasetSchema, digest_of
from storage.errors import DatasetCorrupt, DatasetIncomplete, DatasetMismatch, NotADataset
from storage.location import Location

FORMAT = "lsm-dataset-1"


@dataclass(frozen=True, kw_only=True)
class DatasetJob:
    """A dataset on its way into the store: plain data that any process can take.

    The schema is made once, by whoever begins, so that all processes write for the same one.
    """

    location: Location
    schema: DatasetSchema

    def begin(self) -> list[int]:
        """Write the template, unless it is there already, and return the blocks to write."""
        attributes = read_attributes(self.location)
        if attributes is None:
            # Nothing, or a template that was cut off before its last write.
            with self.location.reached(writing=True):
                _write_template(self.location, self.schema)
        elif attributes.get("recipe") != self.schema.recipe:
            raise DatasetMismatch(
                f"{self.location} was written from recipe {str(attributes.get('recipe'))[:12]}, "
                f"but recipe {self.schema.recipe[:12]} was asked for; remove it or use another "
                "store"
            )
        return self.missing_blocks()

    def missing_blocks(self) -> list[int]:
        """Return the blocks that still have to be written, none if the dataset is complete."""
        if _is_complete(self.location):
            return []
        written = set(self._records.names())
        return [
            index for index in range(self.schema.n_blocks) if f"{index:06d}.json" not in written
        ]

    def write_block(self, index: int, samples: Mapping[str, np.ndarray]) -> None:
        """Write all variables of a block, each `(samples of the block, *shape)`, then its record.

        ValueError, and nothing is recorded, if they are not those of the schema.
        """
        with self.location.reached(writing=True):
            try:
                checksums = self._write_arrays(index, samples)
            except FileNotFoundError:
                # Another process that ends the same dataset swept up a file before it had its name.
                checksums = self._write_arrays(index, samples)
        self._record(index).write_bytes(json.dumps(checksums, sort_keys=True).encode())

    def finish(self) -> None:
        """Verify every block against its record and mark the dataset as complete.

        A dataset that an earlier version completed gets consolidated metadata, if it may be
        written to.
        """
        if _is_complete(self.location):
            # Damage is said by whoever reads it; for this alone nothing fails.
            with suppress(Exception):
                _consolidate_if_not(self.location)
        else:
            try:
                with self.location.reached(writing=True):
                    self._complete()
            except (DatasetIncomplete, DatasetCorrupt):
                # Another process may have ended it meanwhile, and removed the records.
                if not _is_complete(self.location):
                    raise
        self._records.remove()
        self._samples.remove()

    def written(self, name: str) -> np.ndarray:
        """Return a variable of all samples, as far as its blocks are written."""
        with self.location.reached():
            return np.asarray(_array(_open_group(self.location), name)[...])

    def is_complete(self) -> bool:
        """Return whether the dataset was marked complete."""
        return _is_complete(self.location)

    def discard(self) -> None:
        """Remove a dataset that is not to be."""
        for each in (self.location, self._records, self._samples):
            each.remove()

    def keep_sample(self, sample: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep a solved sample beside the dataset: a process that dies then loses no other."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **dict(arrays))
        self._sample(sample).write_bytes(buffer.getvalue())

    def kept_sample(self, sample: int) -> dict[str, np.ndarray] | None:
        """Return a sample that was kept, or None if it has to be solved."""
        try:
            content = self._sample(sample).read_bytes()
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return dict(file)
        except Exception:
            # numpy and zipfile raise whatever damaged bytes lead them to; solving mends it.
            return None

    def discard_samples(self, samples: Iterable[int]) -> None:
        """Forget kept samples whose block is written."""
        for sample in samples:
            self._sample(sample).remove()

    def _write_arrays(self, index: int, samples: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Write all variables of one block and return their checksums."""
        block = self.schema.block(index)
        group = _open_group(self.location)
        checksums = {}
        for variable in self.schema.variables:
            values = np.ascontiguousarray(samples[variable.name], dtype=variable.dtype)
            expected = (len(block), *variable.shape)
            if values.shape != expected:
                raise ValueError(
                    f"block {index} of {self.location} got {variable.name} of shape "
                    f"{values.shape}, expected {expected}"
                )
            if not np.isfinite(values).all() and variable.role != "parameter":
                raise ValueError(
                    f"block {index} of {self.location} got {variable.name} with NaN or infinity"
                )
            _array(group, variable.name)[block.start : block.stop] = values
            checksums[variable.name] = checksum_of(values)
        return checksums

    def _complete(self) -> None:
        missing, n_blocks = self.missing_blocks(), self.schema.n_blocks
        if missing:
            raise DatasetIncomplete(
                f"{self.location} has {n_blocks - len(missing)} of {n_blocks} blocks; "
                "prepare it again to write the others"
            )
        group = _open_group(self.location)
        checksums = [self._checksums_of(index) for index in range(n_blocks)]
        for variable in self.schema.variables:
            self._verify(variable.name, group, checksums)
        _remove_partial_files(self.location)
        # One write, unlike `attrs.update`: a dataset is never complete without its digest, nor
        # without the metadata that were consolidated just before, which this write repeats.
        _consolidated(self.location).update_attributes(
            {"complete": True, "blocks": checksums, "digest": digest_of(checksums)}
        )

    def _checksums_of(self, index: int) -> dict[str, str]:
        """Return the record of a block; a damaged one is removed, so that it is made again."""
        record = self._record(index)
        try:
            checksums = json.loads(record.read_bytes())
            return {each.name: str(checksums[each.name]) for each in self.schema.variables}
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError) as error:
            record.remove()
            raise DatasetCorrupt(
                f"the record of block {index} of {self.location} cannot be read ({error}); "
                "prepare it again and this block is written anew"
            ) from error

    def _verify(self, name: str, group: zarr.Group, checksums: list[dict[str, str]]) -> None:
        """Read a variable block by block; forget the record of one without its checksum."""
        for index, expected in enumerate(checksums):
            block = self.schema.block(index)
            with self.location.reached():
                try:
                    found = checksum_of(_array(group, name)[block.start : block.stop])
                except (ValueError, RuntimeError, KeyError, TypeError):
                    found = "none, since it cannot be decoded any more"
            if found != expected[name]:
                self._record(index).remove()
                raise DatasetCorrupt(
                    f"block {index} of {name} in {self.location} does not have the checksum it "
                    "was written with; prepare it again and this block is written anew"
                )

    @property
    def _records(self) -> Location:
        return Location(f"{self.location.url}.blocks")

    def _record(self, index: int) -> Location:
        return self._records / f"{index:06d}.json"

    @property
    def _samples(self) -> Location:
        return Location(f"{self.location.url}.samples")

    def _sample(self, sample: int) -> Location:
        return self._samples / f"{sample:06d}.npz"


def read_attributes(location: Location) -> dict[str, Any] | None:
    """Return the attributes of a dataset begun or complete, or None if there is none.

    NotADataset if something else lies there: it is left alone.
    """
    names = [name for name in location.names() if not name.endswith(".partial")]
    if not names and not location.exists():
        return None
    try:
        metadata = json.loads((location / "zarr.json").read_bytes())
        attributes = dict(metadata.get("attributes", {}))
    except FileNotFoundError:
        attributes = {}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise NotADataset(f"{location} is not a dataset of this program: {error}") from error
    if attributes.get("format") == FORMAT:
        return attributes if "recipe" in attributes else None
    if not names:
        return None
    raise NotADataset(
        f"{location} is not a dataset of this program: it holds {', '.join(names[:3])} and no "
        f"zarr.json with format {FORMAT}; move it away or use another store"
    )


def checksum_of(values: Any) -> str:
    """Return the sha256 of the values of an array."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _is_complete(location: Location) -> bool:
    attributes = read_attributes(location)
    return attributes is not None and bool(attributes.get("complete"))


def _open_group(location: Location) -> zarr.Group:
    return zarr.open_group(location.zarr_store(), mode="r+", use_consolidated=False)


def _consolidate_if_not(location: Location) -> None:
    metadata = json.loads((location / "zarr.json").read_bytes())
    if "consolidated_metadata" not in metadata:
        with location.reached(writing=True):
            _consolidated(location)


def _consolidated(location: Location) -> zarr.Group:
    """Write the metadata of all arrays into the group's and return it.

    Other programs then open a dataset by one request, and without a warning.
    """
    with warnings.catch_warnings():
        # Readers that do not know them look at the arrays themselves: nothing depends on it.
        warnings.filterwarnings("ignore", "Consolidated metadata is curr", ZarrUserWarning)
        return zarr.consolidate_metadata(location.zarr_store())


def _write_template(location: Location, schema: DatasetSchema) -> None:
    group = zarr.open_group(
        location.zarr_store(),
        mode="a",
        zarr_format=3,
        use_consolidated=False,
        # With the first write: what a writer leaves that is killed here is known as its own.
        attributes={"format": FORMAT},
    )
    for variable in schema.variables:
        chunk = schema.samples_per_chunk(variable)
        _ensure_array(
            group,
            variable.name,
            shape=(schema.n_samples, *variable.shape),
            dtype=variable.dtype,
            chunks=(chunk, *variable.shape),
            shards=(
                None
                if chunk == schema.samples_per_block
                else (schema.samples_per_block, *variable.shape)
            ),
            # A block that was never written reads as NaN (or -1), not as a plausible zero.
            fill_value=np.nan if np.dtype(variable.dtype).kind == "f" else -1,
            # With its own checksum: a reader notices a bit that turned on the disk.
            compressors=[ZstdCodec(level=1, checksum=True)],
            dimension_names=("sample", *variable.dims),
            attributes={
                "role": variable.role,
                "units": variable.unit,
                "long_name": variable.description,
            },
        )
    meanings = {"flag_values": [0, 1, 2], "flag_meanings": "train validation test"}
    along: dict[str, tuple[str, np.ndarray, dict[str, Any]]] = {
        **{name: (name, values, {}) for name, values in schema.coordinates.items()},
        "split": ("sample", schema.split, meanings),
    }
    for name, (dim, values, attributes) in along.items():
        array = _ensure_array(
            group,
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=values.shape,
            dimension_names=(dim,),
            attributes=attributes,
        )
        array[...] = values
    # The recipe is written last: with it the template is whole.
    group.attrs.update(
        {
            **schema.attributes,
            "provenance": schema.provenance,
            "environment": schema.environment,
            "split_sizes": schema.split_sizes,
            "samples_per_block": schema.samples_per_block,
            "complete": False,
            "recipe": schema.recipe,
        }
    )


def _ensure_array(group: zarr.Group, name: str, **settings: Any) -> "zarr.Array[Any]":
    """Return the array of these settings: the one that is there, or a new one.

    What another process has written into it stays. An array of other settings, which a template
    that was cut off may have left, is replaced.
    """
    expected = zarr.create_array(MemoryStore(), **settings)
    for _ in range(2):
        try:
            found = group.get(name)
        except (ValueError, KeyError, TypeError):
            found = None
        if isinstance(found, zarr.Array) and _written(found) == _written(expected):
            return found
        # Not with `overwrite` at once: another process that has made it just now may have written
        # into it, too. Of two that make it at the same time, both write the same metadata.
        with suppress(ContainsArrayError, ContainsGroupError):
            return group.create_array(name, **settings)
    return group.create_array(name, **settings, overwrite=True)


def _written(array: "zarr.Array[Any]") -> bytes:
    """Return the metadata of an array as it is stored; as objects NaN would not equal NaN."""
    (content,) = array.metadata.to_buffer_dict(default_buffer_prototype()).values()
    return content.to_bytes()


def _array(group: zarr.Group, name: str) -> "zarr.Array[Any]":
    array = group[name]
    assert isinstance(array, zarr.Array)
    return array


def _remove_partial_files(location: Location) -> None:
    """Remove what a killed writer left behind; zarr renames whole files into place."""
    if location.local_path is not None:
        for partial in location.local_path.rglob("*.partial"):
            partial.unlink(missing_ok=True)
