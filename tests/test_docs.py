"""The pages are correct: their Python runs and prints what they show, and their links resolve."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from dfwtrace.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]

# A text block right below a Python block is its output.
_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ dfwtrace (?P<line>.+)\n(?P<output>(?:(?!\$ |```).*\n)*)", re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^\$ (?P<line>.+)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
_LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


class Step(NamedTuple):
    """A Python block, its line, and the output shown right below it, if any."""

    line: int
    code: str
    output: str | None


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def steps(page: Path) -> Iterator[Step]:
    """Yield the page's Python blocks in order."""
    text = read(page)
    for block in _BLOCK.finditer(text):
        yield Step(text.count("\n", 0, block.start()) + 1, block["code"], block["output"])


def assert_shown(shown: str, printed: str, where: str) -> None:
    """Compare an output with the page's, where ``...`` matches anything."""
    same = doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
    assert same, f"{where} prints\n{printed}"


def run(page: Path) -> None:
    """Run the page's blocks in one namespace, and compare their output with the page's."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    for step in steps(page):
        printed = io.StringIO()
        code = compile("\n" * step.line + step.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if step.output is not None:
            assert_shown(step.output, printed.getvalue(), f"{page.name}:{step.line}")


def assert_alike(shown: str, printed: str, where: str) -> None:
    """Find the lines of an output in another, in order, with numbers that differ by a tenth."""
    lines = iter(printed.splitlines())
    for line in shown.splitlines():
        if line != "...":
            words = _NUMBER.sub("#", line)
            found = next((other for other in lines if _NUMBER.sub("#", other) == words), None)
            assert found is not None, f"{where} does not print {line!r} but\n{printed}"
            assert numbers(found) == pytest.approx(numbers(line), rel=0.1), f"{where}: {found}"


def numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBER.findall(line)]


def anchors(page: Path) -> set[str]:
    """Return the page's headings as GitHub's anchors."""
    headings = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


WITH_CODE = [page for page in PAGES if any(steps(page))]
ON_SPARK = [page for page in WITH_CODE if "SparkSession" in read(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_is_found(page: Path) -> None:
    assert len(list(steps(page))) == len(re.findall("^```python", read(page), re.MULTILINE))


@pytest.mark.parametrize("page", [p for p in WITH_CODE if p not in ON_SPARK], ids=lambda p: p.name)
def test_python_runs_and_prints_what_is_shown(page: Path) -> None:
    run(page)


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_python_about_spark_runs_in_the_shared_session(page: Path, spark: Any) -> None:
    run(page)


def test_there_are_pages_about_spark() -> None:
    assert [page.name for page in ON_SPARK] == ["cluster.md"]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    missing = []
    for link in _LINK.finditer(read(page)):
        target = page.parent / link["target"] if link["target"] else page
        if not target.exists() or (link["anchor"] and link["anchor"] not in anchors(target)):
            missing.append(link[0])
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {link["target"] for link in _LINK.finditer(read(index))}
    assert {page.name for page in index.parent.glob("*.md")} - linked == {"index.md"}


def test_the_readme_is_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= 150


def test_the_walk_through_shows_the_example_as_it_is() -> None:
    shown = [step.code for step in steps(ROOT / "docs" / "tasks.md")]
    (task,) = [code for code in shown if "class MatrixCompletion" in code]
    assert task[task.index("@dataclass") :] in read(ROOT / "examples" / "matrix_completion.py")


def test_layers_are_those_of_the_import_contract() -> None:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    checked = [name for layer in contract["layers"] for name in re.findall(r"\w+", layer)]
    section = read(ROOT / "CONTRIBUTING.md").partition("\n## Layers\n")[2].partition("\n## ")[0]
    lines = [re.findall(r"\w+", line) for line in re.findall(r"^ {4}(.+)$", section, re.MULTILINE)]
    line_of = {name: number for number, line in enumerate(lines) for name in line}
    assert line_of.keys() <= set(checked)
    listed = [line_of[name] for name in checked if name in line_of]
    assert listed == sorted(listed)


def test_the_commands_of_the_readme_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = list(_COMMAND.finditer(read(ROOT / "README.md")))
    assert [command["line"].split()[0] for command in commands] == ["fit", "evaluate", "predict"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        done = CliRunner().invoke(app, command["line"].split())
        assert done.exit_code == 0, done.output
        assert_alike(command["output"], done.stdout, command["line"])
    assert len(read(tmp_path / "predictions.csv").splitlines()) == 1501


def test_the_first_fit_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = read(ROOT / "docs" / "first-fit.md")
    shutil.copytree(ROOT / "examples" / "customers", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    commands = [prompt for block in _CONSOLE.findall(page) for prompt in _PROMPT.finditer(block)]
    names = {"fit", "inspect", "predict", "evaluate"}
    assert names <= {command["line"].split()[1] for command in commands}
    for command in commands:
        line, shown = command["line"], command["output"]
        program, *words = shlex.split(line)
        if program == "dfwtrace":
            done = CliRunner().invoke(app, words)
            assert done.exit_code == (2 if shown.startswith("Error: ") else 0), done.output
            assert_alike(shown, done.output, line)
        else:
            assert program in ("cat", "head")
            assert subprocess.check_output([program, *words], text=True) == shown


def test_output_that_differs_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:1 prints"):
        run(page)


def test_anchors_are_those_of_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A custom loss\n\n## The bound of σ₁: `dense`\n", encoding="utf-8")
    assert anchors(page) == {"a-custom-loss", "the-bound-of-σ₁-dense"}
