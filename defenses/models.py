"""The model zoo. Every model starts with its normalisation, so that attacks and metrics speak of pixels in [0, 1]."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import gcd, prod
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .hugging_face import LIBRARY, PREFIX, built, classifier, decoder
from .lora import adapt
from .losses import ALLOWED, OwnLoss, loss_of
from .nearest import instead
from .transformer import MOST_TOKENS, Sizes, Tokens, Transformer

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "linear": nn.Identity,
}


BatchNormInstead = Literal["group", "frozen"]


class Normalise(nn.Module):
    """(x − mean)/std per channel (images) or per feature (rows).

    Both are constants: no parameters, nothing in the state dict.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], input_shape: Sequence[int]) -> None:
        super().__init__()
        if not len(mean) == len(std) == input_shape[0]:
            raise ValueError(
                f"mean and std have {len(mean)} and {len(std)} numbers; inputs of shape {tuple(input_shape)} need"
                f" {input_shape[0]}"
            )
        if not all(s > 0 for s in std):
            raise ValueError(f"std = {list(std)}: every standard deviation must be above 0")
        shape = (-1, *[1] * (len(input_shape) - 1))
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64).view(shape), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float64).view(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean.to(x.dtype)) / self.std.to(x.dtype)


def constants_of(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """The mean and std in front of a model, float64; None where it has none."""
    first = next((part for part in module.modules() if isinstance(part, Normalise)), None)
    return None if first is None else (first.mean, first.std)


def with_constants(module: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """A copy of a model with another mean and std in front of it."""
    changed = copy.deepcopy(module)
    for part in changed.modules():
        if isinstance(part, Normalise):
            part.mean = torch.tensor(mean, dtype=torch.float64).view(part.mean.shape)
            part.std = torch.tensor(std, dtype=torch.float64).view(part.std.shape)
    return changed


Shape = tuple[int, ...]


def mlp(
    shape: Shape, classes: int, *, widths: Sequence[int] = (1024, 1024, 1024), activation: str = "relu"
) -> list[nn.Module]:
    """Fully connected layers; the default is THESIS 4.2.3's 3×1024 with ReLU."""
    if not widths or any(not isinstance(w, int) or w < 1 for w in widths):
        raise ValueError(f"widths = {list(widths)}: one positive whole number per hidden layer")
    layers: list[nn.Module] = [nn.Flatten()]
    sizes = [prod(shape), *widths]
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), _activation(activation)]
    return [*layers, nn.Linear(sizes[-1], max(1, classes))]


def linear(shape: Shape, classes: int) -> list[nn.Module]:
    """One linear layer: class scores, or one number for regression."""
    return [nn.Flatten(), nn.Linear(prod(shape), max(1, classes))]


def svm(shape: Shape, classes: int) -> list[nn.Module]:
    """A linear score ωᵀx without bias for a support vector machine of two classes (GEO, section VI-C).

    It is trained with the hinge loss (`usual_loss`).
    """
    if classes != 2:
        raise ValueError(f"svm separates two classes; the data set has {classes or 'real targets'}")
    return [nn.Flatten(), nn.Linear(prod(shape), 1, bias=False)]


def lenet(shape: Shape, classes: int) -> list[nn.Module]:
    """The sigmoid LeNet of DLG (Zhu et al. 2019, arXiv:1906.08935).

    5×5 convolutions to 12 channels with strides 2, 2, 1, no pooling; every parameter starts uniform in (−.5, .5),
    without which the attack does not converge.
    """
    _images("lenet", shape)
    layers: list[nn.Module] = []
    for channels, stride in ((shape[0], 2), (12, 2), (12, 1)):
        layers += [nn.Conv2d(channels, 12, 5, stride, padding=2), nn.Sigmoid()]
    layers += [nn.Flatten(), nn.Linear(_flat(layers, shape), max(1, classes))]
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
    return layers


