"""What the pages say is so: their Python runs, prints what they show, and their links lead on."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from dfwtrace.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLAIN = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]

# A text block right below a Python block is what it prints.
_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#\s]+)(?:#[^)\s]*)?\)")


class Step(NamedTuple):
    """A Python block, where it stands, and the output shown right below it, if any."""

    line: int
    code: str
    output: str | None


def steps(page: Path) -> Iterator[Step]:
    """The page's Python blocks in order."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        yield Step(text.count("\n", 0, block.start()) + 1, block["code"], block["output"])


def run(page: Path) -> dict[str, Any]:
    """Run the page's blocks in one namespace, and compare what they print with what it shows."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    for step in steps(page):
        printed = io.StringIO()
        code = compile("\n" * step.line + step.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if step.output is not None:
            checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS
            assert checker.check_output(step.output, printed.getvalue(), flags), (
                f"{page.name}:{step.line} prints\n{printed.getvalue()}"
            )
    return namespace


ON_SPARK = [page for page in PAGES if "SparkSession" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", [p for p in PAGES if p not in ON_SPARK], ids=lambda p: p.name)
def test_python_on_the_page_runs_and_prints_what_is_shown(page: Path) -> None:
    assert list(steps(page)), "a page without an example"
    run(page)


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_python_on_a_page_about_spark_runs_in_the_session_that_is_there(
    page: Path, spark: Any
) -> None:
    run(page)


def test_there_are_pages_about_spark() -> None:
    assert [page.name for page in ON_SPARK] == ["cluster.md"]


@pytest.mark.parametrize("page", [*PAGES, *PLAIN], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = [link["target"] for link in _LINK.finditer(page.read_text(encoding="utf-8"))]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_the_walk_through_shows_the_example_as_it_is() -> None:
    example = (ROOT / "examples" / "matrix_completion.py").read_text(encoding="utf-8")
    shown = [step.code for step in steps(ROOT / "docs" / "tasks.md")]
    (task,) = [code for code in shown if "class MatrixCompletion" in code]
    assert task[task.index("@dataclass") :] in example


def test_layers_are_those_of_the_import_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    listed = "".join(f"    {layer}\n" for layer in contract["layers"])
    assert f"\n\n{listed}\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^dfwtrace (.+)$", text, re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["fit", "evaluate", "predict"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    said = []
    for line in [*commands, "inspect intents.safetensors --json"]:
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, done.output
        said.append(done.output)
    assert "accuracy           93." in said[1]
    assert json.loads(said[-1])["rank"] < 60  # it is small, as the README says
    assert len((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()) == 1501
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_output_that_differs_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:1 prints"):
        run(page)
