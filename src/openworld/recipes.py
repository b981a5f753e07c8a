"""Named full configurations. Each docstring: the command, the measured result, the time, the hardware."""

from collections.abc import Callable

from openworld.config import Config, Training, Trssl, did_you_mean
from openworld.errors import UserError


def digits() -> Config:
    """scikit-learn's 8x8 digits on two CPU cores: the default."""
    return Config(
        training=Training(
            network="small",
            augment="digits",
            steps=700,
            epoch_steps=100,
            batch_labelled=64,
            batch_unlabelled=128,
            lr=0.3,
            weight_decay=5e-4,
        ),
        trssl=Trssl(iterations=20, uncertainty_from=0.5),
    )


def paper() -> Config:
    """The printed method and hyperparameters (CIFAR-10 and CIFAR-100, ResNet-18 from scratch)."""
    return Config()


RECIPES: dict[str, Callable[[], Config]] = {"digits": digits, "paper": paper}


def recipe_for(name: str, data: str) -> str:
    """The recipe's name, with auto settled by the data."""
    if name == "auto":
        return "digits" if data == "digits" else "paper"
    if name not in RECIPES:
        raise UserError(f"--recipe {name}: no such recipe{did_you_mean(name, RECIPES)} ({', '.join(RECIPES)})")
    return name