def cnn(
    shape: Shape,
    classes: int,
    *,
    channels: Sequence[int] = (32, 64),
    kernels: Sequence[int] = (5, 5),
    paddings: Sequence[int] = (2, 2),
    hidden: Sequence[int] = (),
    pool: int = 2,
    activation: str = "relu",
) -> list[nn.Module]:
    """Convolutions, each followed by the activation and max pooling, then linear layers.

    Papers' networks by options: THESIS 3 the default; GEO channels = [6, 16], paddings = [0, 0], hidden = [120, 84];
    FEMNIST (ITER) kernels = [7, 3], paddings = [3, 1], 62 classes: 214,590 parameters; THESIS 5 channels = [16, 32],
    hidden = [512].

    Args:
        shape: (c, h, w) of an image. classes: number of labels, 0 for regression.
        channels, kernels, paddings: of each convolution, equally many. hidden: widths of the linear layers before the
            last. pool: side of the max pooling. activation: its name.

    Raises:
        ValueError: no images, lists of different lengths, or an image too small for the layers.
    """
    _images("cnn", shape)
    if not len(channels) == len(kernels) == len(paddings) > 0:
        raise ValueError(
            f"channels, kernels and paddings must have the same length, got {len(channels)}, {len(kernels)} and"
            f" {len(paddings)}"
        )
    layers: list[nn.Module] = []
    before = shape[0]
    for after, kernel, padding in zip(channels, kernels, paddings):
        layers += [nn.Conv2d(before, after, kernel, padding=padding), _activation(activation), nn.MaxPool2d(pool)]
        before = after
    sizes = [_flat(layers, shape), *hidden]
    layers.append(nn.Flatten())
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), _activation(activation)]
    return [*layers, nn.Linear(sizes[-1], max(1, classes))]


def cnn6(shape: Shape, classes: int) -> list[nn.Module]:
    """THESIS table 4.2, whose rows list input channels.

    Outputs 12, 36, 36, 36, 64, 128 with leaky ReLU .2 after each; 128·5·5 = 3200 → linear for 32×32 images.
    """
    _images("cnn6", shape)
    layers: list[nn.Module] = []
    before = shape[0]
    for after, kernel, stride, padding in (
        (12, 4, 2, 2),
        (36, 3, 2, 1),
        (36, 3, 1, 1),
        (36, 3, 1, 1),
        (64, 3, 2, 1),
        (128, 3, 1, 1),
    ):
        layers += [nn.Conv2d(before, after, kernel, stride, padding), nn.LeakyReLU(0.2)]
        before = after
    return [*layers, nn.Flatten(), nn.Linear(_flat(layers, shape), max(1, classes))]


def transformer(
    shape: Shape,
    classes: int,
    vocabulary: int,
    *,
    width: int = 128,
    layers: int = 2,
    heads: int = 4,
    causal: bool = False,
) -> list[nn.Module]:
    """A small transformer that tells a text's class from the mean of its last layer.

    Args:
        shape: (length,) of a text. classes: number of labels. vocabulary: number of words.
        width, layers, heads, causal: as of `Sizes`.
    """
    if not vocabulary:
        raise ValueError('transformer reads text; take [data] name = "notes" or "text"')
    return [Transformer(vocabulary, shape[0], max(1, classes), Sizes(width, layers, heads, causal))]


LAYERS: dict[str, type[nn.Module]] = {
    layer.__name__: layer
    for layer in (
        nn.AdaptiveAvgPool2d,
        nn.AvgPool2d,
        nn.Conv1d,
        nn.Conv2d,
        nn.ELU,
        nn.Flatten,
        nn.GELU,
        nn.GroupNorm,
        nn.Identity,
        nn.LayerNorm,
        nn.LeakyReLU,
        nn.Linear,
        nn.MaxPool2d,
        nn.ReLU,
        nn.SELU,
        nn.Sigmoid,
        nn.SiLU,
        nn.Softplus,
        nn.Tanh,
    )
}  # of torch.nn, all they need in their arguments


