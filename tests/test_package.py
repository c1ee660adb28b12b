"""What an installation gets: the wheel's content, its dependencies, and their pins."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from turbodflash_engine import plugins

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "turbodflash_cli": ROOT / "turbodflash_cli",
    "turbodflash_engine": ROOT / "engine" / "turbodflash_engine",
    "turbodflash_kernels": ROOT / "kernels" / "turbodflash_kernels",
}
NOT_SHIPPED = {".pyc", ".md"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy, because a build writes into its source."""
    work = tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("turbodflash_cli", "engine", "kernels"):
        shutil.copytree(ROOT / folder, work / "source" / folder, ignore=ignore)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, work / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(work), str(work / "source")]
    subprocess.run(command, check=True)
    (built,) = work.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_every_file_of_the_three_packages_and_nothing_else(wheel):
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in NOT_SHIPPED
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= expected
    assert "turbodflash_cli/catalogue.json" in expected


def test_every_folder_with_code_is_a_package_so_that_the_wheel_finds_it():
    bare = {
        path.parent.relative_to(ROOT).as_posix()
        for folder in PACKAGES.values()
        for path in folder.rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    }
    assert not bare


def test_it_is_licensed_and_brings_the_command(wheel, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "turbodflash = turbodflash_cli.app:main" in wheel.read(name).decode()


def test_a_plain_installation_brings_no_gpu_library(metadata):
    plain = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    assert "numpy" in {project(need) for need in plain}
    assert not {"torch", "triton"} & {project(need) for need in plain}


def test_every_dependency_is_pinned(metadata):
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    loose = [pin for pin in pins if not re.fullmatch(r'[\w.-]+==[\w.]+(; [a-z_]+ \S+ ".+")?', pin)]
    assert not loose
    pinned = {project(pin) for pin in pins}
    needed = {project(need) for need in metadata.get_all("Requires-Dist")}
    assert needed - pinned == {"turbodflash"}  # its own extras


def project(requirement: str) -> str:
    """The normalised project name that a requirement starts with."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.mark.parametrize("family", ["models", "quant"])
def test_the_readme_names_all_that_can_be_read(family):
    words = set(re.findall(r"\w+", (ROOT / "README.md").read_text("utf-8").lower()))
    assert set(plugins.names(family)) <= words
