"""Numbers sent along with a value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..scheme import Context, Step
from ..wire import Parcel
from .perturb import raw_release


@dataclass(frozen=True)
class WithNorm:
    """`step`, and beside its result the L2 norm of the value that went in, in the clear (THESIS Alg. 3.1, line 22).

    The norm is sent without noise: that is a release of its own, and nothing can be proven of it.
    """

    step: Step

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        after = self.step(parcel, context)
        norm = raw_release(context, "norm", "the value's norm is sent without noise")
        side = {**after.side, "norm": parcel.vector.norm().item()}
        return replace(after, side=side, releases=after.releases | {norm}, told=after.told | {norm})
