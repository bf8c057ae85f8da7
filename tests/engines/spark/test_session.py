"""What is said where Spark, Java or a session is missing, and what `import dfwtrace` brings in."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import dfwtrace as dt
from dfwtrace.engines.spark.session import is_frame


def run(code: str, **environment: str) -> str:
    """What a new process prints that runs this code with this environment and no other."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_base_install_never_imports_spark() -> None:
    code = """
import sys

import dfwtrace as dt

X, y, _ = dt.datasets.make_multiclass(n=20, d=3, m=2, rank=1, seed=0)
dt.solve(dt.Multinomial(), X, y, radius=1.0, epochs=1)
print(sorted({"pyspark", "pyarrow", "py4j", "pandas"} & set(sys.modules)))
"""
    assert run(code) == "[]"


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "pandas"])
@pytest.mark.parametrize("engine", [dt.SparkEngine, dt.SparkMapReduceEngine])
def test_a_missing_package_is_named(
    package: str, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install 'dfwtrace\[spark\]'\."):
        engine()


def test_a_missing_java_is_named() -> None:
    pytest.importorskip("pyspark")
    code = """
import dfwtrace as dt

try:
    dt.SparkEngine()
except RuntimeError as error:
    print(error)
"""
    said = run(code, PATH="/nowhere")
    assert said.startswith("Spark needs Java 17 or later: install one")
    assert "JAVA_HOME" in said


def test_without_a_session_the_active_one_is_taken(spark: Any) -> None:
    assert dt.SparkEngine().cluster.spark is spark


def test_a_data_frame_is_told_from_other_things(spark: Any) -> None:
    assert is_frame(spark.range(1))
    assert not is_frame([[1.0]])
    assert not is_frame(spark)
