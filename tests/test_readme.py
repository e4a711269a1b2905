import contextlib
import io
import re
from pathlib import Path

import torch

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run_and_learn() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    printed, n_threads = io.StringIO(), torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the fields are small: threads would only wait for each other
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(README), "exec"), {})
    finally:
        torch.set_num_threads(n_threads)
    trained, tested = map(float, re.findall(r"\d\.\d+", printed.getvalue()))
    assert trained < 0.3
    assert tested < 0.3
