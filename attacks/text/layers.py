"""Which layers of a network read words, and what they read: found by running it, whatever its class is called."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...defenses.layout import Layout

BEHIND = (
    4  # groups of layers behind the first that are looked at: what attention mixed, both of the feed-forward, Q, K, V
)
TRANSPOSED = "Conv1D"  # GPT-2's linear layers, whose weights are (width, outputs)
LORA_A, LORA_B = ".lora_A.", ".lora_B."  # in the paths of an adapter's layers
CHUNK = 2**24  # numbers of a layer's input that are held at once (128 MB)


class _Enough(Exception):
    """The layers that were asked for have run."""


@dataclass(frozen=True, eq=False)
class Layers:
    """A network in float64 with the weights that a message was made at.

    words: path of the embedding of words, positions: of that of places, "" for none. groups: paths of linear layers
    that are trained, by the input that they share, in the order in which they run. single: how many of the groups read
    single words, and the others whole texts: the first, and behind it the B of adapters, which read what A makes of a
    word. causal: whether a word's inputs hang on the words before it alone. placed: whether the first group reads
    another thing of a word at another place; where attention alone knows places it does not.
    """

    network: nn.Module
    words: str
    positions: str
    groups: tuple[tuple[str, ...], ...]
    single: int = 1
    causal: bool = False
    placed: bool = True

    @classmethod
    def of(cls, module: nn.Module, layout: Layout, weights: Tensor, vocabulary: int, length: int) -> Layers:
        """Of a network whose embedding has a row for each word, and more at most.

        Args:
            module, layout: the network, whose own weights mean nothing. weights: (d,), those that a message was made
                at. vocabulary: number of words. length: of a record.

        Raises:
            ValueError: it has no such embedding, or no linear layers that read words.
        """
        network = copy.deepcopy(module).double().eval().requires_grad_(False)
        named = dict(network.named_parameters())
        for name, value in layout.split(weights.double()).items():
            named[name].copy_(value)
        tables = {path: part for path, part in network.named_modules() if isinstance(part, nn.Embedding)}
        positions = next((path for path in tables if "position" in path or path.endswith("wpe")), "")  # GPT-2's
        sizes = {path: part.num_embeddings for path, part in tables.items() if path != positions}
        # Many models have more rows than words, for a size that computes faster.
        words = next((p for p, rows in sizes.items() if rows == vocabulary), "")
        words = words or next((p for p, rows in sizes.items() if rows > vocabulary), "")
        if not words:
            raise ValueError(f"the network has no nn.Embedding of {vocabulary} rows, one for each word")
        probe = torch.arange(length)[None].remainder(vocabulary)
        groups = _grouped(network, probe, {*layout.names})
        found = cls(network, words, positions, groups)
        single = found._single(probe, vocabulary) if groups else 0
        if not single:
            raise ValueError(
                "the network trains no linear layers that read one word at a time, as adapters of the first"
            )
        found = replace(found, groups=groups[: single + BEHIND], single=single)
        same = found.inputs(torch.zeros_like(probe), 0)[0][0]
        return replace(
            found, causal=found._looks_back(probe, vocabulary), placed=not torch.allclose(same[:1], same[-1:])
        )

    def rows(self, sent: Mapping[str, Tensor], path: str) -> Tensor:
        """A linear layer's gradient or update, (outputs, width), of tensors by name."""
        weight = sent[f"{path}.weight"]
        return weight.T if type(self.network.get_submodule(path)).__name__ == TRANSPOSED else weight

    @property
    def heads(self) -> int:
        """Of attention, as the network names them; 0 where it does not."""
        names = ("num_attention_heads", "num_heads", "n_heads", "heads")
        told = [getattr(part, name) for part in self.network.modules() for name in names if hasattr(part, name)]
        return next((number for number in told if isinstance(number, int)), 0)

    def _single(self, probe: Tensor, vocabulary: int) -> int:
        """How many groups read the same of all words but one, where it is another; 1 of texts of a single word."""
        if probe.shape[1] < 2:
            return 1
        other = probe.clone()
        other[0, 0] = (other[0, 0] + 1) % vocabulary
        read = self.inputs(torch.cat([probe, other]), len(self.groups) - 1)
        return next((depth for depth, x in enumerate(read) if not torch.allclose(x[0, 1:], x[1, 1:])), len(read))

    def _looks_back(self, probe: Tensor, vocabulary: int) -> bool:
        other = probe.clone()
        other[0, -1] = (other[0, -1] + 1) % vocabulary
        depth = min(len(self.groups), self.single + 2) - 1
        both = self.inputs(torch.cat([probe, other]), depth)[depth]
        return probe.shape[1] > 1 and torch.allclose(both[0, :-1], both[1, :-1])

    def inputs(self, tokens: Tensor, depth: int) -> list[Tensor]:
        """What the groups 0 to `depth` read of texts (n, length) int64: (n, length, width) each."""
        caught: dict[str, Tensor] = {}
        paths = [group[0] for group in self.groups[: depth + 1]]
        with _watched(self.network, paths, caught), torch.no_grad(), suppress(_Enough):
            self.network(tokens)
        return [caught[path] for path in paths]

    def read_by(self, path: str, tokens: Tensor) -> Tensor:
        """What a layer reads of texts (n, length) int64: (n, length, width)."""
        caught: dict[str, Tensor] = {}
        with _watched(self.network, [path], caught), torch.no_grad(), suppress(_Enough):
            self.network(tokens)
        return caught[path]

    def of_words(self, words: Tensor, length: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Words (m,) a chunk at a time, each with what the first group reads of them at every place, (k, length,
        width), or (k, 1, width) where it is the same at all: no word there hangs on another.
        """
        length = length if self.placed else 1
        width = self.inputs(words[:1, None], 0)[0].shape[2]
        for part in words.split(max(1, CHUNK // (length * width))):
            yield part, self.inputs(part[:, None].expand(-1, length).contiguous(), 0)[0]

    def behind(self, inputs: Tensor, depth: int) -> Tensor:
        """What an adapter's B that reads single words reads, (…, rank), of the first group's inputs (…, width)."""
        path = self.groups[depth][0].replace(LORA_B, LORA_A)
        return self.network.get_submodule(path)(inputs)


@contextmanager
def _watched(network: nn.Module, paths: list[str], caught: dict[str, Tensor]) -> Iterator[None]:
    """Catches the first input of each layer, and ends the run at the last."""

    def catch(path: str, last: bool):
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            caught.setdefault(path, inputs[0])
            if last:
                raise _Enough

        return hook

    layers = dict(network.named_modules())
    hooks = [layers[path].register_forward_pre_hook(catch(path, path == paths[-1])) for path in paths]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _grouped(network: nn.Module, probe: Tensor, trained: set[str]) -> tuple[tuple[str, ...], ...]:
    """The linear layers that read (1, length, width) and are trained, those of the same input together."""
    groups: list[tuple[Tensor, list[str]]] = []

    def note(path: str):
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0]
            if x.dim() != 3 or x.shape[1] != probe.shape[1]:
                return
            own = next((paths for held, paths in groups if held is x), None)
            if own is None:
                groups.append((x, [path]))
            else:
                own.append(path)

        return hook

    sent = [(path, layer) for path, layer in network.named_modules() if f"{path}.weight" in trained]
    sent = [(path, layer) for path, layer in sent if isinstance(layer, nn.Linear) or type(layer).__name__ == TRANSPOSED]
    hooks = [layer.register_forward_pre_hook(note(path)) for path, layer in sent]
    try:
        with torch.no_grad():
            network(probe)
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(tuple(paths) for _, paths in groups)
