"""The denoiser of an attacker: trained on auxiliary records once and kept, read from a file that a user gives, or the
filter alone, for which nothing is trained.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ....defenses.atomic import write_bytes
from ....defenses.data.dataset import digest
from ....defenses.randomness import generator, stream
from ..match import denoiser
from ..match.denoiser import LEAST, MOST, WIDTHS, Denoiser

RECORDS = 100  # auxiliary records, at least: the Wiener filter of fewer is no prior worth the name
STEPS, BATCH, RATE = 1500, 16, 1e-3  # about a minute of CPU for 32×32 colour images, a few seconds for 8×8 gray ones
TRAINING = 25 * 10**7  # operations of that, for each number of an image
WARM = 50  # steps in which the rate rises
ONE_IN = 10  # records, one is held out
AT = (0.1, 1.0)  # noise on the held-out ones, pixels
WIDEST = 1024  # channels of a file's network
SAID = 300  # characters of a file's own words, at most


@dataclass(frozen=True)
class HeldOut:
    """How well a denoiser does on records it was not trained on: mean PSNR in dB of images of [0, 1].

    records, held_out: trained on, and left out. level: of the noise. noisy, filtered, denoised: as they are, after the
    Wiener filter alone, after the whole denoiser; each by level.
    """

    records: int
    held_out: int
    level: tuple[float, ...]
    noisy: tuple[float, ...]
    filtered: tuple[float, ...]
    denoised: tuple[float, ...]

    def __str__(self) -> str:
        parts = [
            f"{d:.1f} dB at noise {at:g} where a Wiener filter has {f:.1f} and the noisy images {n:.1f}"
            for at, n, f, d in zip(self.level, self.noisy, self.filtered, self.denoised)
        ]
        return f"trained on {self.records} auxiliary records; of {self.held_out} held-out ones " + ", ".join(parts)


@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """A denoiser in evaluation mode, on the CPU. said: where it is from and how good it is, in words."""

    denoiser: Denoiser
    said: str


_IN_THIS_PROCESS: dict[str, LearnedPrior] = {}  # by everything that decides them


def denoiser_of(
    images: Tensor, folder: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> LearnedPrior:
    """`train_denoiser`'s, from this process or a file in `folder` where the same images and version of torch left one.

    A damaged file is trained anew.

    Args:
        images: (m, *shape) in [0, 1]. folder: made where it is absent; one that cannot be written keeps nothing.
        progress: called with steps done and in all.

    Raises:
        ValueError: as `train_denoiser`.
    """
    code = b"".join(Path(str(file)).read_bytes() for file in (denoiser.__file__, __file__))
    content = [digest(images), torch.__version__, hashlib.sha256(code).hexdigest()]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    if key not in _IN_THIS_PROCESS:
        path = None if folder is None else folder / f"denoiser-{key}.safetensors"
        known = None if path is None else _kept(path, tuple(images.shape[1:]))
        if known is None:
            made, figures = train_denoiser(images, progress=progress)
            known = LearnedPrior(made, str(figures))
            if path is not None:
                _keep(path, made, figures)
        _IN_THIS_PROCESS[key] = known
    return _IN_THIS_PROCESS[key]


def train_denoiser(
    images: Tensor,
    *,
    seed: int = 0,
    widths: tuple[int, ...] = WIDTHS,
    steps: int = STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Denoiser, HeldOut]:
    """A denoiser of images, trained on the CPU, and how it does on those of them that were held out.

    Every step takes images by lot, mirrored by lot (colour ones, which are seldom signs, also upside down and on their
    side), and noise of a level by lot, log-uniform; the loss is the square error in units of the Wiener filter's.

    Args:
        images: (m, *shape) in [0, 1]. seed: of all lots. widths: of the network. steps: of Adam.
        progress: called with steps done and in all.

    Raises:
        ValueError: there are too few images.
    """
    own, held_out = _parted(images, seed)
    draw = generator(seed, "training a denoiser")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(stream(seed, "denoiser"))
        made = Denoiser(images.shape[1:], widths)
        made.learn_spectrum(own)
        optimiser = torch.optim.Adam(made.parameters(), lr=RATE)
        for step in range(steps):
            clean = _turned(own[torch.randint(len(own), (BATCH,), generator=draw)], draw)
            level = LEAST * (MOST / LEAST) ** torch.rand(BATCH, generator=draw)
            noisy = clean + level.view(-1, 1, 1, 1) * torch.randn(clean.shape, generator=draw)
            loss = ((made(noisy, level) - clean) / made.filter_error(level)).square().mean()
            for group in optimiser.param_groups:
                group["lr"] = RATE * min(1, (step + 1) / WARM) * (1 - step / steps)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if progress is not None:
                progress(step + 1, steps)
    made.eval().requires_grad_(False)
    return made, _figures(made, held_out, len(own), seed)


def filter_of(images: Tensor) -> LearnedPrior:
    """The Wiener filter of auxiliary records, without a network; of the same ones computed once in a process.

    Args:
        images: (m, *shape) in [0, 1].

    Raises:
        ValueError: there are too few images.
    """
    key = f"filter {digest(images)}"
    if key not in _IN_THIS_PROCESS:
        _IN_THIS_PROCESS[key] = _filter(images)
    return _IN_THIS_PROCESS[key]


def _filter(images: Tensor) -> LearnedPrior:
    own, held_out = _parted(images, 0)
    made = Denoiser(images.shape[1:], ())
    made.learn_spectrum(own)
    figures = _figures(made.eval().requires_grad_(False), held_out, len(own), 0)
    held = ", ".join(
        f"{f:.1f} dB at noise {at:g} where the noisy images have {n:.1f}"
        for at, n, f in zip(figures.level, figures.noisy, figures.filtered)
    )
    said = f"that is a Wiener filter, by the spectrum of {len(own)} auxiliary records; of {len(held_out)} held-out ones"
    return LearnedPrior(made, f"{said} {held}")


def _parted(images: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Records to learn from, and held-out ones."""
    if len(images) < RECORDS:
        raise ValueError(f"{len(images)} auxiliary records are too few to learn a prior from, at least {RECORDS} are")
    order = torch.randperm(len(images), generator=generator(seed, "held out"))
    return images[order[len(images) // ONE_IN :]], images[order[: len(images) // ONE_IN]]


def _turned(images: Tensor, draw: torch.Generator) -> Tensor:
    colour, square = images.shape[1] == 3, images.shape[2] == images.shape[3]
    across, down, over = (torch.rand(3, generator=draw) < 0.5).tolist()
    if colour and across:
        images = images.flip(3)
    if colour and down:
        images = images.flip(2)
    if colour and square and over:
        images = images.transpose(2, 3)
    return images


def _figures(made: Denoiser, held_out: Tensor, records: int, seed: int) -> HeldOut:
    noise = torch.randn(held_out.shape, generator=generator(seed, "noise on held out"))
    rows = []
    for at in AT:
        level, there = torch.full((len(held_out),), at), held_out + at * noise
        rows.append(
            [_psnr(one.clamp(0, 1), held_out) for one in (there, made.wiener(there, level), made(there, level))]
        )
    noisy, filtered, denoised = (tuple(column) for column in zip(*rows))
    return HeldOut(records, len(held_out), AT, noisy, filtered, denoised)


def _psnr(images: Tensor, originals: Tensor) -> float:
    error = (images - originals).square().flatten(1).mean(1).clamp_min(1e-10)
    return float((-10 * error.log10()).mean())


# --- files


def read_denoiser(path: Path, shape: tuple[int, ...]) -> LearnedPrior:
    """A denoiser from a file of `write_denoiser`, of any widths; nothing in a file is run.

    Args:
        path: safetensors, `Denoiser`'s state by name. shape: (channels, height, width) of the images to attack.

    Raises:
        ValueError: there is no such file, or it is not one of a denoiser of such images; in one sentence.
    """
    try:
        with safe_open(path, "pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            said = " ".join((file.metadata() or {}).get("said", "").split())[:SAID]
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a safetensors file that can be read ({str(error)[:80]})") from None
    levels = (f"network.ways_down.{k}.first.bias" for k in count())
    widths = [state[name].numel() for name in takewhile(state.__contains__, levels)]
    if not widths or "mean" not in state:
        raise ValueError(f"{path}: its tensors are not those of a denoiser (attacks/inversion/match/denoiser.py)")
    if max(widths) > WIDEST:
        raise ValueError(f"{path}: a denoiser of up to {max(widths):,} channels; at most {WIDEST} are read")
    wrong = next((n for n, t in state.items() if t.dtype != torch.float32 or not t.isfinite().all()), None)
    if wrong is not None:
        raise ValueError(f"{path}: {wrong!r} must hold finite numbers of float32")
    if "variance" in state and not (state["variance"] > 0).all():
        raise ValueError(f"{path}: 'variance' must be positive")
    if tuple(state["mean"].shape) != tuple(shape):
        raise ValueError(
            f"{path}: a denoiser of images {tuple(state['mean'].shape)}, and the setup's are {tuple(shape)}"
        )
    made = Denoiser(shape, widths)
    try:
        made.load_state_dict(state)
    except RuntimeError:
        raise ValueError(f"{path}: its tensors do not fit a denoiser of widths {widths}") from None
    if not all(torch.isfinite(value).all() for value in state.values()):
        raise ValueError(f"{path}: not all of its numbers are finite")
    return LearnedPrior(
        made.eval().requires_grad_(False), f"read from {path.name}: {said or 'how good it is is not said'}"
    )


def write_denoiser(path: Path, made: Denoiser, said: str = "") -> None:
    """A file for `read_denoiser`. said: where it is from and how good it is, in words."""
    state = {name: value.contiguous() for name, value in made.state_dict().items()}
    write_bytes(path, save(state, {"said": said}), writer=str(os.getpid()))


def _keep(path: Path, made: Denoiser, figures: HeldOut) -> None:
    """Several processes may fill one folder; where it cannot be written, nothing is kept."""
    state = {name: value.contiguous() for name, value in made.state_dict().items()}
    facts = {"figures": asdict(figures), "sha256": digest(*(state[name] for name in sorted(state)))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, save(state, {"facts": json.dumps(facts)}), writer=str(os.getpid()))
    except OSError:
        return


def _kept(path: Path, shape: tuple[int, ...]) -> LearnedPrior | None:
    """None where the file is absent or damaged."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts: Mapping[str, Any] = json.loads((file.metadata() or {}).get("facts", "{}"))
        if facts["sha256"] != digest(*(state[name] for name in sorted(state))):
            return None
        made = Denoiser(shape)
        made.load_state_dict(state)
        return LearnedPrior(made.eval().requires_grad_(False), str(HeldOut(**facts["figures"])))
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, TypeError):
        return None
