"""How long the noise of a message is, beside the gradient in it."""

from __future__ import annotations

from ..inversion.read.target import Target

ONE_SIDED = 1.645  # standard deviations of a normal law that 95 % stay below


def noise_over_gradient(target: Target) -> float:
    """How many times as long as the gradient the noise is, at least, at 95 %; 0 where it is none or unknown.

    ‖message‖² is ‖g‖² + d·σ², with a standard deviation of √(2dσ⁴ + 4σ²‖g‖²), and a clip bounds ‖g‖.
    """
    d = len(target.gradient) if target.sparse is None else int(target.sparse.sent.sum())
    noise = d * target.noise_std**2
    if not noise:
        return 0.0
    left = max(0.0, float(target.gradient.double().square().sum()) - noise)
    most = left + ONE_SIDED * (2 * noise**2 / d + 4 * target.noise_std**2 * left) ** 0.5
    if target.clip_norm is not None and not target.per_layer:
        most = min(most, target.clip_norm**2)
    return (noise / most) ** 0.5
