"""Write a dataset: a template first, then blocks in any order, then the mark of completion.

    start_dataset(location, schema)               metadata only
    write_block(location, schema, i, samples)     whole shards and their record; any process
    finish_dataset(location, schema)              verify, add statistics, mark complete

Every step may be killed and called again. Blocks already recorded are kept. The records lie beside
the dataset until it is complete, so that a dataset in the making is never taken for a whole one.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import MemoryStore

from storage.dataset_schema import DatasetSchema, VariableSchema, digest_of
from storage.errors import DatasetCorrupt, DatasetIncomplete, DatasetMismatch, NotADataset
from storage.location import Location
from storage.statistics import RunningStatistics

FORMAT = "lsm-dataset-1"


def start_dataset(location: Location, schema: DatasetSchema) -> None:
    """Write the template, unless this dataset was begun or ended already."""
    attributes = read_attributes(location)
    if attributes is None:
        # Nothing, or a template that was cut off before its last write.
        with location.reached(writing=True):
            _write_template(location, schema)
    elif attributes.get("recipe") != schema.recipe:
        raise DatasetMismatch(
            f"{location} was written from recipe {str(attributes.get('recipe'))[:12]}, "
            f"but recipe {schema.recipe[:12]} was asked for; remove it or use another store"
        )


def write_block(
    location: Location, schema: DatasetSchema, index: int, samples: Mapping[str, np.ndarray]
) -> None:
    """Write all variables of one block, each `(samples of the block, *shape)`, then its record."""
    with location.reached(writing=True):
        try:
            checksums = _write_arrays(location, schema, index, samples)
        except FileNotFoundError:
            # Another process that ends the same dataset swept up a file before it had its name.
            checksums = _write_arrays(location, schema, index, samples)
    _record(location, index).write_bytes(json.dumps(checksums, sort_keys=True).encode())


def _write_arrays(
    location: Location, schema: DatasetSchema, index: int, samples: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """Write all variables of one block and return their checksums."""
    block = schema.block(index)
    group = zarr.open_group(location.zarr_store(), mode="r+", use_consolidated=False)
    checksums = {}
    for variable in schema.variables:
        values = np.ascontiguousarray(samples[variable.name], dtype=variable.dtype)
        expected = (len(block), *variable.shape)
        if values.shape != expected:
            raise ValueError(
                f"block {index} of {location} got {variable.name} of shape {values.shape}, "
                f"expected {expected}"
            )
        if not np.isfinite(values).all() and variable.role != "parameter":
            raise ValueError(
                f"block {index} of {location} got {variable.name} with NaN or infinity"
            )
        _array(group, variable.name)[block.start : block.stop] = values
        checksums[variable.name] = _checksum(values)
    return checksums


def missing_blocks(location: Location, schema: DatasetSchema) -> list[int]:
    """Return the blocks that still have to be written, none if the dataset is complete."""
    if _is_complete(location):
        return []
    written = set(_records(location).names())
    return [index for index in range(schema.n_blocks) if f"{index:06d}.json" not in written]


def finish_dataset(location: Location, schema: DatasetSchema) -> None:
    """Verify every block against its record, add the statistics of training, mark as complete."""
    if not _is_complete(location):
        try:
            _require_all_blocks(location, schema)
            with location.reached(writing=True):
                _complete(location, schema)
        except (DatasetIncomplete, DatasetCorrupt):
            # Another process may have ended it meanwhile, and removed the records.
            if not _is_complete(location):
                raise
    _records(location).remove()


def _is_complete(location: Location) -> bool:
    attributes = read_attributes(location)
    return attributes is not None and bool(attributes.get("complete"))


def _require_all_blocks(location: Location, schema: DatasetSchema) -> None:
    missing = missing_blocks(location, schema)
    if missing:
        raise DatasetIncomplete(
            f"{location} has {schema.n_blocks - len(missing)} of {schema.n_blocks} blocks; "
            "prepare it again to write the others"
        )


def _complete(location: Location, schema: DatasetSchema) -> None:
    group = zarr.open_group(location.zarr_store(), mode="r+", use_consolidated=False)
    checksums = [_checksums_of(location, schema, index) for index in range(schema.n_blocks)]
    for variable in schema.variables:
        statistics = _verified_statistics(location, schema, variable, group, checksums)
        if variable.role in ("input", "target"):
            _write_statistics(group, schema, variable, statistics)
    _remove_partial_files(location)
    # One write, unlike `attrs.update`: a dataset is never complete without its digest.
    group.update_attributes({"complete": True, "blocks": checksums, "digest": digest_of(checksums)})


def _checksums_of(location: Location, schema: DatasetSchema, index: int) -> dict[str, str]:
    """Return the record of a block; a damaged one is removed, so that the block is made again."""
    record = _record(location, index)
    try:
        checksums = json.loads(record.read_bytes())
        return {variable.name: str(checksums[variable.name]) for variable in schema.variables}
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError) as error:
        record.remove()
        raise DatasetCorrupt(
            f"the record of block {index} of {location} cannot be read ({error}); prepare it "
            "again and this block is written anew"
        ) from error


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
    for name, values in schema.coordinates.items():
        _small_array(group, name, values, (name,), {})
    meanings = {"flag_values": [0, 1, 2], "flag_meanings": "train validation test"}
    _small_array(group, "split", schema.split, ("sample",), meanings)
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


def _verified_statistics(
    location: Location,
    schema: DatasetSchema,
    variable: VariableSchema,
    group: zarr.Group,
    checksums: list[dict[str, str]],
) -> RunningStatistics:
    """Read a variable block by block: compare checksums, gather the training samples' moments."""
    statistics = RunningStatistics(variable.shape)
    n_train = schema.split_sizes["train"]
    for index, expected in enumerate(checksums):
        block = schema.block(index)
        values = _read_back(location, group, variable.name, block)
        if values is None or _checksum(values) != expected[variable.name]:
            _record(location, index).remove()
            raise DatasetCorrupt(
                f"block {index} of {variable.name} in {location} does not have the checksum it "
                "was written with; prepare it again and this block is written anew"
            )
        statistics.add(values[: max(0, n_train - block.start)])
    return statistics


