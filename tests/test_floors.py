"""Who may import whom, and what stays out of the way at start-up."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import turbodflash_engine
from tests.golden_files import unpacked
from turbodflash_engine import plugins

ROOT = Path(__file__).parents[1]

FLOORS = {  # folder: what its files may import, the standard library and itself aside
    "turbodflash_cli": {"turbodflash_engine", "typer", "rich", "prompt_toolkit"},
    "engine": {"turbodflash_kernels", "numpy", "gguf", "tokenizers", "jinja2"},
    "kernels": {"numpy"},
}
ROOMS = {  # files with a permission of their own; `*` stands for one folder or file name
    "turbodflash_cli/hub.py": {"huggingface_hub"},
    "turbodflash_cli/fetch.py": {"huggingface_hub"},
    "kernels/turbodflash_kernels/*/cpu.py": {"numba", "llvmlite"},
    "kernels/turbodflash_kernels/_cpu/*.py": {"numba", "llvmlite"},
    "kernels/turbodflash_kernels/*/gpu.py": {"torch", "triton"},
    "kernels/turbodflash_kernels/_gpu/*.py": {"torch", "triton"},
}
ENGINE = (  # lowest first; a part may import itself and what stands in a row before its own
    {"errors"},
    {"events", "options"},
    {"info"},
    {"memory", "plugins", "metadata"},
    {"devices"},
    {"gguf", "quant", "kv", "tokenizer", "sampling"},
    {"cache"},
    {"layers"},
    {"models"},
    {"drafters"},
    {"decode"},
    {"pairing"},
    {"opening"},
    {"sizing"},
    {"loading", "inspect"},
    {"saving"},
    {"session"},
    {"measuring", "perplexity", "planner", "roofline", "speculating"},
    {"doctor"},
)
ROW = {part: row for row, parts in enumerate(ENGINE) for part in parts}

MEMBERS = [(f, name) for f in ("models", "drafters") for name in plugins.names(f)]

HEAVY = {
    *("numpy", "numba", "llvmlite", "torch", "triton", "gguf", "tokenizers", "jinja2"),
    *("huggingface_hub", "prompt_toolkit"),
}


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"{folder} has no sources: the test looks in the wrong place"
    return found


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def full_names(path: Path) -> Iterator[str]:
    """Every name that a file imports anywhere; for `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{short(path)} imports relatively"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(path: Path) -> set[str]:
    """The top-level packages outside the standard library that a file imports."""
    return {name.partition(".")[0] for name in full_names(path)} - set(sys.stdlib_module_names)


def allowed(path: Path, folder: str) -> set[str]:
    """What a file may import, its own package included."""
    own = {name.name for name in (ROOT / folder).glob("turbodflash_*")} | {folder}
    rooms = (names for room, names in ROOMS.items() if matches(short(path), room))
    return FLOORS[folder].union(own, *rooms)


def matches(path: str, room: str) -> bool:
    """As fnmatch, folder by folder."""
    names, patterns = path.split("/"), room.split("/")
    return len(names) == len(patterns) and all(map(fnmatch, names, patterns))


@pytest.mark.parametrize("folder", FLOORS)
def test_a_floor_imports_only_what_lies_below(folder):
    strays = [
        f"{short(path)} imports {name}"
        for path in sources(folder)
        for name in sorted(packages(path) - allowed(path, folder))
    ]
    assert not strays


def test_the_cli_knows_only_the_front_door():
    known = {f"turbodflash_engine.{name}" for name in turbodflash_engine.__all__}
    strays = [
        f"{short(path)} imports {name}"
        for path in sources("turbodflash_cli")
        for name in full_names(path)
        if name.startswith("turbodflash_engine.") and name not in known
    ]
    assert not strays


def part_of(path: Path) -> str:
    """The part of the engine that a file belongs to: the folder or file below its root."""
    return path.relative_to(ROOT / "engine" / "turbodflash_engine").parts[0].removesuffix(".py")


def test_every_part_of_the_engine_has_a_row():
    assert {part_of(path) for path in sources("engine")} - {"__init__"} <= set(ROW)


def test_inside_the_engine_imports_point_down():
    strays = [
        f"{short(path)} imports {name}"
        for path in sources("engine")
        if (part := part_of(path)) != "__init__"
        for name in full_names(path)
        if name.startswith("turbodflash_engine.")
        and (other := name.split(".")[1]) != part
        and ROW[other] >= ROW[part]
    ]
    assert not strays


def test_the_engine_and_the_kernels_touch_no_terminal_and_the_engine_no_environment():
    outside = {"engine": {"sys.stdout", "sys.stderr", "os.environ", "os.getenv"}}
    outside["kernels"] = {"sys.stdout", "sys.stderr"}
    strays = [
        f"{short(path)} uses {used}"
        for folder, forbidden in outside.items()
        for path in sources(folder)
        for used in uses(path)
        if used == "print" or used in forbidden
    ]
    assert not strays


def uses(path: Path) -> Iterator[str]:
    """Names that a file calls, and dotted pairs that it reads or imports."""
    yield from full_names(path)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def test_source_roots_are_not_packages():
    assert not [name for name in ("engine", "kernels") if (ROOT / name / "__init__.py").exists()]


@pytest.mark.parametrize(
    ("path", "room", "expected"),
    [
        ("kernels/turbodflash_kernels/linear/cpu.py", "kernels/turbodflash_kernels/*/cpu.py", True),
        ("kernels/turbodflash_kernels/cpu.py", "kernels/turbodflash_kernels/*/cpu.py", False),
        ("kernels/turbodflash_kernels/a/b/cpu.py", "kernels/turbodflash_kernels/*/cpu.py", False),
        (
            "kernels/turbodflash_kernels/linear/ref.py",
            "kernels/turbodflash_kernels/*/cpu.py",
            False,
        ),
    ],
)
def test_a_room_is_one_place(path, room, expected):
    assert matches(path, room) is expected


@pytest.mark.parametrize(
    ("script", "does"),
    [
        ("from turbodflash_cli.app import main; main(['--help'])", "Usage"),
        ("from turbodflash_cli.app import main; main(['models', 'list'])", "smollm2"),
        ("import turbodflash_engine; turbodflash_engine.LoadOptions; print('here')", "here"),
    ],
)
def test_what_is_light_loads_nothing_heavy(script, does):
    said, modules = loaded_by(script)
    assert does.lower() in said.lower()
    assert "turbodflash_engine" in modules
    assert not HEAVY & modules


def test_a_start_loads_no_other_architecture_and_no_drafter(tmp_path):
    model = unpacked("tiny-llama", tmp_path)
    argv = ["-m", str(model), "-dev", "reference", "-no-cnv", "-p", "a", "-n", "2", "-c", "64"]
    _, modules = loaded_by(f"from turbodflash_cli.app import main; assert main({argv}) == 0")
    names = {f"turbodflash_engine.{family}.{name}" for family, name in MEMBERS}
    assert modules & names == {"turbodflash_engine.models.llama"}


def loaded_by(script: str) -> tuple[str, set[str]]:
    """What a script prints, and all modules that are there in the end."""
    listing = "import sys; print(*sys.modules, file=sys.stderr)"
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "engine", "kernels"))
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\n{listing}"],
        env={**os.environ, "PYTHONPATH": path, "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(done.stderr.split())