def layers(shape: Shape, classes: int, *, layers: Sequence[Sequence[Any]] = ()) -> list[nn.Module]:
    """A stack of layers of torch.nn, each a name of `LAYERS` and its arguments: what a recorded nn.Sequential is.

    >>> build("layers", input_shape=(4,), classes=2, mean=[0] * 4, std=[1] * 4, seed=0,
    ...       layers=[["Linear", {"in_features": 4, "out_features": 2}]])[1]
    Linear(in_features=4, out_features=2, bias=True)
    """
    made = []
    for i, entry in enumerate(layers):
        if len(entry) != 2 or entry[0] not in LAYERS or not isinstance(entry[1], Mapping):
            raise ValueError(
                f"layer {i} is {str(entry)[:80]}: expected a name of {', '.join(LAYERS)}, and its arguments"
            )
        try:
            made.append(LAYERS[entry[0]](**{k: tuple(v) if isinstance(v, list) else v for k, v in entry[1].items()}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"layer {i}, {entry[0]}, does not take {str(dict(entry[1]))[:80]} ({error})") from error
    if not any(True for layer in made for _ in layer.parameters()):
        raise ValueError("layers = []: at least one with parameters")
    return made


_BUILDERS: dict[str, Callable[..., list[nn.Module]]] = {
    "mlp": mlp,
    "logistic": linear,
    "linear": linear,
    "svm": svm,
    "lenet": lenet,
    "cnn": cnn,
    "cnn6": cnn6,
    "layers": layers,
    "transformer": transformer,
}

MODELS: dict[str, str] = {
    "mlp": "fully connected, 3×1024 with ReLU; options widths, activation",
    "logistic": "one linear layer: class scores",
    "linear": "one linear layer: regression, or scores",
    "svm": "a linear score for two classes, trained with the hinge loss",
    "lenet": "the sigmoid LeNet of DLG",
    "cnn": "convolutions with max pooling; options channels, kernels, paddings, hidden, pool, activation",
    "cnn6": "six convolutions and a linear layer (THESIS table 4.2)",
    "layers": "a stack of torch.nn's layers; option layers, as a recording writes it",
    "transformer": "attention over a text's words; options width, layers, heads, causal",
}


# Common ones that users build themselves, as most of torchvision's.
ARCHITECTURES = ("resnet", "resnext", "wide", "vgg", "densenet", "mobilenet", "efficientnet", "convnext", "vit", "bert")


def usual_loss(name: str, classes: int) -> str:
    """The loss that a model is trained with, where nobody says another. classes: 0 for regression.

    >>> usual_loss("svm", 2), usual_loss("mlp", 10), usual_loss("linear", 0)
    ('hinge', 'cross_entropy', 'squared_error')
    """
    if classes == 0:
        return "squared_error"
    return "hinge" if name == "svm" else "cross_entropy"


def _instead(name: str) -> str:
    """Whoever names an architecture that is not here wants that one, and none that sounds like it.

    >>> _instead("lennet")
    "; did you mean 'lenet'?"
    >>> _instead("resnet18").startswith("; known are mlp,")
    True
    """
    if name.lower().startswith(ARCHITECTURES):
        return f"; known are {', '.join(MODELS)}, your own as package.module:function, which may build this one"
    return instead(name, (*MODELS, "your own as package.module:function"))


def build(
    name: str,
    *,
    input_shape: Sequence[int],
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
    vocabulary: int = 0,
    target_shape: Sequence[int] = (),
    pad: int | None = None,
    allow: str | None = None,
    batchnorm: BatchNormInstead | None = None,
    trained_elsewhere: bool = False,
    **options: Any,
) -> nn.Module:
    """A freshly initialised model; the global random state is left as it was.

    Args:
        name: in `MODELS`, "hf:FOLDER" (`hugging_face.classifier`), or "package.module:function", which is imported,
            also from the working folder, and called as
            function(input_shape, classes, **options) -> nn.Module only when `allow` repeats it (a network's class may
            take its options alone). The module gets records (n, *input_shape) that are normalised already and returns
            (n, classes), for regression (n, 1).
        input_shape: of one record.
        classes: 0 for regression (one output).
        mean, std: per channel or feature of the inputs.
        seed: of the initial weights.
        vocabulary: number of words of text, whose records are (length,) whole numbers; 0 for anything else.
        target_shape: of a record's targets; of text (length,) where each place tells its next word, outputs
            (n, length, classes).
        pad: what a network of the user's own takes for padding, which is negative where nobody says.
        allow: the user's word for a function outside the zoo.
        batchnorm: what every BatchNorm of it becomes: "group" (`nn.GroupNorm`) or "frozen" (`FrozenBatchNorm`).
        trained_elsewhere: nobody trains it here, so it may have a BatchNorm or a Dropout, which did what they did.
        options: of the model; of one of the zoo or "hf:FOLDER" also lora, a table as `lora.adapt` takes it.

    Raises:
        ValueError: unknown name or option, inputs that do not fit, or layers whose gradients are not those of single
            records.
    """
    shape = tuple(input_shape)
    if vocabulary > MOST_TOKENS:
        raise ValueError(f"the vocabulary has {vocabulary:,} words; at most {MOST_TOKENS:,} are exact in float32")
    by_place = bool(vocabulary and target_shape)
    outside = is_owners_code(name)
    lora = None if outside else options.pop("lora", None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body: list[nn.Module]
        if name.startswith(PREFIX):
            words = _vocabulary_of(name, vocabulary, options)
            folder = name.removeprefix(PREFIX)
            body = [decoder(folder, shape[0], words) if by_place else classifier(folder, shape[0], classes, words)]
        elif name == LIBRARY and trained_elsewhere:
            body = [built(**options)]
        elif outside:
            body = [_own(name, allow, shape, classes, options)]
        elif allow is not None:
            raise ValueError(f"--allow-model {allow}: the model is {name!r} of the zoo; name = {allow!r} asks for it")
        elif name in _BUILDERS:
            body = _of_the_zoo(name, shape, classes, vocabulary, options, by_place)
        else:
            raise ValueError(f"unknown model {name!r}{_instead(name)}")
        first = Tokens(pad) if vocabulary else Normalise(mean, std, shape)
        module = nn.Sequential(first, *body)
        if lora is not None:
            adapt(module, lora)
        if batchnorm is not None:
            _replace_batchnorm(module, batchnorm)
        if not trained_elsewhere:
            _check(name, module)
        if outside:
            if trained_elsewhere:  # in training a BatchNorm mixes records, and a Dropout draws
                module.eval()
            _check_own(name, module, shape, (*(shape if by_place else ()), max(1, classes)))
    return module.eval() if name == LIBRARY else module


def is_owners_code(name: str) -> bool:
    """Whether the model is a function of its owner's, which runs where `allow` repeats the name alone.

    >>> is_owners_code("nets:Small"), is_owners_code("mlp"), is_owners_code("hf:folder")
    (True, False, False)
    """
    return ":" in name and not name.startswith(PREFIX)


def _of_the_zoo(
    name: str, shape: Shape, classes: int, vocabulary: int, options: Mapping[str, Any], by_place: bool
) -> list[nn.Module]:
    builder = _BUILDERS[name]
    known = [p for p in inspect.signature(builder).parameters if p not in ("shape", "classes", "vocabulary")]
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"{name} has no option {unknown[0]!r}{instead(unknown[0], known) or '; it has none'}")
    made = builder(*_given(name, builder, shape, classes, vocabulary), **options)
    for part in made:
        if by_place and isinstance(part, Transformer):
            part.tell_next_words()
    return made


def _vocabulary_of(name: str, vocabulary: int, options: Mapping[str, Any]) -> int:
    """The vocabulary of a model that reads text and takes no options."""
    if not vocabulary or options:
        lack = "reads text; take [data] name = 'text'" if not vocabulary else f"has no option {next(iter(options))!r}"
        raise ValueError(f"{name} {lack}")
    return vocabulary


def _given(name: str, builder: Callable[..., Any], shape: Shape, classes: int, vocabulary: int) -> tuple[Any, ...]:
    """What a model of the zoo is called with: one of text gets the vocabulary, others refuse text."""
    if "vocabulary" in inspect.signature(builder).parameters:
        return shape, classes, vocabulary
    if vocabulary:
        raise ValueError(f'{name} reads numbers, and these records are words; take [model] name = "transformer"')
    return shape, classes


def _own(name: str, allow: str | None, shape: Shape, classes: int, options: Mapping[str, Any]) -> nn.Module:
    """What the user's function returns. Importing runs code, so the user's own word is asked for first."""
    if allow != name:
        raise ValueError(f"{name!r} is code outside the zoo; if you trust it, repeat its name: --allow-model {name}")
    package, _, function = name.partition(":")
    with from_here() as here:
        try:
            builder = getattr(importlib.import_module(package), function)
        except Exception as error:
            raise ValueError(
                f"{name!r} cannot be imported from {here} or the installed packages ({_words(error)})"
            ) from error
        # What knows its sizes, or has them among the options, is called with nothing else.
        given: tuple[Any, ...] = (shape, classes) if takes_shape(builder, options) else ()
        try:
            inspect.signature(builder).bind(*given, **options)
        except TypeError as error:
            raise ValueError(
                f"{name!r} is to be called as function(input_shape, classes, **options), which its signature does not"
                f" allow ({_words(error)})"
            ) from error
        try:
            module = builder(*given, **options)
        except Exception as error:
            raise ValueError(f"{name!r} raised {_words(error)}") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"{name!r} returned a {type(module).__name__}; a torch.nn.Module is needed")
    return module


