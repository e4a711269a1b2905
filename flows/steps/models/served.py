"""The MLflow model of a trained surrogate.

MLflow copies this file into a model folder and runs it to load the model, so nothing is pickled:
the folder holds this text, the sources that the model needs, weights as safetensors and settings
as JSON. It is the one file of the project in which something runs at import, as MLflow asks.
"""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel
from safetensors.torch import load_file

from lsm_core.surrogates.predictor import Predictor, TrainedModel
from lsm_core.surrogates.trust import Trust


class ServedSurrogate(PythonModel):
    """Named input fields to named target fields, in physical units, samples first.

    With them go, where the model is calibrated, `expected_error`, which the relative error of a
    sample stays below in nine of ten cases, and `is_strange`, whether its input is unlike the
    training samples.
    """

    # The signature is the schema: MLflow need not look for type hints, and finds none below.
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        """Read settings and weights."""
        settings = json.loads(Path(context.artifacts["settings"]).read_text(encoding="utf-8"))
        weights = load_file(context.artifacts["weights"])
        self.predictor = Predictor(TrainedModel.from_plain(settings["trained_model"]), weights)
        self.trust = None
        if "trust" in context.artifacts:
            with np.load(context.artifacts["trust"], allow_pickle=False) as arrays:
                self.trust = Trust.from_arrays(dict(arrays))

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Return the predicted variables by name."""
        if not isinstance(model_input, dict):
            wanted = ", ".join(v.name for v in self.predictor.model.inputs)
            raise MlflowException.invalid_parameter_value(
                f"the input is a {type(model_input).__name__}, expected arrays by name: {wanted}"
            )
        try:
            predicted, opinion = self.predictor.with_opinion(model_input, self.trust)
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error
        if opinion is None:
            return predicted
        thought = {"expected_error": opinion.expected_error, "is_strange": opinion.is_strange}
        return {**predicted, **thought}


mlflow.models.set_model(ServedSurrogate())
