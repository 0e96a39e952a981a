"""The loss that an owner declares: by name, or as torch's own module or function, whose parameters are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ...defenses import losses
from ..errors import BadInput, bad_input
from .network import UNKNOWN, builder_of, path_of

# torch's module -> what it is, which of its attributes are its parameters, and what else makes it
MODULES: Mapping[type[nn.Module], tuple[type[losses.Loss], tuple[str, ...], dict[str, Any]]] = {
    nn.CrossEntropyLoss: (losses.CrossEntropy, ("weight", "label_smoothing"), {}),
    nn.NLLLoss: (losses.CrossEntropy, ("weight",), {}),  # of log-probabilities, whose log-softmax is themselves
    nn.BCEWithLogitsLoss: (losses.BinaryCrossEntropy, ("pos_weight",), {}),
    nn.MSELoss: (losses.SquaredError, (), {"factor": 1.0}),
    nn.L1Loss: (losses.AbsoluteError, (), {}),
}
FUNCTIONS: tuple[tuple[object, type[nn.Module]], ...] = (
    (F.cross_entropy, nn.CrossEntropyLoss),
    (F.nll_loss, nn.NLLLoss),
    (F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    (F.mse_loss, nn.MSELoss),
    (F.l1_loss, nn.L1Loss),
)
SIGMOID_FOCAL = ("torchvision.ops.focal_loss", "sigmoid_focal_loss")
OTHER = "leave loss out, and ε is priced all the same; what attacks then do not find says nothing"


def declared_loss(given: object) -> str | None:
    """As `losses.loss_of` reads it; None for none.

    Args:
        given: a name with parameters, torch's module or function, or a `functools.partial` of one.

    Raises:
        BadInput: attacks do not know it.
    """
    if given is None:
        return None
    with bad_input("loss"):
        if isinstance(given, str):
            loss = losses.loss_of(given.replace(".py:", ":"))
            if isinstance(loss, losses.OwnLoss):
                return _own(loss.code, "")
            return loss.text
        if isinstance(given, nn.Module) and type(given) in MODULES:
            return _of_torch(type(given), vars(given) | dict(given.named_buffers())).text
        function, options, more = given, {}, ()
        if isinstance(given, partial):
            function, options, more = given.func, given.keywords, given.args
        named = getattr(function, "__module__", ""), getattr(function, "__name__", "")
        if named == SIGMOID_FOCAL:
            found = {"gamma": 2, "alpha": 0.25, **{n: v for n, v in options.items() if n != "reduction"}}
            if found["alpha"] < 0:  # torchvision's word for none
                del found["alpha"]
            return losses.loss_with(losses.Focal, found).text
        kind = next((kind for one, kind in FUNCTIONS if one is function), None)
        if kind is not None and not more:
            return _of_torch(kind, {"reduction": "mean", **options}).text
        if isinstance(given, FunctionType) and (path := path_of(given)) != UNKNOWN and "<" not in path:
            return _own(path, given)
    name = named[1] or type(given).__name__
    raise BadInput(
        f"loss = {name}: attacks know {', '.join(losses.LOSSES)}, by name or as torch's own, as"
        f" nn.BCEWithLogitsLoss(), or a function of a file of yours, as losses.mine; {OTHER}"
    )


def _own(name: str, given: str | Callable[..., Any]) -> str:
    """A function of its owner's, which may run in the owner's process. Raises BadInput."""
    code, function = builder_of(given or name)
    losses.ALLOWED[code] = function
    return losses.OwnLoss(code).text


def _of_torch(kind: type[nn.Module], given: Mapping[str, Any]) -> losses.Loss:
    loss, parameters, fixed = MODULES[kind]
    if given.get("reduction", "mean") != "mean":
        raise ValueError(f"{kind.__name__}(reduction={given['reduction']!r}): expected the mean over a batch")
    if given.get("ignore_index", -100) != -100:
        raise ValueError(f"{kind.__name__}(ignore_index=…): records without a target cannot be taken")
    if kind is nn.BCEWithLogitsLoss and given.get("weight") is not None:
        raise ValueError("BCEWithLogitsLoss(weight=…): weights of single records cannot be taken; pos_weight can")
    found = {name: _plain(given[name]) for name in parameters if given.get(name) is not None}
    return losses.loss_with(loss, {**fixed, **found})


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.flatten().tolist()
    return value
