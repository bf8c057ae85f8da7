"""What importing the package loads, and what it says where an extra is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )


def test_solve_loads_nothing_of_the_extras() -> None:
    ended = python("import sys, dfwtrace; dfwtrace.solve; print(*sys.modules)")
    assert ended.returncode == 0, ended.stderr
    loaded = {name.partition(".")[0] for name in ended.stdout.split()}
    assert "numpy" in loaded
    assert loaded & {"pyspark", "typer", "matplotlib", "pyarrow", "jinja2", "pandas"} == set()


def test_only_public_names_are_listed() -> None:
    ended = python("import dfwtrace; print(*dir(dfwtrace)); print(*sorted(dfwtrace.__all__))")
    assert ended.returncode == 0, ended.stderr
    listed, public = ended.stdout.splitlines()
    assert listed == public
    assert "solve" in listed.split()
    assert not {"import_module", "warnings", "TYPE_CHECKING", "_HOMES"} & set(listed.split())


def test_the_base_install_is_small() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    base = {"numpy", "scipy", "scikit-learn", "numba", "threadpoolctl", "safetensors", "rich"}
    assert names == base


@pytest.mark.parametrize("package", ["typer", "pyarrow", "jinja2"])
def test_without_its_extra_the_command_line_names_it(package: str) -> None:
    run = "import runpy; runpy.run_module('dfwtrace', run_name='__main__')"
    ended = python(f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = ['demo']; {run}")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert package in line
    assert "pip install 'dfwtrace[cli]'" in line
