"""What README.md and the pages in docs/ say is so: commands, names, figures, links."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import torch
import yaml
from prefect.flows import load_flow_from_entrypoint

from flows.cli.main import parser
from flows.steps.models.shipped import shipped_card, shipped_names
from lsm_core.names import BenchmarkName, ModelName, PresetName

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
LINKED = [README, ROOT / "OWN_DATA.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *DOCS]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def commands(text: str) -> list[str]:
    """Return the lines of fenced blocks, without the folder of programs and without remarks.

    A remark begins with # or, where a block lists commands, after two blanks.
    """
    blocks = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [re.split(r"  +|\s+#", line)[0].removeprefix(".venv/bin/") for line in lines]


def names_of_rows(table: str) -> list[str]:
    """Return the names in the first column of a table."""
    firsts = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [name for first in firsts for name in re.findall(r"`(\w+)`", first)]


def anchors(text: str) -> set[str]:
    """Return what headings are called in addresses."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_ten_lines_run_and_learn() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", page("python.md"), re.DOTALL)
    printed, n_threads = io.StringIO(), torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the fields are small: threads would only wait for each other
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/python.md", "exec"), {})
    finally:
        torch.set_num_threads(n_threads)
    trained, tested = map(float, re.findall(r"\d\.\d+", printed.getvalue()))
    assert trained < 0.3
    assert tested < 0.3


@pytest.mark.parametrize("source", LINKED, ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file_and_a_heading_that_are_there(source: Path) -> None:
    for link in re.findall(r"\]\(([^)\s:]+)\)", source.read_text()):
        name, _, heading = link.partition("#")
        target = source.parent / name if name else source
        assert target.is_file(), link
        assert not heading or heading in anchors(target.read_text()), link


def test_the_readme_is_one_screen_and_leads_to_every_page() -> None:
    assert len(README.read_text().splitlines()) <= 80
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert {f"docs/{path.name}" for path in DOCS} <= set(links)
    assert {"OWN_DATA.md", "RESULTS.md", "ARCHITECTURE.md", "infra/README.md"} <= set(links)


@pytest.mark.parametrize(
    ("source", "at_least"),
    [(README, 3), (ROOT / "docs/commands.md", 30), (ROOT / "docs/files.md", 4)],
    ids=lambda given: getattr(given, "name", None),
)
def test_the_commands_of_pages_are_commands(source: Path, at_least: int) -> None:
    lines = [line for line in commands(source.read_text()) if line.startswith("lsm ")]
    assert len(lines) >= at_least
    for line in lines:
        parser().parse_args(shlex.split(line)[1:])


def test_the_page_of_commands_has_every_command() -> None:
    verbs = re.findall(r"^    ([a-z]+)", parser().format_help(), re.MULTILINE)
    assert {line.split()[1] for line in commands(page("commands.md"))} == set(verbs)


def test_the_targets_of_pages_are_in_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [
        line.split()[1]
        for path in (README, *DOCS)
        for line in commands(path.read_text())
        if line.startswith("make ")
    ]
    assert {"explore", "benchmark", "test", "stack", "stack-down"} <= set(named)
    for target in named:
        assert target in targets


def test_the_deployments_of_pages_are_those_of_the_declaration() -> None:
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    names = set()
    for each in declared:
        flow = load_flow_from_entrypoint(each["entrypoint"], use_placeholder_flow=False)
        names.add(f"{flow.name}/{each['name']}")
    listed = re.search(
        r"^Deployments \(.*?\.\s+A schedule", page("deployment.md"), re.DOTALL | re.M
    )
    assert listed is not None
    assert set(re.findall(r"`([a-z-]+/[a-z-]+)`", listed[0])) == names
    for path in (README, *DOCS):
        for line in commands(path.read_text()):
            if found := re.match(r"prefect deployment (?:run|schedule \w+) (\S+)", line):
                assert found[1] in names


def test_the_tables_of_pages_name_what_there_is() -> None:
    of_settings = page("deployment.md").partition("## Settings")[2]
    example = (ROOT / "infra/example.env").read_text()
    settings = re.findall(r"^([A-Z_]+)=", example, re.MULTILINE)
    assert sorted(names_of_rows(page("problems.md"))) == sorted(get_args(BenchmarkName))
    assert sorted(names_of_rows(page("models.md"))) == sorted(get_args(ModelName))
    assert names_of_rows(page("commands.md")) == list(get_args(PresetName))
    assert sorted(names_of_rows(of_settings)) == sorted(settings)


@pytest.mark.parametrize("name", shipped_names())
def test_the_table_of_the_readme_is_what_the_cards_say(name: str) -> None:
    card = shipped_card(name)
    known = f"{card['result']['model']}, {card['result']['preset']}"
    (row,) = re.findall(rf"^\| `{name}` \| {known} \|(.*)$", README.read_text(), re.MULTILINE)
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[:2] == [str(card["result"]["n_train"]), f"{card['held_out']['rel_l2']:.4f}"]
