"""Which of torch's kernels inversions ask for, where its own choice is wrong for them.

cuDNN by default reads ten bits of a convolution's numbers alone (TensorFloat-32). A gradient's direction under weak
noise, and everything that is called exact here, is told by the bits beyond. And the fast kernels of attention have no
second derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.backends import cudnn
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Convolutions in whole float32, as the CPU has them, and attention by products, as long as the context lasts. What
    a caller chose besides stands, so also products of matrices by TensorFloat-32, which torch has off.
    """
    chosen = (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic)
    with cudnn.flags(*chosen, allow_tf32=False), sdpa_kernel(SDPBackend.MATH):
        yield
