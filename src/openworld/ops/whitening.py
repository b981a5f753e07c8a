"""Whiten features by their covariance within classes. Shapes: M and N samples of D features, K classes."""

import torch
from torch import Tensor


def within_class_whitening(samples_MD: Tensor, classes_MK: Tensor, all_ND: Tensor, floor: float) -> Tensor:
    """Return the (D, D) matrix that whitens the classes::

        W = (C + floor v I)^(-1/2)

    C is the covariance of some samples around the means of their classes, and v the mean variance of all samples. After
    whitening, the samples of a class vary about equally in all directions. Directions that only separate samples of
    one class are unlikely to separate other classes. Few samples do not span all directions, so the floor is added.

    Args:
        samples_MD: the samples that measure the covariance.
        classes_MK: the probabilities of their classes.
        all_ND: all samples.
        floor: the smallest variance, relative to v.
    """
    sizes_K1 = classes_MK.sum(dim=0)[:, None].clamp(min=1e-6)
    means_KD = classes_MK.T @ samples_MD / sizes_K1
    covariance_DD = (samples_MD.T @ samples_MD - means_KD.T @ (means_KD * sizes_K1)) / len(samples_MD)
    variance = all_ND.var(dim=0).mean().clamp(min=1e-12)
    values_D, directions_DD = eigenvectors(covariance_DD + floor * variance * torch.eye(len(covariance_DD)).to(all_ND))
    return directions_DD * values_D.clamp(min=1e-12).rsqrt() @ directions_DD.T


def eigenvectors(symmetric_DD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues, ascending, and the eigenvectors as columns. Apple's GPU cannot compute them."""
    if symmetric_DD.device.type == "mps":
        values_D, directions_DD = torch.linalg.eigh(symmetric_DD.cpu())
        return values_D.to("mps"), directions_DD.to("mps")
    return torch.linalg.eigh(symmetric_DD)
