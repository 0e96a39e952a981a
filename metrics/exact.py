"""Images that came back beyond doubt: so much closer than anything made without the message that no line-up is needed.

Where pictures made of nothing are other images of the data set itself, 3,600 of them, and the nearest of sixty such, no
digit and one photo at most is so close to an original beside 10 to 300 others; at 10 dB it is up to ten.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .image import PSNR_CAP, psnr

BEYOND_DOUBT = 15.0  # dB: a thirtieth of the squared error
OF_ROWS = 100  # others for each row of a table


def back_beyond_doubt(originals: Tensor, rebuilt: Tensor, controls: Tensor, others: Tensor | None) -> Tensor:
    """Which of the originals (n,) came back beyond doubt: their reconstruction has at most a thirtieth of the squared
    error of the best control, of the best flat picture of one colour, and of itself to any other image.

    A line-up of few images cannot tell one picture from luck, whatever it looks like; a thirtieth of the error of all
    that knows nothing is none. An image that others have twice, or a flat one, is never said to be back. Rows of a
    table may be alike but for a number or two, so that one made of nothing may come near by luck: they need `OF_ROWS`
    others each, of which it would have to be the nearest.

    Args:
        originals, rebuilt: (n, c, h, w), matched. controls: (n,), the largest PSNR of what knows nothing, in dB.
        others: (k, c, h, w), images that were not in the message; None for none.

    >>> black, noisy = torch.zeros(1, 1, 8, 8), torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> [back_beyond_doubt(image, image, torch.tensor([10.0]), None).item() for image in (noisy, black)]
    [True, False]
    >>> back_beyond_doubt(noisy, noisy, torch.tensor([10.0]), noisy).item()
    False
    """
    best = controls
    if originals.shape[2:] == (1, 1):  # rows of a table, of one pixel: a picture of its own colour is the row itself
        if others is None or len(others) < OF_ROWS * len(originals):
            return torch.zeros(len(originals), dtype=torch.bool)
    else:
        best = torch.maximum(best, psnr(originals, originals.mean(dim=(2, 3), keepdim=True).expand_as(originals)))
    if others is not None and len(others):
        nearest = torch.cdist(rebuilt.flatten(1), others.flatten(1)).argmin(dim=1)
        best = torch.maximum(best, psnr(rebuilt, others[nearest]))
    return psnr(rebuilt, originals).clamp(max=PSNR_CAP) >= best + BEYOND_DOUBT
