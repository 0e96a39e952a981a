"""Records of text that an owner hands over: numbers of words, a mask or a number for padding, one length a setup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...defenses.data.vocabulary import PAD
from ..errors import BadInput
from ..tensors import dense_tensor
from .recording import DataFacts

MASK = "attention_mask"


def text_records(given: Any, data: DataFacts, where: str) -> Tensor:
    """Texts (n, length) int64 with `PAD` behind their ends, of the length that the recording has, or of their own.

    Args:
        given: (n, …) whole numbers, padded with `data.pad`; or a mapping with input_ids and attention_mask, as a
            tokenizer gives them. data: its vocabulary, pad and, where it is known, input_shape. where: for a sentence.

    Raises:
        BadInput: no whole numbers, words that the vocabulary lacks, a text without a word, or a longer text.
    """
    mask = None
    if isinstance(given, Mapping):
        if "input_ids" not in given:
            raise BadInput(f"{where}: records have {', '.join(map(str, given))}; expected input_ids and {MASK}")
        given, mask = given["input_ids"], given.get(MASK)
    tokens = dense_tensor(given, "records' tokens")
    if tokens.is_floating_point() or tokens.dim() != 2:
        raise BadInput(f"{where}: texts of shape {tuple(tokens.shape)}, {tokens.dtype}: expected (n, length) tokens")
    tokens = tokens.long().clone()
    if mask is not None:
        shown = dense_tensor(mask, "records' mask")
        if shown.shape != tokens.shape:
            raise BadInput(f"{where}: a mask of shape {tuple(shown.shape)} for tokens of {tuple(tokens.shape)}")
        tokens[shown == 0] = PAD
    elif data.pad is not None:
        tokens[tokens == data.pad] = PAD
    words = len(data.vocabulary or ())
    if bool((tokens >= words).any()) or bool((tokens < PAD).any()):
        raise BadInput(
            f"{where}: tokens run from {int(tokens.min())} to {int(tokens.max())}, and the vocabulary's words from 0 to"
            f" {words - 1}"
        )
    if bool((tokens < 0).all(1).any()):
        raise BadInput(f"{where}: a text has no word that its mask shows; leave it out")
    return _of_length(tokens, tokens.shape[1] if data.input_shape is None else data.input_shape[0], where)


def _of_length(tokens: Tensor, length: int, where: str) -> Tensor:
    """Padding, which may stand in front, goes behind the words."""
    order = (tokens < 0).long().argsort(dim=1, stable=True)
    tokens = tokens.gather(1, order)
    longest = int((tokens >= 0).sum(1).max())
    if longest > length:
        raise BadInput(
            f"{where}: a text of {longest} tokens; the recording's have {length}, which data={{'input_shape': …}} says"
        )
    made = torch.full((len(tokens), length), PAD, dtype=torch.int64)
    made[:, :longest] = tokens[:, :longest]
    return made