def allow_loss(text: str | None, allow: str | None) -> bool:
    """Imports a loss of somebody's own where the user's word is for its file, and says whether it is.

    Args:
        text: the loss as it is written, None for none. allow: "module:name", as of `build`.

    Raises:
        ValueError: it cannot be imported.
    """
    loss = None if text is None or allow is None else loss_of(text)
    if not isinstance(loss, OwnLoss) or allow is None:
        return False
    module, _, function = loss.code.partition(":")
    if module == allow.partition(":")[0] and loss.refused:
        with from_here() as here:
            try:
                ALLOWED[loss.code] = getattr(importlib.import_module(module), function)
            except Exception as error:
                raise ValueError(f"the loss {loss.code!r} cannot be imported from {here} ({_words(error)})") from error
    return module == allow.partition(":")[0]


@contextmanager
def from_here() -> Iterator[str]:
    """Modules are imported from the folder of the process too, as a console command's path lacks it; gives its name."""
    path, here = list(sys.path), os.getcwd()
    sys.path.insert(0, here)
    try:
        yield here
    finally:
        sys.path[:] = path


def takes_shape(builder: Callable[..., Any], options: Mapping[str, Any] = MappingProxyType({})) -> bool:
    """Whether a class or function is called with (input_shape, classes): it takes two arguments, and the first is no
    number or word, by its default or its annotation.

    >>> takes_shape(lambda shape, classes: None), takes_shape(lambda width=16, classes=10: None)
    (True, False)
    """
    signature = inspect.signature(builder)
    try:
        signature.bind((), 0, **{name: value for name, value in options.items() if name in signature.parameters})
    except TypeError:
        return False
    first = next(iter(signature.parameters.values()))
    simple = (bool, int, float, str)
    named = {*simple, *(kind.__name__ for kind in simple)}  # an annotation may be a text
    return not (isinstance(first.default, simple) or first.annotation in named)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _check_own(name: str, module: nn.Module, shape: Shape, outputs: Shape) -> None:
    """That a stranger's network maps each record to outputs, the same every time, by all that it trains."""
    records = torch.rand(2, *shape)
    try:
        first, again = module(records), module(records)
    except Exception as error:
        raise ValueError(
            f"{name} cannot take two records, an input of shape {tuple(records.shape)} ({_words(error)})"
        ) from error
    if not isinstance(first, Tensor) or first.shape != (2, *outputs):
        gives = f"of shape {tuple(first.shape)}" if isinstance(first, Tensor) else f"a {type(first).__name__}"
        raise ValueError(
            f"{name} gives outputs {gives} for 2 records; expected {(2, *outputs)},"
            f" {'a number for each class' if outputs[-1] > 1 else 'one number a record'}"
        )
    _check_groups(name, module, records)
    if not torch.equal(first, again):
        raise ValueError(f"{name} gives other outputs for the same records again; its draws nobody could replay")
    if not torch.allclose(module(records[:1]), first[:1], rtol=1e-3, atol=1e-5):
        raise ValueError(f"{name} gives another output for a record beside others than for it alone; it mixes records")
    named = {path: parameter for path, parameter in module.named_parameters() if parameter.requires_grad}
    used = torch.autograd.grad(first.sum(), list(named.values()), allow_unused=True) if named else ()
    idle = [path for path, gradient in zip(named, used) if gradient is None]
    if idle or not named:
        what = f"does not use its parameter {idle[0]!r}" if idle else "has no parameters with requires_grad"
        raise ValueError(f"{name} {what}; every parameter with requires_grad is trained and sent")


