"""What the parameters of flows may be; Prefect's server refuses others when a run is submitted."""

from typing import Annotated, Literal

from pydantic import Field

from lsm_core.names import OWN_NAME, BenchmarkName, ModelName

DEVICES = r"^(auto|cpu|mps|cuda(:[0-9]+)?)$"

Positive = Annotated[int, Field(ge=1)]
Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Gain = Annotated[float, Field(ge=0, lt=1)]
ProblemName = BenchmarkName | Annotated[str, Field(pattern=OWN_NAME)]
"""A benchmark, or a problem that somebody brought: the store knows its name, no server does."""
Benchmarks = Annotated[list[ProblemName], Field(min_length=1)]
Models = Annotated[list[ModelName], Field(min_length=1)]
Device = Annotated[str, Field(pattern=DEVICES)]
"""What cells train on; LSM_DEVICE where they train if none is given."""
Where = Literal["here", "pool", "auto"]
"""Where cells train: in the run that asks for them, on the pool of cells, or as the preset says."""
Rows = Annotated[list[str], Field(min_length=1)]
TrainingSetting = Literal[
    "epochs",
    "batch_size",
    "updates",
    "learning_rate",
    "optimizer",
    "weight_decay",
    "decayed",
    "gradient_clip",
    "averaging",
    "derivative_weight",
    "teacher_forcing",
    "frame_noise",
    "schedule",
    "input_normalization",
    "target_normalization",
    "fraction",
    "accumulation",
    "precision",
    "compile",
    "shuffle_bytes",
    "selection",
    "test_statistics",
]
"""The names of a TrainingConfig, without importing it."""
