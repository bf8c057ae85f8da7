"""Whose commit a row has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dfwtrace.experiments.provenance import commit_of, provenance


@pytest.fixture(autouse=True)
def _only_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's settings, such as signatures, nor a repository that a hook works on."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_a_commit_is_that_of_the_sources_and_tells_of_changes(tmp_path: Path) -> None:
    sources = tmp_path / "src" / "package"
    sources.mkdir(parents=True)
    assert commit_of(sources) == "unknown"
    git(tmp_path, "init", "--quiet")
    (sources / "code.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    head = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert commit_of(sources) == head
    (tmp_path / "notes").write_text("not what is measured")
    assert commit_of(sources) == head
    (sources / "code.py").write_text("2")
    assert commit_of(sources) == f"{head}-dirty"


def test_a_package_in_somebody_elses_repository_has_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text(".venv")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "theirs")
    installed = tmp_path / ".venv" / "lib" / "package"
    installed.mkdir(parents=True)
    (installed / "code.py").write_text("1")
    assert commit_of(installed) == "unknown"


def test_versions_are_told_of_all_that_matters() -> None:
    told = provenance()["versions"]
    assert {"python", "dfwtrace", "numpy", "scipy", "numba", "scikit-learn"} <= set(told)
