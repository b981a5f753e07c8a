"""The items of the paper about accuracies, with the numbers that it prints: seen, novel and all accuracy in %."""

from openworld.paper.items import ACCURACIES, NUM_CLASSES, OWN, Item, Row

HIGHER_TEMPERATURE = {"temperature": 0.2}
TABLE1 = Item(
    'Table "Accuracy on CIFAR-10, CIFAR-100 and ImageNet-100", with 10% of the labels.',
    "Accuracy with 10% of the labels of the seen classes",
    (
        Row(
            "cifar10",
            printed={
                "FixMatch": (64.3, 49.4, 47.3),
                "DS3L": (70.5, 46.6, 43.5),
                "DTC": (42.7, 31.8, 32.4),
                "RankStats": (71.4, 63.9, 66.7),
                "UNO": (86.5, 71.2, 78.9),
                "ORCA": (82.8, 85.5, 84.1),
                OWN: (94.9, 89.6, 92.2),
            },
            settings={"labelled": 10.0},
        ),
        Row(
            "cifar100",
            printed={
                "FixMatch": (30.9, 18.5, 15.3),
                "DS3L": (33.7, 15.8, 15.1),
                "DTC": (22.1, 10.5, 13.7),
                "RankStats": (20.4, 16.7, 17.8),
                "UNO": (53.7, 33.6, 42.7),
                "ORCA": (52.5, 31.8, 38.6),
                OWN: (68.5, 52.1, 60.3),
            },
            settings={"labelled": 10.0},
        ),
        Row(
            "imagenet100",
            printed={
                "FixMatch": (60.9, 33.7, 30.2),
                "DS3L": (64.3, 28.1, 25.9),
                "DTC": (24.5, 17.8, 19.3),
                "RankStats": (41.2, 26.8, 37.4),
                "UNO": (66.0, 42.2, 53.3),
                "ORCA": (83.9, 60.5, 69.7),
                OWN: (82.6, 67.8, 75.4),
            },
            settings={"labelled": 10.0},
        ),
    ),
)
TABLE2 = Item(
    'Table "Accuracy on Tiny ImageNet, Oxford-IIIT Pet, FGVC-Aircraft and Stanford Cars".',
    "Accuracy on Tiny ImageNet (10% of the labels) and on fine-grained sets (50%)",
    (
        Row(
            "tiny-imagenet",
            settings={"labelled": 10.0},
            printed={
                "DTC": (13.5, 12.7, 11.5),
                "RankStats": (9.6, 8.9, 6.4),
                "UNO": (28.4, 14.4, 20.4),
                OWN: (39.5, 20.5, 30.3),
            },
        ),
        Row(
            "oxford-pets",
            settings={"labelled": 50.0},
            printed={
                "DTC": (20.7, 16.0, 13.5),
                "RankStats": (12.6, 11.9, 11.1),
                "UNO": (49.8, 22.7, 34.9),
                OWN: (70.9, 36.1, 53.9),
            },
        ),
        Row(
            "aircraft",
            settings={"labelled": 50.0},
            printed={
                "DTC": (16.3, 16.5, 11.8),
                "RankStats": (13.4, 13.6, 11.1),
                "UNO": (44.4, 24.7, 31.8),
                OWN: (69.5, 41.2, 55.4),
            },
        ),
        Row(
            "stanford-cars",
            settings={"labelled": 50.0},
            printed={
                "DTC": (12.3, 10.0, 7.7),
                "RankStats": (10.4, 9.1, 6.6),
                "UNO": (49.0, 15.7, 30.7),
                OWN: (83.5, 37.1, 60.4),
            },
        ),
    ),
)
LABELS50 = Item(
    "Tables of CIFAR-10, CIFAR-100 and Tiny ImageNet, with 50% of the labels.",
    "Accuracy with 50% of the labels of the seen classes",
    (
        Row(
            "cifar10",
            settings={"labelled": 50.0},
            printed={
                "FixMatch": (71.5, 50.4, 49.5),
                "DS3L": (77.6, 45.3, 40.2),
                "CGDL": (72.3, 44.6, 39.7),
                "DTC": (53.9, 39.5, 38.3),
                "RankStats": (86.6, 81.0, 82.9),
                "SimCLR": (58.3, 63.4, 51.7),
                "UNO": (91.6, 69.3, 80.5),
                "ORCA": (88.2, 90.4, 89.7),
                OWN: (96.8, 92.8, 94.8),
            },
            paper_settings=HIGHER_TEMPERATURE,
        ),
        Row(
            "cifar100",
            settings={"labelled": 50.0},
            printed={
                "FixMatch": (39.6, 23.5, 20.3),
                "DS3L": (55.1, 23.7, 24.0),
                "CGDL": (49.3, 22.5, 23.5),
                "DTC": (31.3, 22.9, 18.3),
                "RankStats": (36.4, 28.4, 23.1),
                "SimCLR": (28.6, 21.1, 22.3),
                "UNO": (68.3, 36.5, 51.5),
                "ORCA": (66.9, 43.0, 48.1),
                OWN: (80.2, 49.3, 64.7),
            },
            paper_settings=HIGHER_TEMPERATURE,
        ),
        Row(
            "tiny-imagenet",
            settings={"labelled": 50.0},
            printed={
                "DTC": (28.8, 16.3, 19.9),
                "RankStats": (5.7, 5.4, 3.4),
                "UNO": (46.5, 15.7, 30.3),
                OWN: (59.1, 24.2, 41.7),
            },
        ),
    ),
    notes=(
        "--temperature 0.2: the paper uses this temperature on CIFAR with 50% of the labels, so with this flag the "
        "recipe `paper` is still the method as printed.",
    ),
)
LABELS_FEW = Item(
    "Tables of CIFAR-10 with 1% and 5% of the labels, and of CIFAR-100 with 5%.",
    "Accuracy with few labels",
    (
        Row("cifar10", "1", {"labelled": 1.0}, {"UNO": (48.4, 67.1, 52.6), OWN: (92.0, 91.1, 91.6)}),
        Row("cifar10", "5", {"labelled": 5.0}, {"UNO": (74.6, 68.4, 71.8), OWN: (90.9, 91.4, 91.2)}),
        Row("cifar100", "5", {"labelled": 5.0}, {"UNO": (44.0, 31.7, 36.5), OWN: (60.1, 47.4, 54.4)}),
    ),
    notes=("The number after the data set is the percentage of labelled images in the seen classes.",),
)
FINE_GRAINED25 = Item(
    "Table of the fine-grained sets, with 25% of the labels.",
    "Accuracy on fine-grained sets with 25% of the labels of the seen classes",
    (
        Row("oxford-pets", "", {"labelled": 25.0}, {"UNO": (35.6, 19.1, 25.8), OWN: (59.1, 31.4, 45.6)}),
        Row("aircraft", "", {"labelled": 25.0}, {"UNO": (28.2, 20.7, 21.9), OWN: (52.4, 36.5, 45.3)}),
        Row("stanford-cars", "", {"labelled": 25.0}, {"UNO": (26.5, 10.3, 17.2), OWN: (67.4, 32.5, 50.0)}),
    ),
)
VARIANTS = {
    "neither": {"uncertainty": False, "mixed_labels": False},
    "uncertainty": {"mixed_labels": False},
    "mixed-labels": {"uncertainty": False},
    "estimated-classes": {"num_classes": "auto"},
    "both": {},
}
"""Settings of the rows of the ablation."""
ABLATION_PRINTED = {
    "cifar10": ((96.0, 84.4, 90.2), (95.0, 86.6, 90.8), (95.8, 87.9, 91.9), (94.9, 89.6, 92.2), (94.9, 89.6, 92.2)),
    "cifar100": ((69.2, 46.5, 57.9), (69.4, 46.6, 57.9), (66.9, 48.1, 57.5), (65.5, 44.2, 54.8), (68.5, 52.1, 60.3)),
    "tiny-imagenet": (
        (38.1, 17.5, 28.1),
        (41.3, 16.0, 29.2),
        (34.9, 21.0, 28.2),
        (40.3, 19.3, 30.2),
        (39.5, 20.5, 30.3),
    ),
}
ABLATION = Item(
    'Table "Ablation study": without temperatures by uncertainty, without mixed labels, with an estimated class count.',
    "Ablation of the printed method, with 10% of the labels",
    tuple(
        Row(data, variant, {"labelled": 10.0, **settings}, {OWN: numbers})
        for data, printed in ABLATION_PRINTED.items()
        for (variant, settings), numbers in zip(VARIANTS.items(), printed, strict=True)
    ),
    recipe="paper",
    notes=(
        "neither: pseudo-labels by the class prior alone. uncertainty: with temperatures by uncertainty. mixed-labels: "
        "with hard labels for confident novel samples. both: the whole method. estimated-classes: the whole method "
        "with the estimated number of classes; in the other rows it is known.",
    ),
)
PRIORS = ("even", "known", "estimated")
IMBALANCE_PRINTED = {
    10: ((48.4, 28.6, 38.9), (50.5, 30.8, 41.0), (50.2, 31.3, 41.3)),
    20: ((44.4, 22.9, 33.8), (48.8, 24.6, 36.9), (44.2, 24.0, 35.3)),
}
IMBALANCE = Item(
    "Table of imbalanced CIFAR-100: balanced, true and estimated class prior.",
    "Accuracy on imbalanced CIFAR-100 with 10% of the labels, with three class priors",
    tuple(
        Row(
            "cifar100",
            f"{factor}-{prior}",
            {"labelled": 10.0, "imbalance": float(factor), "prior": prior},
            {OWN: numbers},
        )
        for factor, printed in IMBALANCE_PRINTED.items()
        for prior, numbers in zip(PRIORS, printed, strict=True)
    ),
    notes=(
        "The number is the imbalance factor: how many times larger the first class is than the last. Then follows the "
        "class prior. even: all classes are taken for equally large (the paper's balanced prior). known: the true "
        "proportions. estimated: training begins with even and moves the prior to what it predicts.",
    ),
)
NCD_COLUMNS = {"task_aware": "aware", **ACCURACIES}
NCD = Item(
    'Table "Performance on novel class discovery task", on CIFAR-100.',
    "Novel class discovery: all unlabelled images are of novel classes",
    (
        Row(
            "cifar100",
            settings={"task": "ncd"},
            printed={
                "k-means": (28.3, None, None, None),
                "DTC": (35.9, None, None, None),
                "RankStats": (39.2, None, None, None),
                "RankStats+": (44.1, None, None, None),
                "UNO": (52.9, None, None, None),
                OWN: (57.5, None, None, None),
            },
        ),
    ),
    columns=NCD_COLUMNS,
    compared="task_aware",
    notes=(
        "aware: accuracy on novel classes if only the novel outputs may answer (task-aware). Seen, Novel, All: all "
        "outputs may answer (task-agnostic). The paper takes the numbers of the other methods from UNO, where they are "
        "task-aware and on the unlabelled training images; of its own it does not say so. UNO's later version has "
        "60.8. Ours are on the test images.",
    ),
)
SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90)
NOVEL_SHARE = Item(
    "Figure of the accuracy over the percentage of novel classes, on CIFAR-100.",
    "Accuracy over the percentage of novel classes, CIFAR-100 with 10% of the labels",
    tuple(
        Row(
            "cifar100",
            f"{share}",
            {"labelled": 10.0, "novel": float(share)},
            {OWN: (68.5, 52.1, 60.3)} if share == 50 else {},
        )
        for share in SHARES
    ),
    x=("novel classes (%)", lambda row: row.settings["novel"]),
    notes=(
        "The number after the data set is the percentage of novel classes. The paper shows a figure without numbers; "
        "those at 50% are in its Table 1.",
    ),
)
NCD_SHARE = Item(
    "Figure of novel class discovery over the percentage of novel classes, on CIFAR-100.",
    "Novel class discovery over the percentage of novel classes, CIFAR-100",
    tuple(Row("cifar100", f"{share}", {"task": "ncd", "novel": float(share)}) for share in SHARES),
    columns=NCD_COLUMNS,
    compared="all",
    x=("novel classes (%)", lambda row: row.settings["novel"]),
    notes=(
        "The number after the data set is the percentage of novel classes. The paper shows a figure of task-agnostic "
        "accuracy (all outputs may answer) without numbers. aware: accuracy on novel classes if only the novel outputs "
        "may answer.",
    ),
)
TEMPERATURES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
TEMPERATURE = Item(
    "Figure of the accuracy over the temperature, on CIFAR-100.",
    "Accuracy over the temperature, CIFAR-100 with 10% of the labels",
    tuple(
        Row(
            "cifar100",
            f"{value:g}",
            {"labelled": 10.0, "temperature": value},
            {OWN: (68.5, 52.1, 60.3)} if value == 0.1 else {},
        )
        for value in TEMPERATURES
    ),
    x=("temperature", lambda row: row.settings["temperature"]),
    notes=(
        "The number after the data set is the temperature. The paper shows a figure without numbers: 0.1, 0.2 and 0.3 "
        "are alike there, higher temperatures are worse. Those at 0.1 are in its Table 1.",
    ),
)
COUNTS = (75, 90, 98, 100, 110, 117, 125)
SENSITIVITY = Item(
    'Figure "Accuracy as a function of class estimation error", on CIFAR-100.',
    "Accuracy with a wrong number of classes, CIFAR-100 with 10% of the labels",
    tuple(
        Row(
            "cifar100",
            f"{number}",
            {"labelled": 10.0, "num_classes": number},
            {100: {OWN: (68.5, 52.1, 60.3)}, 117: {OWN: (65.5, 44.2, 54.8)}}.get(number, {}),
        )
        for number in COUNTS
    ),
    x=(
        "error of the number of classes (%)",
        lambda row: 100 * (row.settings["num_classes"] / NUM_CLASSES[row.data] - 1),
    ),
    notes=(
        "The number after the data set is the number of classes that training assumes; 100 is right. The paper shows a "
        "figure without numbers; those at 100 and at 117, its estimate, are in its ablation.",
        "trial: paper --method trssl+ --weight-decay 5e-4 --iterations 10 --no-uncertainty --queue 2048, a fiftieth of "
        "the paper's steps, so only the shape of the curve is meaningful.",
    ),
)
CONFUSION = Item(
    "Figure of the confusion matrix, on CIFAR-100.",
    "Confusion of seen and novel classes, CIFAR-100 with 10% of the labels",
    (Row("cifar100", settings={"labelled": 10.0}, printed={OWN: (None, None, 60.3)}),),
    columns={"novel_as_seen": "as seen", "seen_as_novel": "as novel", "all": "All"},
    shows_matrix=True,
    notes=(
        "as seen: novel test images that are predicted as a seen class, in %. as novel: seen images that are predicted "
        "as a novel class. The paper shows the matrix without numbers.",
    ),
)