class FrozenBatchNorm(nn.Module):
    """A BatchNorm whose mean and variance by channel are constants; its weight and bias are trained.

    (x − mean)/√(variance + eps)·weight + bias, for x (n, channels, …). The constants are those of the network as its
    function returns it: 0 and 1 in a fresh one, the published ones in a pretrained one.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError('a BatchNorm keeps no statistics that could be frozen; take "group"')
        self.register_buffer("mean", norm.running_mean.clone(), persistent=False)
        self.register_buffer("variance", norm.running_var.clone(), persistent=False)
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.ndim - 2))
        x = (x - self.mean.to(x.dtype).view(shape)) / (self.variance.to(x.dtype).view(shape) + self.eps).sqrt()
        return x if self.weight is None else x * self.weight.view(shape) + self.bias.view(shape)


def _replace_batchnorm(module: nn.Module, instead_of_it: BatchNormInstead) -> None:
    """Every BatchNorm of `module` by what looks at one record at a time. GroupNorm: as many groups as divide 32 and the
    channels (Wu, He 2018, arXiv:1803.08494, take 32), with the weight and bias that were there.

    What a BatchNorm1d gets may be a vector, of which a group of one channel is one number and becomes 0: there a group
    has 16 channels (the paper's other choice) or all. Raises ValueError where there is a single one.
    """
    paths = {layer: path for path, layer in module.named_modules()}
    for parent in list(module.modules()):
        for name, layer in parent.named_children():
            if not isinstance(layer, nn.modules.batchnorm._BatchNorm):
                continue
            if instead_of_it == "frozen":
                setattr(parent, name, FrozenBatchNorm(layer))
            else:
                groups = gcd(32, layer.num_features)
                if isinstance(layer, nn.BatchNorm1d):
                    if layer.num_features == 1:
                        raise ValueError(
                            f"layer {paths[layer]!r} is a BatchNorm1d of one channel, of which GroupNorm leaves none;"
                            ' take [model] batchnorm = "frozen"'
                        )
                    while groups > 1 and layer.num_features // groups < 16:
                        groups //= 2
                norm = nn.GroupNorm(groups, layer.num_features, layer.eps, layer.affine)
                if layer.affine:
                    norm.weight, norm.bias = layer.weight, layer.bias
                setattr(parent, name, norm)


def _check(name: str, module: nn.Module) -> None:
    for path, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f'{name}: layer {path!r} is a BatchNorm, which mixes records; [model] batchnorm = "group" replaces'
                f' it by GroupNorm, "frozen" by constants'
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ValueError(f"{name}: layer {path!r} is a Dropout, whose draws nobody could replay; leave it out")
    if (
        module.state_dict().keys() - dict(module.named_parameters(remove_duplicate=False)).keys()
    ):  # a tied one has two names
        raise ValueError(
            f"{name} keeps state beside its parameters; models here have parameters only (GroupNorm instead of"
            " BatchNorm)"
        )


def _check_groups(name: str, module: nn.Module, records: Tensor) -> None:
    """Raises ValueError for a GroupNorm whose groups are of one number, of which it leaves 0 whatever the record is: a
    group of one channel, and feature maps that have shrunk to one pixel.
    """
    sizes: dict[str, int] = {}

    def measure(path: str, groups: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda layer, inputs: sizes.update({path: inputs[0][0].numel() // groups})

    norms = [(path, layer) for path, layer in module.named_modules() if isinstance(layer, nn.GroupNorm)]
    hooks = [layer.register_forward_pre_hook(measure(path, layer.num_groups)) for path, layer in norms]
    try:
        with torch.no_grad():
            module(records)
    finally:
        for hook in hooks:
            hook.remove()
    if alone := [path for path, size in sizes.items() if size == 1]:
        raise ValueError(
            f"{name}: layer {alone[0]!r} is a GroupNorm of one number a group, of which it leaves none; where it stands"
            ' for a BatchNorm, take [model] batchnorm = "frozen"'
        )


def _activation(name: str) -> nn.Module:
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}{instead(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def _images(name: str, shape: Shape) -> None:
    if len(shape) != 3:
        raise ValueError(f"{name} takes images (channels, height, width); the inputs have shape {shape}")


def _flat(layers: Sequence[nn.Module], shape: Shape) -> int:
    """How many numbers come out of convolutions for one image."""
    try:
        with torch.no_grad():
            return nn.Sequential(*layers)(torch.zeros(1, *shape)).numel()
    except RuntimeError as error:
        raise ValueError(f"images of {shape[1]}×{shape[2]} pixels are too small for these layers") from error


def describe(module: nn.Module) -> list[str]:
    """The layers in order, as torch prints them."""
    return [str(layer) for layer in module.modules() if not list(layer.children())]
