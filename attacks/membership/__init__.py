"""Membership inference: was this record in the training data?"""

from .attribute import AttributeInference
from .captured_attack import CapturedMembership
from .exposure import ExposedNumbers
from .loss_attack import LossThreshold
from .quantile import QuantileMembership
from .sequence import SequenceMembership
from .shadow_attack import ShadowMembership
from .shadows import ShadowFactory
from .stacked import StackedMembership

__all__ = [
    "AttributeInference",
    "CapturedMembership",
    "ExposedNumbers",
    "LossThreshold",
    "QuantileMembership",
    "SequenceMembership",
    "ShadowFactory",
    "ShadowMembership",
    "StackedMembership",
]
