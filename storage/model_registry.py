"""Models in MLflow's registry: one name a benchmark, numbered versions, champion and challenger.

    registry = ModelRegistry(uri)
    version = registry.add(folder, "lsm-darcy", {"identity": ..., "dataset": ...})
    registry.set_alias("lsm-darcy", "champion", version.number)
    registry.download("lsm-darcy@champion", Path("here"))

A version is complete from the moment it is there: its files are uploaded first. An alias moves in
one step, so that whoever asks for the champion gets the old one or the new one.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import mlflow
from mlflow.entities import LoggedModel, RunInfo
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from storage.errors import NoSuchModel, StoreUnavailable
from storage.run_journal import without_credentials

Alias = Literal["champion", "challenger"]

_REFERENCE = re.compile(r"(?P<name>lsm-[a-z_]+)(@(?P<alias>[a-z]+)|/(?P<number>[1-9][0-9]*))")
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    """One version of a registered model."""

    name: str
    number: int
    aliases: tuple[str, ...]
    tags: dict[str, str]
    run_id: str | None

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "aliases": list(self.aliases)}


def registered_name(benchmark: str) -> str:
    """Return under which name the models of a benchmark are registered."""
    return f"lsm-{benchmark}"


def is_reference(text: str) -> bool:
    """Return whether a text names a version, like `lsm-darcy@champion` or `lsm-darcy/3`."""
    return _REFERENCE.fullmatch(text) is not None


class ModelRegistry:
    """The registry of a tracking database or server."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.shown_uri = without_credentials(uri)
        with self._reached():
            self.client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)

    def add(self, folder: Path, name: str, tags: Mapping[str, str]) -> ModelVersion:
        """Upload a model folder as a new version and return it.

        Among the tags is the `identity` of the run that made it, which the store has to know. The
        model of a run is added once: later calls return the version that is there, with its tags
        brought up to date.
        """
        with self._reached():
            known = self.of_run(name, tags["identity"])
            if known is not None:
                self.set_tags(known, tags)
                return self._version(name, known.number)
            run = self._run(tags["identity"])
            logged = self._upload(folder, name, run, tags)
            self._require_name(name)
            made = self.client.create_model_version(
                name,
                logged.artifact_location,
                run_id=run.run_id,
                tags=dict(tags),
                model_id=logged.model_id,
            )
            return self._version(name, int(made.version))

    def of_run(self, name: str, identity: str) -> ModelVersion | None:
        """Return the version that was made of a run, or None."""
        with self._reached():
            own = f"name = '{name}' and tags.identity = '{identity}'"
            known = self.client.search_model_versions(own, max_results=1)
            return self._version(name, int(known[0].version)) if known else None

    def names(self) -> list[str]:
        """Return the names of the registered models."""
        with self._reached():
            return sorted(model.name for model in self.client.search_registered_models())

    def versions(self, name: str) -> list[ModelVersion]:
        """Return the versions of a model, newest first; none if there is no such name."""
        with self._reached():
            found = self.client.search_model_versions(f"name = '{name}'")
            numbers = sorted((int(each.version) for each in found), reverse=True)
            return [self._version(name, number) for number in numbers]

    def find(self, reference: str) -> ModelVersion:
        """Return the version that a text like `lsm-darcy@champion` or `lsm-darcy/3` names."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise NoSuchModel(
                f"{reference!r} names no registered model; expected something like "
                "lsm-darcy@champion or lsm-darcy/3"
            )
        name, alias, number = match["name"], match["alias"], match["number"]
        try:
            with self._reached():
                if alias is None:
                    return self._version(name, int(number))
                return _as_version(self.client.get_model_version_by_alias(name, alias))
        except NoSuchModel as error:
            found = ", ".join(self._references(name)) or "no version of it"
            raise NoSuchModel(
                f"there is no {reference} in the registry {self.shown_uri}, found {found}"
            ) from error

    def with_alias(self, name: str, alias: Alias) -> ModelVersion | None:
        """Return the version that has an alias, or None."""
        try:
            return self.find(f"{name}@{alias}")
        except NoSuchModel:
            return None

    def set_alias(self, name: str, alias: Alias, number: int) -> None:
        """Give an alias to a version; the version that had it loses it in the same step."""
        if alias not in get_args(Alias):
            raise ValueError(f"an alias is one of {', '.join(get_args(Alias))}, not {alias!r}")
        with self._reached():
            self.client.set_registered_model_alias(name, alias, str(number))

    def remove_alias(self, name: str, alias: Alias) -> None:
        """Take an alias from whichever version has it."""
        with self._reached():
            self.client.delete_registered_model_alias(name, alias)

    def name_tags(self, name: str) -> dict[str, str]:
        """Return the tags of a name, which all its versions share."""
        with self._reached():
            return dict(self.client.get_registered_model(name).tags)

    def set_name_tag(self, name: str, key: str, value: str) -> None:
        """Add or replace a tag of a name."""
        with self._reached():
            self.client.set_registered_model_tag(name, key, value)

    def set_tags(self, version: ModelVersion, tags: Mapping[str, str]) -> None:
        """Add or replace tags of a version."""
        with self._reached():
            for key, value in tags.items():
                self.client.set_model_version_tag(version.name, str(version.number), key, value)

    def download(self, reference: str, folder: Path) -> Path:
        """Bring the model folder of a version onto this machine and return it."""
        version = self.find(reference)
        folder.mkdir(parents=True, exist_ok=True)
        with self._reached():
            # By the address of the files: by name MLflow asks the registry of the environment.
            source = self.client.get_model_version_download_uri(version.name, str(version.number))
            return Path(
                mlflow.artifacts.download_artifacts(
                    source, dst_path=str(folder), tracking_uri=self.uri
                )
            )

    def _run(self, identity: str) -> RunInfo:
        """Return the run of an identity."""
        experiments = [each.experiment_id for each in self.client.search_experiments()]
        found = self.client.search_runs(experiments, f"tags.identity = '{identity}'", max_results=1)
        if not found:
            raise NoSuchModel(
                f"the tracking store {self.shown_uri} has no run {identity}; train it again, which "
                "takes no time when it is finished, to bring it there"
            )
        info: RunInfo = found[0].info
        return info

    def _upload(
        self, folder: Path, name: str, run: RunInfo, tags: Mapping[str, str]
    ) -> LoggedModel:
        """Return the files as a model of the run, which is complete."""
        logged = self.client.create_logged_model(
            run.experiment_id, name=name, source_run_id=run.run_id, tags=dict(tags)
        )
        self.client.log_model_artifacts(logged.model_id, str(folder))
        return self.client.finalize_logged_model(logged.model_id, "READY")

    def _require_name(self, name: str) -> None:
        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _version(self, name: str, number: int) -> ModelVersion:
        return _as_version(self.client.get_model_version(name, str(number)))

    def _references(self, name: str) -> Iterator[str]:
        for version in self.versions(name):
            yield f"{name}/{version.number}"
            yield from (f"{name}@{alias}" for alias in version.aliases)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn MLflow's errors into ours."""
        try:
            yield
        except (MlflowException, SQLAlchemyError) as error:
            first = without_credentials(str(error).partition("\n")[0])
            if isinstance(error, MlflowException) and error.error_code in _UNKNOWN:
                raise NoSuchModel(f"the registry {self.shown_uri} refuses: {first}") from error
            raise StoreUnavailable(
                f"the model registry {self.shown_uri} cannot be used ({first}); check "
                "MLFLOW_TRACKING_URI"
            ) from error


def _as_version(found: Any) -> ModelVersion:
    return ModelVersion(
        name=found.name,
        number=int(found.version),
        aliases=tuple(sorted(found.aliases)),
        tags=dict(found.tags),
        run_id=found.run_id or None,
    )
