"""Membership inference: was this record in the training data?"""

from .captured_attack import CapturedMembership
from .loss_attack import LossThreshold
from .shadow_attack import ShadowMembership
from .shadows import ShadowFactory

__all__ = ["CapturedMembership", "LossThreshold", "ShadowFactory", "ShadowMembership"]
