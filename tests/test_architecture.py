"""The promises that the source itself must keep."""

import ast
import subprocess
import sys
from pathlib import Path

import openworld

SOURCE = Path(openworld.__file__).parent
ROOT = Path(__file__).parent.parent

# From what depends on nothing to what depends on everything: a module may import only from rows above its own.
LAYERS = [
    {"__init__", "errors", "places", "formats"},
    {"compiling", "methods.options"},
    {"engine", "paper.recorded", "methods.trssl_options", "methods.simclr_options"},
    {"methods.trssl_plus_options"},
    {"methods.__init__"},
    {
        "config",
        "rng",
        "signals",
        "losses",
        "sinkhorn",
        "uncertainty",
        "metrics",
        "kmeans",
        "muon",
        "runtime",
        "data.image_ops",
        "progress",
        "paper.class_count",
    },
    {"data.__init__", "data.dataset", "data.sources", "data.decode", "data.pool", "data.store"},
    {
        "class_count",
        "config_files",
        "recipes",
        "mix",
        "nets",
        "checkpoint",
        "data.split",
        "data.augment",
        "data.contact_sheet",
        "data.arrays",
    },
    {"data.benchmarks", "data.own", "data.survey", "data.reading", "data.check", "paper.accuracy"},
    {"data.opening", "data.fetch", "data.samples", "paper.__init__"},
    {"data.loading"},
    {"optim", "record", "data.problem", "data.peek"},
    {"data.batches", "building", "classes", "paper.recording"},
    {"methods.base", "features"},
    {"clusters"},
    {"methods.trssl", "methods.simclr", "evaluate"},
    {"methods.trssl_plus"},
    {"learner", "outputs"},
    {"train", "plots", "model", "planning.__init__"},
    {"planning.settings", "planning.budget", "planning.telling"},
    {"planning.plan"},
    {"planning.features_first"},
    {"planning.counting"},
    {"report.markup", "report.confusion", "report.pictures", "predict", "suggest", "model_card", "relay"},
    {"planning.prepare"},
    {"planning.request"},
    {"api", "export", "bench.__init__", "bench.timing", "bench.pillow_views"},
    {"bench.setting", "estimator", "report.charts", "report.collect"},
    {"bench.ours", "bench.authors", "report.galleries", "report.results"},
    {"report.explore"},
    {"report.page"},
    {"report.compare"},
    {"report.__init__"},
    {"commands.__init__", "commands.common"},
    {
        "commands.train",
        "commands.evaluate",
        "commands.predict",
        "commands.name",
        "commands.suggest",
        "commands.export",
        "commands.estimate",
        "commands.data",
        "commands.relay",
        "commands.bench",
        "commands.report",
    },
    {"commands.paper"},
    {"cli"},
    {"__main__"},
]


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}


def imports(path: Path) -> set[str]:
    """The modules of this package that a file imports."""
    known, found = modules(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "openworld":
            parent = node.module.removeprefix("openworld").removeprefix(".")
            for alias in node.names:
                child = f"{parent}.{alias.name}".removeprefix(".")
                found.add(
                    child if child in known else parent if parent in known else f"{parent}.__init__".removeprefix(".")
                )
    return found


def test_dependencies_point_one_way():
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    assert set(level) == set(modules()), "a new module needs its place in LAYERS"
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        for other in imports(path)
        if level[other] >= level[name]
        and name != "__init__"  # which only hands on what people import
        and not leads_to_method(name, other)
    ]
    assert wrong == []


def leads_to_method(name: str, other: str) -> bool:
    """Options name their method, and import it only when it is asked for."""
    return name.startswith("methods.") and name.endswith("options") and other.startswith("methods.")


def test_options_are_free_of_torch():
    code = "import sys, openworld.recipes, openworld.config_files; print('torch' in sys.modules)"
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
            if isinstance(node, ast.Attribute) and (owner, node.attr) in forbidden_attributes:
                found.append(f"{name}: {owner}.{node.attr}")
    assert found == []


def test_no_file_grows_past_400_lines():
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    assert [str(path) for path in files if len(path.read_text().splitlines()) > 400] == []
