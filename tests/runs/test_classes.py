import json
from pathlib import Path

import pytest
import torch
from worlds import trained

from openworld.commands.name import print_merges
from openworld.core.errors import UserError
from openworld.core.fields import replace
from openworld.core.recipes import digits
from openworld.runs.classes import NAMES, Classes

CLASSES = Classes(("cat", "dog", "novel-1", "novel-2", "novel-3"), num_seen=2)


def test_without_names_every_output_is_a_class_of_its_own():
    shares = torch.rand(4, 5)
    assert CLASSES.names == CLASSES.name_of_each_output == CLASSES.outputs
    assert torch.equal(CLASSES.sum_by_class(shares), shares)


def test_a_name_takes_the_place_of_the_number():
    with pytest.raises(UserError, match=r"novel-2: .*'.udcff' is not valid UTF-8"):
        CLASSES.renamed("novel-2", "\udcff")
    named = CLASSES.renamed("novel-2", "  delivery   van ")
    assert named.names == ("cat", "dog", "novel-1", "delivery van", "novel-3")
    assert named.renamed("delivery van", "truck").names[3] == "truck"
    assert named.renamed("novel-2", "truck").names[3] == "truck"
    assert named.renamed("novel-2", "novel-2") == CLASSES
    assert named.renamed("delivery van", "novel-2") == CLASSES


def test_merged_outputs_are_one_class_with_the_sum_of_their_shares():
    merged = CLASSES.merged(["novel-3", "novel-1"])
    assert merged.name_of_each_output == ("cat", "dog", "novel-3", "novel-2", "novel-3")
    assert merged.names == ("cat", "dog", "novel-3", "novel-2")
    shares = torch.tensor([[0.1, 0.2, 0.3, 0.15, 0.25]])
    torch.testing.assert_close(merged.sum_by_class(shares), torch.tensor([[0.1, 0.2, 0.55, 0.15]]))


def test_a_merged_class_is_named_as_one_and_grows():
    van = CLASSES.merged(["novel-1", "novel-2"]).renamed("novel-1", "van")
    assert van.name_of_each_output == ("cat", "dog", "van", "van", "novel-3")
    assert van.merged(["van", "novel-3"]).names == ("cat", "dog", "van")
    assert van.merged(["novel-3", "van"]).names == ("cat", "dog", "novel-3")


def test_the_same_name_merges_and_a_known_name_joins_the_known_class():
    assert CLASSES.renamed("novel-1", "van").renamed("novel-3", "van").names == ("cat", "dog", "van", "novel-2")
    joined = CLASSES.renamed("novel-2", "dog")
    assert joined.names == ("cat", "dog", "novel-1", "novel-3")
    assert joined.sum_by_class(torch.eye(5))[3].tolist() == [0, 1, 0, 0]
    assert Classes(("a  cat", "dog", "novel-1"), num_seen=2).renamed("novel-1", "a  cat").names == ("a  cat", "dog")


def test_it_is_told_which_classes_became_one(capsys):
    van = CLASSES.renamed("novel-1", "van")
    print_merges(Path("my run"), CLASSES, van)
    print_merges(Path("my run"), van, van)
    assert capsys.readouterr().out == ""
    print_merges(Path("my run"), van, van.renamed("novel-3", "van").renamed("novel-2", "dog"))
    dog, van = capsys.readouterr().out.splitlines()
    assert dog.startswith("dog and novel-2 are now one class, dog")
    assert dog.endswith("openworld name 'my run' novel-2=novel-2")
    assert van.startswith("novel-1 and novel-3 are now one class, van")
    assert van.endswith(" novel-3=novel-3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: CLASSES.renamed("novel-9", "van"), "novel-9 is not a novel class; did you mean novel-"),
        (lambda: CLASSES.renamed("cat", "tiger"), "cat is a seen class"),
        (lambda: CLASSES.renamed("novel-1", " "), "novel-1: the new name is empty"),
        (lambda: CLASSES.renamed("novel-1", "Dog"), "Dog differs from the class dog only in"),
        (lambda: CLASSES.renamed("novel-1", "novel-2"), "--merge novel-1 novel-2"),
        (lambda: CLASSES.merged(["novel-1"]), "two or more"),
        (lambda: CLASSES.merged(["novel-1", "novel-1"]), "two or more"),
        (lambda: CLASSES.merged(["novel-1", "dog"]), "dog is a seen class"),
        (lambda: CLASSES.merged(["novel-1", "bat"]), "bat is not a novel class"),
    ],
)
def test_what_cannot_be_named(change, message):
    with pytest.raises(UserError, match=message):
        change()


@pytest.mark.slow
def test_names_are_kept_in_the_run_folder():
    config = replace(digits("digits"), {"steps": 2, "epoch_steps": 2, "uncertainty_views": 2, "num_classes": 7})
    run = trained("r", config)
    assert Classes.of(run) == Classes(("0", "1", "2", "3", "4", "novel-1", "novel-2"), 5)
    run.write(NAMES, json.dumps({"novel-2": "nine"}))
    assert Classes.of(run).names[-1] == "nine"
    run.write(NAMES, "{")
    with pytest.raises(UserError, match=r"names.json is damaged"):
        Classes.of(run)
    for damaged in ("[1]", '{"novel-1": 5}', '{"novel-1": ["a"]}', "3"):
        run.write(NAMES, damaged)
        with pytest.raises(UserError, match=r"names.json is damaged"):
            Classes.of(run)
    split = json.loads(run.split())
    del split["class_names"]
    run.write("split.json", json.dumps(split))
    with pytest.raises(UserError, match=r"split.json has no class names"):
        Classes.of(run)
