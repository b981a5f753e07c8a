"""A hue shift with Pillow, as a reference for ours."""

import numpy as np
from PIL import Image


def pillow_hue(image: Image.Image, shift: float) -> Image.Image:
    hsv = np.array(image.convert("HSV")).astype(int)
    hsv[..., 0] = (hsv[..., 0] + round(shift * 256)) % 256
    return Image.fromarray(hsv.astype(np.uint8), "HSV").convert("RGB")
