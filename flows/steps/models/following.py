"""The MLflow model that serves whichever version of a name has an alias, and follows it.

MLflow copies this file into a model folder and runs it to load the model, as it does with
`served.py`: something runs at import. MLflow's own server loads a version once, when it starts;
this one asks the registry now and then, and takes the new one in place of the old without a
restart. While the registry is away the version that is loaded goes on answering.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel


class FollowingModel(PythonModel):
    """Named input fields to named target fields; the answer names the version that gave it."""

    # The versions have signatures of their own: MLflow need not look for type hints.
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        """Find the version that has the alias, and load it."""
        settings = json.loads(Path(context.artifacts["settings"]).read_text(encoding="utf-8"))
        self.name, self.alias = settings["name"], settings["alias"]
        self.seconds = float(settings["seconds"])
        self.client = mlflow.MlflowClient()
        self.lock = threading.Lock()
        self.model: Any = None
        self.version, self.asked = "", 0.0
        self._follow(self._holder())

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Return the predicted variables by name, and `model`, the version that made them."""
        with self.lock:
            if time.monotonic() - self.asked > self.seconds:
                self.asked = time.monotonic()
                try:
                    self._follow(self._holder())
                except Exception as error:
                    print(f"{self.name}/{self.version} goes on: {error}", file=sys.stderr)
            model, version = self.model, self.version
        if not isinstance(model_input, dict):
            raise MlflowException.invalid_parameter_value(
                f"the input is a {type(model_input).__name__}, expected arrays by name"
            )
        fields = {name: np.asarray(v, dtype=np.float32) for name, v in model_input.items()}
        return {**model.predict(fields), "model": f"{self.name}/{version}"}

    def _holder(self) -> str:
        found = self.client.get_model_version_by_alias(self.name, self.alias)
        return str(found.version)

    def _follow(self, version: str) -> None:
        """Load a version, unless it is the one that answers."""
        if version == self.version:
            return
        # Each version brings the sources it was trained with; those of the one before would stay.
        before = {each: sys.modules[each] for each in list(sys.modules) if _is_source(each)}
        for each in before:
            del sys.modules[each]
        try:
            model = mlflow.pyfunc.load_model(f"models:/{self.name}/{version}")
        except Exception:
            sys.modules.update(before)
            raise
        self.model, self.version = model, version
        print(f"{self.name}@{self.alias} is version {version}", file=sys.stderr)


def _is_source(module: str) -> bool:
    return module.partition(".")[0] == "lsm_core"


mlflow.models.set_model(FollowingModel())
