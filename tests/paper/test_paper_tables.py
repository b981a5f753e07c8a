"""The paper's tables of accuracies: which recorded runs they show, and the text of the rows."""

import json
import shutil

import pytest
from paper_results import ours, results_fixture, script  # noqa: F401
from worlds import run

from openworld.core.config import Config
from openworld.core.config_files import write_toml
from openworld.core.fields import replace as with_settings
from openworld.core.recipes import RECIPES
from openworld.methods.trssl_options import TrsslOptions
from openworld.paper import ITEMS, table_of
from openworld.paper.matching import objections
from openworld.paper.running import trial_of
from openworld.results.scores import PARTS


def objections_to(result: dict, item: str = "table1", row: str = "cifar100") -> list[str]:
    return objections(result, ITEMS[item], ITEMS[item].row(row))


SCORES = {0: (60.0, 40.0, 50.0), 1: (62.0, 44.0, 53.0), 2: (64.0, 48.0, 56.5)}


def a_result(seed: int = 0, settings: dict | None = None, **fields) -> dict:
    """Return the record of a run on CIFAR-100 with 10% of the labels, with changed settings and fields."""
    settings = {"seed": seed, "steps": 40_000, **(settings or {})}
    config = with_settings(RECIPES[fields.get("recipe", "paper")]("cifar100"), settings)
    return {
        **dict(zip(PARTS, SCORES[seed], strict=True)),
        **{"part": "test", "protocol": "trssl", "num_classes": 100, "num_classes_estimated": False, "num_seen": 50},
        **{"steps": config.training.steps, "seconds": 600.0, "total_seconds": 600.0, "seed": seed},
        **{"dataset": "cifar100", "labelled": 10.0, "novel_share": 50.0, "imbalance": 1.0, "prior": "known"},
        **{"method": "trssl", "start": None, "recipe": "paper", "switches": [], "device": "NVIDIA H200"},
        **{"dropped_images": 0, "config": write_toml(config), **fields},
    }


# Rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "own", "rivals"),
    [
        (
            "table1",
            {
                "cifar10": ("94.9", "89.6", "92.2"),
                "cifar100": ("68.5", "52.1", "60.3"),
                "imagenet100": ("82.6", "67.8", "75.4"),
            },
            {
                "cifar10, FixMatch": ("64.3", "49.4", "47.3"),
                "cifar100, ORCA": ("52.5", "31.8", "38.6"),
                "cifar100, DS3L": ("33.7", "15.8", "15.1"),
                "imagenet100, UNO": ("66.0", "42.2", "53.3"),
                "imagenet100, RankStats": ("41.2", "26.8", "37.4"),
            },
        ),
        (
            "labels50",
            {
                "cifar10": ("96.8", "92.8", "94.8"),
                "cifar100": ("80.2", "49.3", "64.7"),
                "tiny-imagenet": ("59.1", "24.2", "41.7"),
            },
            {
                "cifar100, ORCA": ("66.9", "43.0", "48.1"),
                "cifar10, CGDL": ("72.3", "44.6", "39.7"),
                "tiny-imagenet, DTC": ("28.8", "16.3", "19.9"),
                "tiny-imagenet, UNO": ("46.5", "15.7", "30.3"),
            },
        ),
        (
            "imbalance",
            {
                "cifar100-10-even": ("48.4", "28.6", "38.9"),
                "cifar100-10-known": ("50.5", "30.8", "41.0"),
                "cifar100-10-estimated": ("50.2", "31.3", "41.3"),
                "cifar100-20-even": ("44.4", "22.9", "33.8"),
                "cifar100-20-known": ("48.8", "24.6", "36.9"),
                "cifar100-20-estimated": ("44.2", "24.0", "35.3"),
            },
            {},
        ),
        ("ncd", {"cifar100": ("57.5", "-", "-")}, {"cifar100, RankStats+": ("44.1", "-", "-")}),
        (
            "labels-few",
            {
                "cifar10-1": ("92.0", "91.1", "91.6"),
                "cifar10-5": ("90.9", "91.4", "91.2"),
                "cifar100-5": ("60.1", "47.4", "54.4"),
            },
            {"cifar10-1, UNO": ("48.4", "67.1", "52.6")},
        ),
    ],
)
def test_what_the_paper_prints(item, own, rivals):
    printed = {row[0].removesuffix(" (paper)"): row[1:4] for row in table_of(item).texts()}
    for method, scores in {**{f"{data}, TRSSL": scores for data, scores in own.items()}, **rivals}.items():
        assert printed[method] == scores
    assert [row.name for row in ITEMS[item].rows] == list(own)


