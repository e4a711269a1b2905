import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from flows.cli.main import parser
from flows.steps.models.shipped import shipped_card, shipped_names

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


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


def test_the_readme_leads_to_files_that_are_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert len(links) > 4
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_commands_of_the_readme_are_commands() -> None:
    lines = re.findall(r"^\.venv/bin/lsm (.*?)(?:  +#.*)?$", README.read_text(), re.MULTILINE)
    assert len(lines) >= 2
    for line in lines:
        parser().parse_args(line.split())
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([a-z-]+)", README.read_text(), re.MULTILINE):
        assert target in targets


@pytest.mark.parametrize("name", shipped_names())
def test_the_table_of_the_readme_is_what_the_cards_say(name: str) -> None:
    card = shipped_card(name)
    known = f"{card['result']['model']}, {card['result']['preset']}"
    (row,) = re.findall(rf"^\| `{name}` \| {known} \|(.*)$", README.read_text(), re.MULTILINE)
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[:2] == [str(card["result"]["n_train"]), f"{card['held_out']['rel_l2']:.4f}"]
