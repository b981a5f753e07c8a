"""The starred steps of the release checklist in CONTRIBUTING.md: build, install in a clean environment, try, check.

    python tools/release_check.py

Stops at the first step that fails. Needs the package registry. Takes about five minutes, most of them to install torch.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEAST_ACCURACY = 97.0
"""Per cent of the digits' test images that the installed package must classify correctly."""


def main() -> None:
    version = check_versions()
    wheel = build(version)
    run("metadata", sys.executable, "-m", "twine", "check", "--strict", *map(str, (ROOT / "dist").iterdir()))
    with tempfile.TemporaryDirectory() as folder:
        openworld = install(wheel, Path(folder) / "environment")
        try_it(openworld, version, Path(folder))
    print(f"all steps passed: dist/{wheel.name} can be released")


def check_versions() -> str:
    """Compare the version in every file that states it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    stated = {
        "src/openworld/__init__.py": rf'^__version__ = "{re.escape(version)}"$',
        "CITATION.cff": rf"^version: {re.escape(version)}$",
        "CHANGELOG.md": rf"^## \[{re.escape(version)}\]",
    }
    for name, pattern in stated.items():
        if not re.search(pattern, (ROOT / name).read_text(), flags=re.MULTILINE):
            sys.exit(f"version: {name} does not state {version}, which pyproject.toml does")
    print(f"version: {version} everywhere")
    return version


def build(version: str) -> Path:
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run("build", sys.executable, "-m", "build", "--outdir", str(ROOT / "dist"), str(ROOT))
    (wheel,) = (ROOT / "dist").glob(f"openworld-{version}-*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel in a new virtual environment. Return its `openworld` command."""
    venv.create(environment, with_pip=True)
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    constraints = str(ROOT / "constraints.txt")
    pip = (str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run("install", *pip, "-c", constraints, f"{wheel}[onnx]")
    return programs / "openworld"


def try_it(openworld: Path, version: str, folder: Path) -> None:
    """Use the installed package as a user would, outside the checkout."""

    def command(*arguments: str) -> str:
        return run(f"openworld {' '.join(arguments)}", str(openworld), *arguments, cwd=folder)

    if command("--version").split() != ["openworld", version]:
        sys.exit(f"the installed package is not version {version}")
    summary = json.loads(command("train", "--out", "demo", "--json", "--quiet"))
    if summary["all"] < LEAST_ACCURACY:
        sys.exit(f"the digits: {summary['all']:.1f}% correct, expected at least {LEAST_ACCURACY}%")
    command("report", "demo")
    make_digits(openworld, folder)
    command("predict", "demo", "digits.npz", "--out", "answers.csv")
    command("export", "demo", "model.onnx", "model.md")
    if "H200" not in command("paper", "table1"):
        sys.exit("openworld paper table1 shows no recorded result: are benchmarks/results in the wheel?")


def make_digits(openworld: Path, folder: Path) -> None:
    """Write some digits as images in an .npz file, with the installed package's Python."""
    code = (
        "import numpy as np; from sklearn.datasets import load_digits; "
        "pixels = (load_digits().images[:50] * 255 / 16).astype(np.uint8); np.savez('digits.npz', images=pixels)"
    )
    run("make digits.npz", str(openworld.parent / "python"), "-c", code, cwd=folder)


def run(step: str, *command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{step}: failed\n{done.stdout}{done.stderr}")
    print(f"{step}: done", flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