def test_what_is_not_recorded_is_said(results):
    for name, item in ITEMS.items():
        for row in item.rows if item else ():
            nothing = (f"{row.name}, ours: not recorded", *["-"] * (len(item.columns) + 4))
            assert ours(name, row.name) == [nothing]


def test_a_row_is_the_mean_and_spread_over_its_seeds(results):
    results(a_result(1, total_seconds=720.0), a_result(0), a_result(2))
    row = ("cifar100, paper, 40,000 steps", "62.0±2.0", "44.0±4.0", "53.2±3.3", "-7.1")
    assert ours() == [(*row, "0, 1, 2", "10.7", "H200")]
    assert ours("labels50")[0][0] == "cifar100, ours: not recorded"
    assert ours(data="cifar10")[0][0] == "cifar10, ours: not recorded"


@pytest.mark.parametrize("item", [name for name, item in ITEMS.items() if item])
def test_a_terminal_of_80_columns_shows_all_of_what_is_recorded(item, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run("paper", item) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "not recorded" in printed or "H200" in printed
    assert max(map(len, printed.splitlines())) <= 80
    for title in table_of(item).header[1:]:
        assert title in printed


def test_a_single_seed_has_no_spread(results):
    results(a_result(2, all=61.44))
    assert ours()[0][1:] == ("64.0", "48.0", "61.4", "+1.1", "2", "10.0", "H200")


def test_another_length_recipe_or_setting_is_another_row(results):
    results(a_result(0), a_result(1, {"steps": 8_000}), a_result(2, {"lr": 0.3, "uncertainty": False}))
    results(a_result(0, recipe="simclr"))
    assert [row[0].removeprefix("cifar100, ") for row in ours()] == [
        "paper, 8,000 steps",
        "paper, 40,000 steps",
        "paper --lr 0.3 --no-uncertainty, 40,000 steps",
        "simclr, 40,000 steps",
    ]


def test_a_run_from_before_a_setting_does_not_pass_for_one_with_it(results):
    older = a_result(0, recipe="pretrained")
    lines = write_toml(RECIPES["pretrained"]("cifar100")).splitlines(keepends=True)
    results({**older, "config": "".join(line for line in lines if not line.startswith("muon"))})
    assert ours()[0][0] == "cifar100, pretrained --muon 0, 40,000 steps"


def features_with(**settings) -> dict:
    """Return the record of the features that a run started from."""
    config = with_settings(RECIPES["simclr"]("cifar100"), settings)
    return {
        **{"method": "simclr", "recipe": "simclr", "steps": 20_480, "dataset": "cifar100", "start": None},
        "config": write_toml(config),
    }


FEATURES = features_with()


@pytest.mark.parametrize(
    ("start_run", "answer"),
    [
        ({"steps": 9, "dataset": "cifar100"}, "started from is not recorded"),
        ({**FEATURES, "recipe": "older"}, "recipe older"),
        ({**FEATURES, "start": "r/before"}, "started from another run"),
        ({**FEATURES, "dataset": "tiny-imagenet"}, "other images (tiny-imagenet)"),
    ],
)
def test_a_start_that_does_not_belong_keeps_a_run_out(start_run, answer, results):
    result = a_result(1, {"start": "r/simclr"}, start="r/simclr", start_run=start_run)
    (objection,) = objections_to(result)
    assert answer in objection
    results(result)
    assert ours()[0][0] == "cifar100, ours: not recorded"


def test_runs_that_began_with_other_features_do_not_share_a_row(results):
    for seed, features in enumerate([FEATURES, features_with(weight_decay=0.002), features_with(seed=2)]):
        results(a_result(seed, {"start": "simclr"}, start="simclr", start_run=features))
    assert [(row[0], row[5]) for row in ours()] == [
        ("cifar100, paper, simclr 20,480 + 40,000 steps", "0, 2"),
        ("cifar100, paper, simclr --weight-decay 0.002 20,480 + 40,000 steps", "1"),
    ]


def test_how_often_features_were_looked_at_is_no_other_way(results):
    for seed, features in enumerate([FEATURES, features_with(epoch_steps=500)]):
        results(a_result(seed, {"start": "simclr"}, start="simclr", start_run=features))
    results(a_result(2, {"epoch_steps": 500}))  # for the run itself it is a different setting
    assert [(row[0], row[5]) for row in ours()] == [
        ("cifar100, paper --epoch-steps 500, 40,000 steps", "2"),
        ("cifar100, paper, simclr 20,480 + 40,000 steps", "0, 1"),
    ]


def test_a_relayed_run_says_so_in_its_row(results):
    started = {"start": "simclr", "start_run": {**FEATURES, "relayed": [100]}}
    results(a_result(0, relayed=[20_000]), a_result(1, relayed=[]), a_result(2, {"start": "simclr"}, **started))
    assert sorted(row[0] for row in ours()) == [
        "cifar100, paper, 40,000 steps",
        "cifar100, paper, 40,000 steps, relayed",
        "cifar100, paper, simclr 20,480 + 40,000 steps, relayed",
    ]


def test_a_shorter_run_has_features_as_much_shorter():
    whole = RECIPES["pretrained"]("cifar100").training
    item = ITEMS["table1"]
    shorter = trial_of("table1", item, item.row("cifar100"), "pretrained", 0, whole.steps // 2)
    assert shorter.name == f"table1-cifar100-pretrained-seed0-{whole.steps // 2}-steps"
    half = {name: getattr(whole, name) // 2 for name in ("steps", "start_steps", "epoch_steps")}
    assert half.items() <= shorter.settings.items()
    assert "start_steps" not in trial_of("table1", item, item.row("cifar100"), "paper", 0, 120).settings


def test_what_the_split_and_the_row_settle_is_no_other_setting(results):
    results(a_result(0, {"num_classes": 100}), a_result(1, {"start": "r/simclr"}, start="r/simclr", start_run=FEATURES))
    assert [row[0] for row in ours()] == [
        "cifar100, paper, 40,000 steps",
        "cifar100, paper, simclr 20,480 + 40,000 steps",
    ]


def test_a_recipe_that_changed_since_is_not_what_was_recorded(results, monkeypatch):
    results(a_result(0))
    monkeypatch.setitem(RECIPES, "paper", lambda data: Config(data=data, options=TrsslOptions(iterations=10)))
    results(a_result(1))
    assert [(row[0], row[5]) for row in ours()] == [
        ("cifar100, paper, 40,000 steps", "1"),
        ("cifar100, paper --iterations 3, 40,000 steps", "0"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "ncd"},
        {"novel_share": 30.0},
        {"imbalance": 10.0},
        {"prior": "uniform"},
        {"num_classes": 117},
        {"num_classes_estimated": True},
        {"part": "unlabelled"},
        {"protocol": "orca"},
        {"labelled": 5.0},
        {"dropped_images": 3},
        {"start": "/tmp/features"},
        {"recipe": "gone"},
    ],
)
def test_a_run_of_another_problem_does_not_slip_in(results, fields, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(RECIPES, "gone", RECIPES["paper"])
        results(a_result(0, **fields))
    assert [row[0] for row in ours()] == ["cifar100, ours: not recorded"]
    assert objections_to(a_result(0)) == []


def test_a_copy_under_the_name_of_another_seed_does_not_count(results):
    folder = results(a_result(0))
    shutil.copy(folder / "cifar100-10-paper-40000-seed0.json", folder / "cifar100-10-paper-40000-seed1.json")
    assert ours()[0][5] == "0"


def test_json_has_numbers(results, capsys):
    results(a_result(0), a_result(1))
    assert run("paper", "table1", "--json") == 0
    table = json.loads(capsys.readouterr().out)
    rows = {row[0]: dict(zip(table["header"], row, strict=True)) for row in table["rows"]}
    assert list(rows) == [row[0] for row in table_of("table1").rows]
    ours = rows["cifar100, paper, 40,000 steps"]
    assert ours["Seen"] == {"mean": 61.0, "std": pytest.approx(2**0.5)}
    assert [ours[key] for key in ("gap", "seeds", "min", "on")] == [-8.8, [0, 1], 10.0, "H200"]
    assert rows["cifar100, TRSSL (paper)"]["All"] == {"mean": 60.3, "std": None}
    assert rows["cifar100, TRSSL (paper)"]["gap"] is None


# The README's -----------------------------------------------------------------------------------------------


def test_the_readme_has_the_recorded_rows_each_below_the_papers_own(results, monkeypatch):
    results(a_result(0), a_result(1))
    lines = script("readme_table", monkeypatch).paper_table().splitlines()
    assert lines[0].startswith("`table1`: ")
    assert lines[2].startswith("|  | Seen | Novel | All |")
    assert lines[4].startswith("| cifar100, TRSSL (paper) | 68.5 | 52.1 | 60.3 | ")
    assert lines[5].startswith("| cifar100, paper, 40,000 steps | 61.0±1.4 | ")
    assert [line for line in lines if "cifar10," in line] == []  # of what was not recorded, there is nothing to compare


def test_a_shorter_run_does_not_stand_for_its_recipe_in_the_readme(results, monkeypatch):
    """Not even if its accuracy is higher, or if it has more seeds."""
    whole = RECIPES["pretrained"]("cifar100").training.steps
    for seed, steps, score in ((0, whole, 60.0), (1, whole // 2, 70.0), (2, whole // 2, 70.0)):
        results(a_result(seed, {"steps": steps}, recipe="pretrained", method="trssl+", all=score))
    lines = script("readme_table", monkeypatch).results_table().splitlines()
    (line,) = (line for line in lines if line.startswith("| CIFAR-100 | 10%"))
    assert "| 60.0 (1 run) |" in line


# Items whose rows differ in their settings ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "settings", "row"),
    [
        ("novel-share", {}, "cifar100-50"),
        ("novel-share", {"novel": 30.0}, "cifar100-30"),
        ("temperature", {"temperature": 0.3}, "cifar100-0.3"),
        ("ablation", {"uncertainty": False, "mixed_labels": False}, "cifar100-neither"),
        ("ablation", {"mixed_labels": False}, "cifar100-uncertainty"),
        ("ablation", {}, "cifar100-both"),
        ("imbalance", {"imbalance": 20.0, "prior": "estimated"}, "cifar100-20-estimated"),
        ("sensitivity", {"num_classes": 90}, "cifar100-90"),
    ],
)
def test_a_run_is_in_the_row_with_its_settings_and_in_no_other(results, item, settings, row):
    fields = {{"novel": "novel_share"}.get(name, name): value for name, value in settings.items()}
    results(a_result(0, settings, **{name: value for name, value in fields.items() if name in PROBLEM_FIELDS}))
    shown = [each[0] for each in table_of(item).texts() if "not recorded" not in each[0] and "(paper)" not in each[0]]
    assert shown == [f"{row}, paper, 40,000 steps"]


PROBLEM_FIELDS = ("task", "novel_share", "imbalance", "prior", "num_classes")


def test_only_the_printed_method_is_in_the_ablation(results):
    results(a_result(0, recipe="fast", method="trssl+"))
    assert ours("ablation", "cifar100-neither")[0][0] == "cifar100-neither, ours: not recorded"


def test_an_estimated_number_of_classes_is_in_the_row_of_the_ablation(results):
    results(a_result(0, num_classes=117, num_classes_estimated=True))
    assert ours("ablation", "cifar100-estimated-classes")[0][0] == "cifar100-estimated-classes, paper, 40,000 steps"


def test_novel_class_discovery_shows_task_aware_accuracy(results):
    settings = {"task": "ncd", "labelled": 100.0}
    protocols = {"task-aware": {"seen": 80.0, "novel": 58.25, "all": 70.0}}
    results(a_result(0, settings, **settings, protocols=protocols))
    row = ("cifar100, paper, 40,000 steps", "58.2", *ROW_OF_SEED_0, "+0.7", "0", "10.0", "H200")
    assert ours("ncd", "cifar100") == [row]


ROW_OF_SEED_0 = ("60.0", "40.0", "50.0")


def test_a_recorded_matrix_is_drawn_in_the_order_of_the_classes(results, tmp_path, monkeypatch):
    """Two seen and two novel classes; the outputs 2 and 3 stand for the classes 3 and 2."""
    counts = ["8 2 0 0", "0 9 1 0", "1 0 0 9", "0 0 6 4"]
    results(a_result(0, confusion=counts, num_seen=2))
    table = table_of("confusion")
    row = dict(zip(table.header, next(row for row in table.texts() if "paper, 40" in row[0]), strict=True))
    assert (row["as seen"], row["as novel"]) == ("5.0", "5.0")
    assert table.figure.counts.tolist() == [[8, 2, 0, 0], [0, 9, 0, 1], [1, 0, 9, 0], [0, 0, 4, 6]]
