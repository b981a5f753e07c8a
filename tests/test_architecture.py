"""Rules that the source code must follow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import openworld

SOURCE = Path(openworld.__file__).parent
ROOT = Path(__file__).parent.parent

# A room may import only from itself and from rooms above it in this list.
ROOMS = [
    "core",
    "compute",
    "ops",
    "data",
    "nets",
    "methods",
    "runs",
    "training",
    "planning",
    "results",
    "paper",
    "commands",
    "top",
]
TOP = {"__init__", "__main__", "api", "classifier", "cli"}
"""The modules that are in no room: those that users run and import."""
TORCH_FREE_METHODS = {"methods.__init__", "methods.options"}
"""These and the `*_options` modules are the part of methods/ that the configuration in core/ reads."""


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}


def room_of(module: str) -> str:
    if module in TOP:
        return "top"
    if module in TORCH_FREE_METHODS or (module.startswith("methods.") and module.endswith("_options")):
        return "core"
    return module.split(".")[0]


def imports(name: str) -> set[str]:
    """Return the modules of this package that a module imports, also inside functions, with two exceptions."""
    if name == "__init__":  # it imports the public names only when they are used
        return set()
    known, found = modules(), set()
    for node in ast.walk(ast.parse(known[name].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "openworld":
            parent = node.module.removeprefix("openworld").removeprefix(".")
            for alias in node.names:
                child = f"{parent}.{alias.name}".removeprefix(".")
                candidates = (child, f"{child}.__init__", parent, f"{parent}.__init__".removeprefix("."))
                found.add(next(each for each in candidates if each in known))
    if room_of(name) == "core" and name.startswith("methods."):  # options import their method only when it is used
        found = {other for other in found if room_of(other) == "core"}
    return found - {"__init__"}


def test_every_module_is_in_a_room_and_few_are_at_the_top():
    assert {room_of(name) for name in modules()} == set(ROOMS)
    assert len(TOP) <= 8


def test_rooms_import_only_from_rooms_above():
    level = {room: number for number, room in enumerate(ROOMS)}
    wrong = [
        f"{name} imports {other}"
        for name in modules()
        for other in imports(name)
        if level[room_of(other)] > level[room_of(name)]
    ]
    assert wrong == []


@pytest.mark.slow
def test_modules_do_not_import_each_other_in_circles():
    graph = {name: imports(name) for name in modules()}
    done: set[str] = set()
    while ready := {name for name in graph if name not in done and graph[name] <= done}:
        done |= ready
    assert sorted(set(graph) - done) == []


def test_every_room_says_in_three_lines_what_it_holds():
    for room in ROOMS[:-1]:
        docstring = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text()))
        lines = [line for line in docstring.splitlines() if line]
        assert len(lines) == 3, room
        assert "may import" in docstring or "imports no other room" in docstring, room


def test_options_are_free_of_torch():
    code = "import sys, openworld.core.recipes, openworld.core.config_files; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_no_pickle_no_eval_no_global_randomness():
    forbidden_names = {"pickle", "eval", "exec", "__import__"}
    forbidden_attributes = {("torch", "load"), ("torch", "save"), ("torch", "hub"), ("torch", "manual_seed")}
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name) and node.id in forbidden_names:
                found.append(f"{name}: {node.id}")
            if isinstance(node, (ast.Import, ast.ImportFrom)) and any(a.name == "pickle" for a in node.names):
                found.append(f"{name}: pickle")
            owner = getattr(getattr(node, "value", None), "id", None)
            is_forbidden = isinstance(node, ast.Attribute) and (owner, node.attr) in forbidden_attributes
            if is_forbidden and not (name == "nets.foreign" and is_safe_load(path, node)):
                found.append(f"{name}: {owner}.{node.attr}")
    assert found == []


def is_safe_load(path: Path, attribute: ast.Attribute) -> bool:
    """Return whether an attribute is the torch.load of a call that never runs code from the file."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    found = next(call for call in calls if ast.dump(call.func) == ast.dump(attribute))
    flags = {keyword.arg: getattr(keyword.value, "value", None) for keyword in found.keywords}
    return attribute.attr == "load" and flags.get("weights_only") is True


def test_no_file_grows_past_400_lines():
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    assert [str(path) for path in files if len(path.read_text().splitlines()) > 400] == []
