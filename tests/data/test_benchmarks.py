"""Readers of the benchmarks: the data that they return, and the errors for bad files."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from small_cifar import write, write_cifar

from openworld.core.errors import UserError
from openworld.data import benchmarks
from openworld.data.benchmarks import BENCHMARKS, MissingFile, read_benchmark


def error_of(name: str, data_dir: Path) -> str:
    """Return the one-line error message."""
    with pytest.raises(UserError) as raised:
        read_benchmark(name, data_dir)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def samples(part) -> list[tuple[str, int]]:
    return list(zip(part.content.paths, part.labels.tolist(), strict=True))


# Small versions of the benchmarks, in the layout that their authors publish.


def write_tiny(data_dir: Path) -> Path:
    folder = data_dir / "tiny-imagenet-200"
    write(folder / "wnids.txt", "n03\nn01\nn02\n")
    write(folder / "words.txt", "n01\tcrane, a bird\nn02\tEgyptian cat\nn03\tcrane\nn04\tentity\n")
    for wnid, count in {"n01": 2, "n02": 1, "n03": 1}.items():
        for number in range(count):
            write(folder / f"train/{wnid}/images/{wnid}_{number}.JPEG")
        write(folder / f"train/{wnid}/{wnid}_boxes.txt")
    write(folder / "val/val_annotations.txt", "val_1.JPEG\tn02\t0\t0\t63\t63\nval_0.JPEG\tn03\t0\t0\t62\t63\n")
    for number in range(2):
        write(folder / f"val/images/val_{number}.JPEG")
    return folder


def write_pets(data_dir: Path) -> Path:
    folder = data_dir / "oxford-iiit-pet"
    train = ["Abyssinian_100 1 1 1", "american_bulldog_2 2 2 1", "american_bulldog_10 2 2 1", "Birman_1 3 1 2"]
    test = ["Birman_9 3 1 2", "Abyssinian_3 1 1 1"]
    write(folder / "annotations/trainval.txt", "\n".join(train) + "\n")
    write(folder / "annotations/test.txt", "\n".join(test) + "\n")
    for line in train + test:
        write(folder / f"images/{line.split()[0]}.jpg")
    return folder


def write_aircraft(data_dir: Path) -> Path:
    folder = data_dir / "fgvc-aircraft-2013b" / "data"
    write(folder / "variants.txt", "707-320\nAn-12\nBAE 146-200\n")
    lists = {
        "train": "0000003 BAE 146-200\n0000001 707-320\n",
        "val": "0000002 An-12\n",
        "test": "0000004 BAE 146-200\n",
    }
    for part, lines in lists.items():
        write(folder / f"images_variant_{part}.txt", lines)
    for number in range(1, 5):
        write(folder / f"images/{number:07}.jpg")
    return folder


def write_cars(data_dir: Path) -> Path:
    folder = data_dir / "stanford_cars"
    names = np.array(["AM General Hummer SUV 2000", "Acura RL Sedan 2012"], dtype=object)
    write_mat(folder / "devkit/cars_meta.mat", class_names=names)
    write_mat(folder / "devkit/cars_train_annos.mat", annotations=car_records(2, 1, 2))
    write_mat(folder / "cars_test_annos_withlabels.mat", annotations=car_records(1))
    for number in (1, 2, 3):
        write(folder / f"cars_train/{number:05}.jpg")
    write(folder / "cars_test/00001.jpg")
    return folder


def car_records(*class_ids: int) -> np.ndarray:
    fields = [("bbox_x1", "i4"), ("class", "u1"), ("fname", object)]
    return np.array([(39, class_id, f"{n:05}.jpg") for n, class_id in enumerate(class_ids, 1)], dtype=fields)


def write_mat(path: Path, **content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, content)


SYNSETS = [f"n{number:08}" for number in range(100)]


def write_imagenet(data_dir: Path) -> Path:
    folder = data_dir / "imagenet"
    write(folder / "imagenet100.txt", "".join(f"{synset} name {synset[-2:]}, other\n" for synset in SYNSETS[::-1]))
    for synset in [*SYNSETS, "n99999999"]:
        write(folder / f"train/{synset}/{synset}_7.JPEG")
        write(folder / f"val/{synset}/ILSVRC2012_val_1.JPEG")
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "tiny-imagenet": write_tiny,
    "oxford-pets": write_pets,
    "aircraft": write_aircraft,
    "stanford-cars": write_cars,
    "imagenet100": write_imagenet,
}


# Images in arrays.


def test_digits_need_no_folder(tmp_path):
    digits = read_benchmark("digits", tmp_path / "nowhere")
    assert digits.train.content.shape == (1433, 8, 8, 1)
    assert digits.train.content.dtype == np.uint8
    assert (len(digits.test), digits.class_names[3]) == (364, "3")
    assert digits.train.labels.dtype == np.int64
    assert np.bincount(digits.test.labels).min() >= 35


@pytest.fixture
def small_cifar10(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-bin"
    write(folder / "batches.meta.txt", "cat\ndog\n\n")
    batches = {f"data_batch_{number}": [(number % 2,), (0,)] for number in range(1, 6)}
    return folder, write_cifar(folder, monkeypatch, **batches, test_batch=[(1,)])


def test_cifar10_layout(small_cifar10, tmp_path):
    _, pixels = small_cifar10
    cifar = read_benchmark("cifar10", tmp_path)
    assert cifar.class_names == ("cat", "dog")
    assert cifar.train.labels.tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert np.array_equal(cifar.train.content, np.concatenate([pixels[f"data_batch_{n}"] for n in range(1, 6)]))
    assert np.array_equal(cifar.test.content, pixels["test_batch"])
    assert cifar.train.content.flags.c_contiguous


def test_cifar100_takes_the_fine_label(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-binary"
    write(folder / "fine_label_names.txt", "apple\nbee\ncan\n")
    pixels = write_cifar(folder, monkeypatch, train=[(19, 2), (7, 0), (7, 1)], test=[(3, 1)])
    cifar = read_benchmark("cifar100", tmp_path)
    assert cifar.train.labels.tolist() == [2, 0, 1]
    assert cifar.test.labels.tolist() == [1]
    assert np.array_equal(cifar.train.content, pixels["train"])


def test_cifar_file_with_another_md5(small_cifar10, tmp_path):
    folder, _ = small_cifar10
    expected = benchmarks.CIFAR_MD5["data_batch_3.bin"]
    content = write(folder / "data_batch_3.bin", b"\0" * 3073).read_bytes()
    message = error_of("cifar10", tmp_path)
    for part in (str(folder / "data_batch_3.bin"), hashlib.md5(content).hexdigest(), expected, "unpack"):
        assert part in message


def test_label_without_a_class_name(small_cifar10, tmp_path):
    folder, _ = small_cifar10
    write(folder / "batches.meta.txt", "cat\n")
    assert "class number 2, " in error_of("cifar10", tmp_path)


# Images in files.


@pytest.mark.parametrize("name", WRITERS)
def test_paths_are_sorted_and_lead_to_files(name, tmp_path):
    folder = WRITERS[name](tmp_path)
    dataset = read_benchmark(name, tmp_path)
    assert dataset.name == name
    assert folder == tmp_path / BENCHMARKS[name].folder
    for part in (dataset.train, dataset.test):
        assert list(part.content.paths) == sorted(part.content.paths)
        assert all(Path(part.content.full_path(position)).is_file() for position in range(len(part)))
        assert part.labels.dtype == np.int64


def test_tiny_imagenet(tmp_path):
    write_tiny(tmp_path)
    tiny = read_benchmark("tiny-imagenet", tmp_path)
    assert tiny.class_names == ("crane (n01)", "Egyptian cat", "crane (n03)")
    assert samples(tiny.train) == [
        ("train/n01/images/n01_0.JPEG", 0),
        ("train/n01/images/n01_1.JPEG", 0),
        ("train/n02/images/n02_0.JPEG", 1),
        ("train/n03/images/n03_0.JPEG", 2),
    ]
    assert samples(tiny.test) == [("val/images/val_0.JPEG", 2), ("val/images/val_1.JPEG", 1)]


def test_tiny_imagenet_without_words_names_classes_by_id(tmp_path):
    (write_tiny(tmp_path) / "words.txt").unlink()
    assert read_benchmark("tiny-imagenet", tmp_path).class_names == ("n01", "n02", "n03")


def test_tiny_imagenet_with_an_empty_class(tmp_path):
    (write_tiny(tmp_path) / "train/n02/images/n02_0.JPEG").unlink()
    assert "'Egyptian cat' has no training images" in error_of("tiny-imagenet", tmp_path)


def test_tiny_imagenet_without_a_class_folder(tmp_path):
    shutil.rmtree(write_tiny(tmp_path) / "train/n02")
    fetch = f"openworld data fetch tiny-imagenet --data-dir {tmp_path}"
    message = error_of("tiny-imagenet", tmp_path)
    assert "train/n02/images is missing" in message
    assert f"`{fetch}`" in message


def test_tiny_imagenet_with_an_unknown_class(tmp_path):
    write(write_tiny(tmp_path) / "val/val_annotations.txt", "val_0.JPEG\tn07\t0\t0\t62\t63\n")
    assert "val_annotations.txt: 'n07' is not one of the 3 classes" in error_of("tiny-imagenet", tmp_path)


def test_oxford_pets(tmp_path):
    write_pets(tmp_path)
    pets = read_benchmark("oxford-pets", tmp_path)
    assert pets.class_names == ("Abyssinian", "american bulldog", "Birman")
    assert samples(pets.train) == [
        ("images/Abyssinian_100.jpg", 0),
        ("images/Birman_1.jpg", 2),
        ("images/american_bulldog_10.jpg", 1),
        ("images/american_bulldog_2.jpg", 1),
    ]
    assert samples(pets.test) == [("images/Abyssinian_3.jpg", 0), ("images/Birman_9.jpg", 2)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("Abyssinian_100\n", "the line 'Abyssinian_100'"),
        ("Abyssinian_100 one 1 1\n", "'one' is not a class number"),
        ("Abyssinian_100 1 1 1\nBirman_1 3 1 2\n", "class number 3, "),
        ("Abyssinian_100 1 1 1\nAbyssinian_100 1 1 1\n", "images/Abyssinian_100.jpg is listed twice"),
        (b"\xff\xfe\x00", "trainval.txt: this is not a UTF-8 text file"),
    ],
)
def test_oxford_pets_with_a_damaged_list(tmp_path, lines, expected):
    write(write_pets(tmp_path) / "annotations/trainval.txt", lines)
    assert expected in error_of("oxford-pets", tmp_path)


def test_aircraft_trains_on_train_and_val(tmp_path):
    write_aircraft(tmp_path)
    aircraft = read_benchmark("aircraft", tmp_path)
    assert aircraft.class_names == ("707-320", "An-12", "BAE 146-200")
    assert samples(aircraft.train) == [
        ("images/0000001.jpg", 0),
        ("images/0000002.jpg", 1),
        ("images/0000003.jpg", 2),
    ]
    assert samples(aircraft.test) == [("images/0000004.jpg", 2)]


@pytest.mark.parametrize("in_devkit", [False, True])
def test_stanford_cars(tmp_path, in_devkit):
    folder = write_cars(tmp_path)
    if in_devkit:
        (folder / "cars_test_annos_withlabels.mat").rename(folder / "devkit/cars_test_annos_withlabels.mat")
    cars = read_benchmark("stanford-cars", tmp_path)
    assert cars.class_names == ("AM General Hummer SUV 2000", "Acura RL Sedan 2012")
    assert samples(cars.train) == [
        ("cars_train/00001.jpg", 1),
        ("cars_train/00002.jpg", 0),
        ("cars_train/00003.jpg", 1),
    ]
    assert samples(cars.test) == [("cars_test/00001.jpg", 0)]


@pytest.mark.parametrize("file_name", ["cars_meta.mat", "cars_train_annos.mat"])
@pytest.mark.parametrize("damage", [lambda content: content[:-40], lambda content: b"", lambda content: b"\1" * 500])
def test_stanford_cars_with_a_damaged_mat(tmp_path, file_name, damage):
    path = write_cars(tmp_path) / "devkit" / file_name
    path.write_bytes(damage(path.read_bytes()))
    assert f"{path}: the file is damaged" in error_of("stanford-cars", tmp_path)


def test_stanford_cars_with_the_test_annotations_that_have_no_labels(tmp_path):
    path = write_cars(tmp_path) / "cars_test_annos_withlabels.mat"
    write_mat(path, annotations=np.array([(39, "00001.jpg")], dtype=[("bbox_x1", "i4"), ("fname", object)]))
    message = error_of("stanford-cars", tmp_path)
    assert f"{path}: " in message
    assert "not the published one" in message


def test_imagenet100_takes_the_listed_classes_in_sorted_order(tmp_path):
    write_imagenet(tmp_path)
    imagenet = read_benchmark("imagenet100", tmp_path)
    assert imagenet.class_names == tuple(f"name {synset[-2:]}" for synset in SYNSETS)
    assert samples(imagenet.train)[1] == ("train/n00000001/n00000001_7.JPEG", 1)
    assert (len(imagenet.train), len(imagenet.test)) == (100, 100)


def test_imagenet100_list_without_names(tmp_path):
    write(write_imagenet(tmp_path) / "imagenet100.txt", "\n".join(SYNSETS))
    assert read_benchmark("imagenet100", tmp_path).class_names == tuple(SYNSETS)


@pytest.mark.parametrize(
    ("synsets", "expected"),
    [
        ([*SYNSETS, SYNSETS[7]], "n00000007 is listed 2 times"),
        ([*SYNSETS[:-1], "dog"], "'dog' is not a synset"),
        (SYNSETS[:-1], "99 synsets, not 100"),
        ([*SYNSETS, "n99999999"], "101 synsets, not 100"),
        ([*SYNSETS[:-1], "n12345678"], "train/n12345678 is missing"),
        ([], " 0 synsets, not 100"),
    ],
)
def test_imagenet100_with_a_wrong_list(tmp_path, synsets, expected):
    write(write_imagenet(tmp_path) / "imagenet100.txt", "\n".join(synsets))
    assert expected in error_of("imagenet100", tmp_path)


# Missing files.


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "digits"])
def test_a_missing_benchmark_says_what_to_do(name, tmp_path):
    message = error_of(name, tmp_path)
    assert message.startswith(f"{name}: {tmp_path / BENCHMARKS[name].folder}")
    for part in ("is missing", "https://", f"{tmp_path}", "--data-dir", "OPENWORLD_DATA"):
        assert part in message
    assert "MB)" in message or "GB" in message
    assert (f"openworld data fetch {name}" in message) == bool(BENCHMARKS[name].source.archives)


@pytest.mark.parametrize("name", ["tiny-imagenet", "oxford-pets", "aircraft", "stanford-cars"])
def test_missing_images_are_counted(name, tmp_path):
    WRITERS[name](tmp_path)
    part = read_benchmark(name, tmp_path).train if name != "tiny-imagenet" else read_benchmark(name, tmp_path).test
    first, second = (Path(part.content.full_path(position)) for position in (0, 1))
    second.unlink()
    assert f"{second} is missing" in error_of(name, tmp_path)
    first.unlink()
    assert f"{first} (the first of 2) is missing" in error_of(name, tmp_path)


def test_a_list_cannot_lead_out_of_the_folder(tmp_path):
    folder = write_pets(tmp_path)
    write(tmp_path / "secret_1.jpg")
    write(folder / "annotations/test.txt", "../../secret_1 1 1 1\n")
    assert "secret_1.jpg is missing" in error_of("oxford-pets", tmp_path)


def test_a_file_in_place_of_the_folder(tmp_path):
    write(tmp_path / "oxford-iiit-pet")
    with pytest.raises(MissingFile):
        read_benchmark("oxford-pets", tmp_path)


def test_a_folder_in_place_of_a_file(tmp_path):
    folder = write_pets(tmp_path)
    (folder / "annotations/test.txt").unlink()
    (folder / "annotations/test.txt").mkdir()
    assert "test.txt cannot be read" in error_of("oxford-pets", tmp_path)


def test_unknown_name(tmp_path):
    message = error_of("cifar-10", tmp_path)
    assert "did you mean cifar10?" in message
    assert "imagenet100" in message
