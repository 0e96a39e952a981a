"""Records of text that an owner hands over: numbers of words, a mask or a number for padding, one length a setup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...defenses.data.vocabulary import PAD
from ...defenses.losses import IGNORED
from ..errors import BadInput
from ..tensors import dense_tensor
from .recording import DataFacts

MASK = "attention_mask"
TYPES = "token_type_ids"  # of two texts in one record; a model that gets none takes 0


def text_records(given: Any, data: DataFacts, where: str) -> tuple[Tensor, Tensor]:
    """Texts (n, length) int64 with `PAD` behind their ends, of the length that the recording has, or of their own; and
    where each place of theirs (n, length) stood in what was given, −1 for padding.

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
        types = given.get(TYPES)
        if types is not None and bool(dense_tensor(types, f"records' {TYPES}").any()):
            raise BadInput(f"{where}: {TYPES} are not 0, and no others are kept; join the texts of a record into one")
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


def next_word_targets(labels: Tensor, given: Any, stood: Tensor, where: str) -> Tensor:
    """What each place of texts is to tell, (n, length) int64, `IGNORED` where nothing is asked.

    Args:
        labels: (n, …), each place's own word, as the transformers library takes them, or each place's next word.
        given: the records, of which these are. stood: as `text_records` gives it. where: for a sentence.

    Raises:
        BadInput: they are neither, or of another shape.
    """
    tokens = dense_tensor(given["input_ids"] if isinstance(given, Mapping) else given, "records' tokens").long()
    if labels.shape != tokens.shape or labels.is_floating_point():
        raise BadInput(
            f"{where}: labels of shape {tuple(labels.shape)}, {labels.dtype}, for tokens of {tuple(tokens.shape)};"
            " next_token takes a word for each place, −100 where none is asked"
        )
    labels, asked = labels.long(), labels != IGNORED
    behind = torch.cat([tokens[:, 1:], labels[:, -1:]], 1)  # the last word is told by nothing else
    if bool((labels == tokens)[asked].all()):
        labels = torch.cat([labels[:, 1:], labels.new_full((len(labels), 1), IGNORED)], 1)
    elif not bool((labels == behind)[asked].all()):
        raise BadInput(
            f"{where}: labels are neither the texts' own words, as the transformers library takes them, nor each"
            " place's next word"
        )
    return torch.where(stood < 0, IGNORED, labels.gather(1, stood.clamp_min(0)))


def _of_length(tokens: Tensor, length: int, where: str) -> tuple[Tensor, Tensor]:
    """Padding, which may stand in front, goes behind the words; and where each place stood, −1 for padding."""
    order = (tokens < 0).long().argsort(dim=1, stable=True)
    tokens = tokens.gather(1, order)
    longest = int((tokens >= 0).sum(1).max())
    if longest > length:
        raise BadInput(
            f"{where}: a text of {longest} tokens; the recording's have {length}, which data={{'input_shape': …}} says"
        )
    made, stood = torch.full((2, len(tokens), length), PAD, dtype=torch.int64)
    made[:, :longest] = tokens[:, :longest]
    stood[:, :longest] = order[:, :longest]
    return made, torch.where(made < 0, -1, stood)
