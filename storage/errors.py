"""Everything that can be wrong with what is kept.

StorageError
 ├── StoreUnavailable      the root cannot be reached, read or written
 ├── StoreInterrupted      the way to the store broke down; another try may help
 ├── NotADataset           something else lies where a dataset was expected
 ├── DatasetIncomplete     a dataset whose writing has not ended
 ├── DatasetMismatch       a dataset written from another recipe
 ├── DatasetCorrupt        data that no longer has its checksum
 ├── CheckpointCorrupt     no checkpoint of a run can be read
 ├── DownloadFailed        no address gave a file that can be kept
 ├── PublishedFileInvalid  a published file does not hold what it should
 ├── NoSuchModel           the registry has no model of a name, version or alias
 └── LeaseLost             others took a process for dead and have its work now

Every message says what was found, what was expected and what to do.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StorageError(Exception):
    """Something kept is missing, damaged or out of reach."""


class StoreUnavailable(StorageError):
    """The root of the store cannot be reached, read or written."""


class StoreInterrupted(StorageError):
    """The way to the store broke down in the middle; another try may help."""


class NotADataset(StorageError):
    """Something else lies where a dataset was expected."""


class DatasetIncomplete(StorageError):
    """The writing of a dataset has not ended."""


class DatasetMismatch(StorageError):
    """A dataset was written from another recipe than the one asked for."""


class DatasetCorrupt(StorageError):
    """Data no longer has the checksum it was written with."""


class CheckpointCorrupt(StorageError):
    """No checkpoint of a run can be read."""


class DownloadFailed(StorageError):
    """No address gave a file that can be kept."""


class PublishedFileInvalid(StorageError):
    """A published file does not hold what it should."""


class NoSuchModel(StorageError):
    """The registry has no model of this name, version or alias."""


class LeaseLost(StorageError):
    """Others took this process for dead and have its work now."""


@contextmanager
def translated(
    *foreign: type[Exception], into: Callable[[Exception], Exception | None]
) -> Iterator[None]:
    """Raise what `into` makes of these errors of others, and keep them as its cause.

    Errors of our own pass as they are; so does an error of which `into` makes None.
    """
    try:
        yield
    except StorageError:
        raise
    except foreign as error:
        ours = into(error)
        if ours is None:
            raise
        raise ours from error