def _read_back(location: Location, group: zarr.Group, name: str, block: range) -> np.ndarray | None:
    """Return what was written of a variable, or None if it cannot be decoded any more."""
    with location.reached():
        try:
            return np.asarray(_array(group, name)[block.start : block.stop])
        except (ValueError, RuntimeError, KeyError, TypeError):
            return None


def _write_statistics(
    group: zarr.Group,
    schema: DatasetSchema,
    variable: VariableSchema,
    statistics: RunningStatistics,
) -> None:
    """Write the moments at every point, and those of every channel over all points of space."""
    space = schema.attributes.get("space", ())
    channel_dims = tuple(dim for dim in variable.dims if dim not in space)
    over_space = tuple(axis for axis, dim in enumerate(variable.dims) if dim in space)
    channel_mean, channel_std = _over_points(statistics, over_space)
    for moment, values, dims, where in (
        ("mean", statistics.mean, variable.dims, ""),
        ("std", statistics.std, variable.dims, ""),
        ("channel_mean", channel_mean, channel_dims, " and all points"),
        ("channel_std", channel_std, channel_dims, " and all points"),
    ):
        attributes = {
            "role": "statistic",
            "units": variable.unit,
            "long_name": f"{moment} of {variable.name} over the training samples{where}",
        }
        _small_array(group, f"{variable.name}_{moment}", values, dims, attributes)


def _over_points(
    statistics: RunningStatistics, axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of all values along some axes, from those at every point.

    The squares about the common mean are those about the mean of each point, plus the squares of
    the distances of these means.
    """
    mean = np.asarray(statistics.mean.mean(axis=axes, keepdims=True))
    squares = statistics.std**2 * max(1, statistics.count - 1)
    squares = squares + statistics.count * (statistics.mean - mean) ** 2
    n_values = statistics.count * statistics.mean.size // mean.size
    std = np.sqrt(squares.sum(axis=axes) / max(1, n_values - 1))
    return mean.squeeze(axes), np.asarray(std)


def _small_array(
    group: zarr.Group,
    name: str,
    values: np.ndarray,
    dims: tuple[str, ...],
    attributes: dict[str, Any],
) -> None:
    array = _ensure_array(
        group,
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=values.shape,
        dimension_names=dims,
        attributes=attributes,
    )
    array[...] = values


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


def _checksum(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _records(location: Location) -> Location:
    return Location(f"{location.url}.blocks")


def _record(location: Location, index: int) -> Location:
    return _records(location) / f"{index:06d}.json"


def _remove_partial_files(location: Location) -> None:
    """Remove what a killed writer left behind; zarr renames whole files into place."""
    if location.local_path is not None:
        for partial in location.local_path.rglob("*.partial"):
            partial.unlink(missing_ok=True)
