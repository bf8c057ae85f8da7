"""tools/java.sh on machines that have a Java, that can get one, and that cannot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "java.sh"


class Machine:
    """A path with nothing on it but what the script needs and what the test adds."""

    def __init__(self, path: Path, user: int) -> None:
        self.bin = path
        self.bin.mkdir()
        for tool in ("bash", "timeout", "cp"):
            (self.bin / tool).symlink_to(shutil.which(tool) or "")
        self.add("id", f"echo {user}")
        self.add("mkdir", "")

    def add(self, name: str, body: str) -> Path:
        command = self.bin / name
        command.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        command.chmod(0o755)
        return command

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        done = subprocess.run(
            [SCRIPT, *arguments],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


def java(version: str) -> str:
    return f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""


@pytest.fixture
def user(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "bin", user=1000)


@pytest.fixture
def root(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "bin", user=0)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_a_java_that_is_there_is_taken_in_silence(user: Machine, version: str) -> None:
    user.add("java", java(version))
    assert user.run() == (0, "")
    assert user.run("check") == (0, "")


@pytest.mark.parametrize("version", ["1.8.0_452", "11.0.27"])
def test_an_old_java_is_none(user: Machine, version: str) -> None:
    user.add("java", java(version))
    status, said = user.run()
    assert status == 1
    assert "The Spark tests will be left out: there is no Java 17 or later, and only root" in said
    assert user.run("check") == (1, "")


def test_java_home_goes_first(user: Machine, tmp_path: Path) -> None:
    user.add("java", java("21"))
    status, said = user.run(JAVA_HOME="/nowhere")
    assert status == 1
    assert "JAVA_HOME is /nowhere, which has no Java 17 or later" in said
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    shutil.move(user.bin / "java", home / "bin" / "java")
    assert user.run(JAVA_HOME=str(home)) == (0, "")


def test_root_gets_the_first_package_that_there_is(root: Machine) -> None:
    stored = root.add("stored", java("21"))
    root.add(
        "apt-get",
        f"""
case "$*" in
*openjdk-21-jre-headless*) cp {stored} {root.bin}/java ;;
*update*) ;;
*) echo "E: Unable to locate package" >&2; exit 100 ;;
esac""",
    )
    assert root.run() == (0, "Installing Java for the Spark tests …\n")
    assert root.run() == (0, "")


def test_looking_installs_nothing(root: Machine) -> None:
    marker = root.bin / "asked"
    root.add("apt-get", f"echo > {marker}")
    assert root.run("check") == (1, "")
    assert not marker.exists()


def test_an_apt_get_that_fails_is_said(root: Machine) -> None:
    root.add("apt-get", "exit 100")
    status, said = root.run()
    assert status == 1
    assert "no Java 17 or later, and apt-get could not install one" in said


def test_root_without_apt_get_is_told_what_to_do(root: Machine) -> None:
    status, said = root.run()
    assert status == 1
    assert "no apt-get to install one" in said
    assert "set JAVA_HOME" in said
