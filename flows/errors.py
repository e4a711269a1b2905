"""Errors that a sentence explains; the command line shows them without a traceback."""

from storage.errors import (
    DatasetMismatch,
    NoSuchModel,
    NotADataset,
    StorageError,
    StoreUnavailable,
)


class BadInput(ValueError):
    """Something a user gave cannot be used."""


class CellsFailed(RuntimeError):
    """Some runs of a comparison failed; the report names them."""


class ServiceFailed(RuntimeError):
    """A server did not come up, or a command to it failed."""


class ProcessDied(RuntimeError):
    """A process ended without a result: killed, or out of memory."""


class GenerationFailed(RuntimeError):
    """A solver failed for a seed and for all that could replace it."""


BAD_INPUT = (BadInput, StoreUnavailable, NotADataset, DatasetMismatch, NoSuchModel)
FAILURES = (StorageError, CellsFailed, ServiceFailed, ProcessDied, GenerationFailed)
