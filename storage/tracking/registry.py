"""Registered models: one name a benchmark, numbered versions, champions and a challenger.

    registry = ModelRegistry(uri, root)
    version = registry.record.add("pde-darcy", {"identity": ..., "preset": ..., "dataset": ...})
    registry.echo("pde-darcy", upload_of)
    registry.note("pde-darcy", Change(aliases={"champion": version.number}, reason="the first"))
    registry.find("pde-darcy@champion")

What is registered is the store's record; each change is written there first, in one step, so that
whoever asks for the champion gets the old one or the new one. MLflow's registry follows. A version
there is complete from the moment it is there: its files are uploaded first.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import mlflow
from mlflow.entities import LoggedModel, LoggedModelOutput, Metric
from mlflow.entities.model_registry import ModelVersion as KnownVersion
from mlflow.entities.model_registry import RegisteredModel
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS
from sqlalchemy.exc import SQLAlchemyError

from storage.credentials import without_credentials
from storage.errors import NoSuchModel, StoreUnavailable, translated
from storage.location import Location
from storage.tracking.echo import DIGEST_LENGTH, UsedDataset
from storage.tracking.model_record import (
    EARLIER_PREFIX,
    PREFIX,
    ModelRecord,
    earlier_name,
    present_name,
)
from storage.tracking.model_state import (
    REFERENCE,
    Change,
    ModelVersion,
    State,
    Tags,
    champion_alias,
    league_size,
)
from storage.tracking.store import open_client

logger = logging.getLogger(__name__)

Alias = Literal["champion", "challenger"]
"""What a version may be made; the other aliases follow from it."""
OURS = re.compile(r"champion(-[a-z]+)*|previous|challenger")
"""Aliases in MLflow that follow the store; people may have others."""

_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


SHOWN_TAGS = ("identity", "model", "preset", "origin")
"""What is told of a version in MLflow beside its description; the store's record has the rest."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What MLflow gets of a version: the model folder, and what the model is and shows."""

    run_id: str
    folder: Path
    name: str = "model"
    """What the model is called among all that were logged."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    figures: Sequence[Metric] = ()
    dataset: UsedDataset | None = None
    """By which the figures were measured."""


Uploads = Callable[[ModelVersion], AbstractContextManager[Upload]]
"""Provides what is uploaded of a version, while it is."""


def registered_name(benchmark: str) -> str:
    """Return under which name the models of a benchmark are registered."""
    return f"{PREFIX}{benchmark}"


def describe(tags: Tags) -> str:
    """Return what a version is in words: `LSM (ours), quick, 3.59 % on 50 test samples`.

    Where the data is not of our solvers, whose it is follows.
    """
    if not tags.get("model"):
        return ""
    name, origin = tags["model"].removesuffix("_ours"), tags.get("origin", "generated")
    error, n_test = tags.get("test/rel_l2"), tags.get("n_test")
    words = [name.upper() + (" (ours)" if name != tags["model"] else ""), tags.get("preset", "")]
    if error is not None:
        on = f"{n_test} test samples" if n_test else "its test samples"
        words.append(f"{100 * float(error):.3g} % on {on}")
    words.append(f"{origin} data" if origin != "generated" else "")
    return ", ".join(filter(None, words))


def describe_name(state: State) -> str:
    """Return who is champion of each league, in words, the largest league first."""
    lines = [
        f"Surrogates of {state.name.removeprefix(PREFIX)}; each champion was judged on locked "
        "test samples, `lsm registry history` tells why."
    ]
    for league in sorted(state.champions, key=league_size, reverse=True):
        champion = state.champion(league)
        if champion is not None:
            words = describe(champion.tags)
            lines.append(f"* {champion_alias(league)}: version {champion.number}, {words}")
    return "\n".join(lines)


def _shown(version: ModelVersion) -> dict[str, str]:
    return {key: version.tags[key] for key in SHOWN_TAGS if key in version.tags}


class ModelRegistry:
    """The models of a store, and the registry of a tracking database or server, its echo."""

    def __init__(self, uri: str, root: Location) -> None:
        self.uri = uri
        self.root = root
        self.shown_uri = without_credentials(uri)

    @cached_property
    def client(self) -> mlflow.MlflowClient:
        """Return MLflow's client; a new database is made ready first."""
        with self._reached():
            return open_client(self.uri)

    @cached_property
    def record(self) -> ModelRecord:
        """Return the store's record.

        It is begun, once, with what only MLflow knows: models of before there was a record.
        """
        record = ModelRecord(self.root)
        if not record.is_begun:
            with self._reached():
                models = self.client.search_registered_models()
                names = sorted(models, key=lambda each: str(each.name))  # earlier names first
                ours = [each for each in names if each.name.startswith((EARLIER_PREFIX, PREFIX))]
                known = {present_name(each.name): self._known_state(each) for each in ours}
                record.begin(known)
        return record

    def state(self, name: str) -> State:
        """Return what is registered under a name."""
        return self.record.state(name)

    def find(self, reference: str) -> ModelVersion:
        """Return the version that a text like `pde-darcy@champion` or `pde-darcy/3` names."""
        match = REFERENCE.fullmatch(reference)
        if match is None:
            raise NoSuchModel(
                f"{reference!r} names no registered model; expected something like "
                "pde-darcy@champion or pde-darcy/3"
            )
        state, alias = self.state(present_name(match["name"])), match["alias"]
        number = int(match["number"]) if alias is None else state.aliases.get(alias, 0)
        if number not in state.versions:
            found = ", ".join(_references(state.newest_first())) or "no version of it"
            raise NoSuchModel(
                f"there is no {reference} in the registry {self.shown_uri}, found {found}"
            )
        return state.version(number)

    def note(self, name: str, change: Change) -> None:
        """Add a change to the record; that MLflow is away, and follows later, costs a line."""
        self.record.note(name, change)
        try:
            self.echo(name)
        except (StoreUnavailable, NoSuchModel) as error:
            logger.warning("%s: %s; `lsm runs sync` sends it from the store", name, error)

    def download(self, version: ModelVersion, folder: Path) -> Path:
        """Bring the model folder of a version onto this machine and return it."""
        with self._reached():
            # By the address of the files: by name MLflow asks the registry of the environment.
            number = str(version.number)
            source = self.client.get_model_version_download_uri(version.name, number)
            return Path(
                mlflow.artifacts.download_artifacts(
                    source, dst_path=str(folder), tracking_uri=self.uri
                )
            )

    def download_earlier(self, version: ModelVersion, folder: Path) -> Path:
        """Bring the model folder of a version that MLflow has under the name before."""
        return self.download(replace(version, name=earlier_name(version.name)), folder)

    def echo(self, name: str, upload_of: Uploads | None = None) -> int:
        """Send what MLflow lacks of a name, versions in their order; return how much that was.

        Without what provides uploads, versions that MLflow lacks are left out. StoreUnavailable if
        MLflow has versions that the store does not know: theirs would be other numbers than ours.
        """
        with self._reached():
            model = self._required_name(name)
            found = self.client.search_model_versions(f"name = '{name}'")
            known = {int(each.version): each for each in found}
            n_sent = 0
            for version in reversed(self.state(name).newest_first()):
                if version.number not in known and upload_of is not None:
                    known[version.number] = self._upload(version, upload_of)
                    n_sent += 1
                elif version.number in known:
                    n_sent += self._send_words(version, known[version.number])
            state = self.state(name)  # the champion may have changed during an upload
            for number in set(known) & state.retired:
                self._remove(known[number])
                n_sent += 1
            words = describe_name(state)
            if words != (model.description or ""):
                self.client.update_registered_model(name, words)
                n_sent += 1
            n_sent += self._send_aliases(state, model, known)
            if upload_of is not None:
                n_sent += self._remove_earlier(state, set(known))
            return n_sent

    def _remove(self, version: KnownVersion) -> None:
        """Remove a version that is retired, and before it its model with the files, which it has.

        Files that cannot be reached from here stay until `mlflow gc` is called.
        """
        with suppress(MlflowException):
            experiment = self.client.get_run(str(version.run_id)).info.experiment_id
            made_of = f"source_run_id = '{version.run_id}'"
            for model in self.client.search_logged_models([experiment], made_of):
                self.client.delete_logged_model(model.model_id)
                place = model.artifact_location
                # Each kind of place fails in its own way, and none of it may hold up the aliases.
                with suppress(Exception):
                    get_artifact_repository(place, tracking_uri=self.uri).delete_artifacts()
        self.client.delete_model_version(version.name, str(version.version))

    def _send_aliases(
        self, state: State, model: RegisteredModel, known: Mapping[int, KnownVersion]
    ) -> int:
        n_sent, ours = 0, set(filter(OURS.fullmatch, model.aliases))
        for alias in sorted(ours | set(state.aliases)):
            holder = state.aliases.get(alias)
            if holder is None:
                self.client.delete_registered_model_alias(state.name, alias)
            elif holder in known and str(model.aliases.get(alias)) != str(holder):
                self.client.set_registered_model_alias(state.name, alias, str(holder))
            else:
                continue
            n_sent += 1
        return n_sent

    def _send_words(self, version: ModelVersion, known: KnownVersion) -> int:
        """Send tags and description of a version that MLflow has."""
        lacking = {k: value for k, value in _shown(version).items() if known.tags.get(k) != value}
        if "identity" in lacking:
            raise self._mixed(version)
        number, words = str(version.number), describe(version.tags)
        for key, value in lacking.items():
            self.client.set_model_version_tag(version.name, number, key, value)
        if words == (known.description or ""):
            return len(lacking)
        self.client.update_model_version(version.name, number, words)
        return len(lacking) + 1

    def _remove_earlier(self, state: State, known: set[int]) -> int:
        """Remove MLflow's models of the name before, once all of them are here; return how many."""
        name = earlier_name(state.name)
        found = self.client.search_model_versions(f"name = '{name}'")
        ours = {tags.get("identity") for tags in state.versions.values()}
        if not found or set(state.versions) - known:
            return 0
        if any(each.tags.get("identity") not in ours for each in found):
            logger.warning("%s has models in MLflow that the store does not know; it stays", name)
            return 0
        self.client.delete_registered_model(name)
        return len(found)

    def _mixed(self, version: ModelVersion) -> StoreUnavailable:
        return StoreUnavailable(
            f"the model registry {self.shown_uri} has other versions of {version.name} than "
            "the store; remove that name there, or set MLFLOW_TRACKING_URI to another one"
        )

    def _upload(self, version: ModelVersion, upload_of: Uploads) -> KnownVersion:
        """Make a version in MLflow of the files that the store has of its run."""
        with upload_of(version) as upload:
            logged, run_id = self._log_model(version, upload), upload.run_id
        while True:
            made = self.client.create_model_version(
                version.name,
                logged.artifact_location,
                run_id=run_id,
                tags=_shown(version),
                description=describe(version.tags),
                model_id=logged.model_id,
            )
            if int(made.version) == version.number:
                return made
            if int(made.version) not in self.state(version.name).retired:
                raise self._mixed(version)
            # MLflow counts by itself: it passes over a number that is not used any more.
            self.client.delete_model_version(version.name, made.version)

    def _log_model(self, version: ModelVersion, upload: Upload) -> LoggedModel:
        """Log the model of a run with its figures, in place of one whose version was not made."""
        experiment = self.client.get_run(upload.run_id).info.experiment_id
        made_of = f"source_run_id = '{upload.run_id}'"
        for left in self.client.search_logged_models([experiment], made_of):
            self.client.delete_logged_model(left.model_id)
        own: LoggedModel = self.client.create_logged_model(
            experiment,
            name=upload.name,
            source_run_id=upload.run_id,
            tags=_shown(version),
            params=dict(upload.parameters),
            model_type="surrogate",
        )
        self.client.log_model_artifacts(own.model_id, str(upload.folder))
        known, data = dict[str, str](), upload.dataset
        if data is not None:
            known = {"dataset_name": data.name, "dataset_digest": data.digest[:DIGEST_LENGTH]}
        figures = [
            Metric(f.key, f.value, f.timestamp, f.step, model_id=own.model_id, **known)
            for f in upload.figures
        ]
        if figures:
            self.client.log_batch(upload.run_id, metrics=figures)
        self.client.log_outputs(upload.run_id, [LoggedModelOutput(own.model_id, step=0)])
        versions = json.dumps([{"name": version.name, "version": str(version.number)}])
        self.client.set_logged_model_tags(own.model_id, {MLFLOW_MODEL_VERSIONS: versions})
        return self.client.finalize_logged_model(own.model_id, "READY")

    def _required_name(self, name: str) -> RegisteredModel:
        """Return MLflow's entry of a name, which is made if there is none."""
        try:
            return self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self.client.get_registered_model(name)

    def _known_state(self, model: RegisteredModel) -> Change:
        found = self.client.search_model_versions(f"name = '{model.name}'")
        return Change(
            versions={int(each.version): dict(each.tags) for each in found},
            aliases={
                alias: int(number)
                for alias, number in model.aliases.items()
                if alias in get_args(Alias)
            },
            tags=dict(model.tags),
            reason="taken in from MLflow",
        )

    def _reached(self) -> AbstractContextManager[None]:
        """Turn MLflow's errors into ours."""

        def ours(error: Exception) -> Exception:
            first = without_credentials(str(error).partition("\n")[0])
            if isinstance(error, MlflowException) and error.error_code in _UNKNOWN:
                return NoSuchModel(f"the registry {self.shown_uri} refuses: {first}")
            return StoreUnavailable(
                f"the model registry {self.shown_uri} cannot be used ({first}); check "
                "MLFLOW_TRACKING_URI"
            )

        return translated(MlflowException, SQLAlchemyError, into=ours)


def _references(versions: list[ModelVersion]) -> Iterator[str]:
    for version in versions:
        yield str(version)
        yield from (f"{version.name}@{alias}" for alias in version.aliases)
