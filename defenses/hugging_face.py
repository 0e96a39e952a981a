"""Encoders of the Hugging Face library from a folder on disk, with a classifier on the mean of their last layer.

Weights are read from safetensors alone and no code of the folder is run; nothing is fetched.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

PREFIX = "hf:"


class TextClassifier(nn.Module):
    """Class scores (n, classes) of texts (n, length) int64, padding negative."""

    def __init__(self, base: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.base, self.head = base, nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = tokens >= 0
        made = self.base(input_ids=tokens.clamp_min(0), attention_mask=mask.long())
        hidden = made.last_hidden_state
        shares = mask.to(hidden.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
        return self.head((hidden * shares[..., None]).sum(1))


def classifier(folder: str, length: int, classes: int, vocabulary: int) -> TextClassifier:
    """The model in a folder, in float32, without its pooler, which a mean leaves idle, and with every Dropout off,
    whose draws nobody could replay.

    Args:
        folder: with config.json and model.safetensors. length: of a text. classes: number of labels. vocabulary: number
            of words of the data's tokenizer.

    Raises:
        ValueError: one sentence: no such folder, no safetensors, code of its own, or too few places or words.
    """
    home = Path(folder).expanduser()
    for name in ("config.json", "model.safetensors"):
        if not (home / name).is_file():
            raise ValueError(
                f"{PREFIX}{folder}: there is no {name}; a folder with config.json and model.safetensors is needed, and"
                " pickled weights are not opened"
            )
    try:
        library: Any = importlib.import_module("transformers")  # of the extra [text]
    except ModuleNotFoundError:
        raise ValueError(f"{PREFIX}{folder} needs the extra [text]: pip install 'dpfl-audit[text]'") from None
    settings = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = library.AutoConfig.from_pretrained(home, **settings)
        base = library.AutoModel.from_pretrained(
            home, config=config, use_safetensors=True, attn_implementation="eager", dtype=torch.float32, **settings
        )
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{PREFIX}{folder} cannot be opened ({' '.join(str(error).split())[:160]})") from None
    places = getattr(config, "max_position_embeddings", length)
    if length > places:
        raise ValueError(f"{PREFIX}{folder} has {places} places, and texts have {length} tokens; lower [data] length")
    if vocabulary > config.vocab_size:
        raise ValueError(f"{PREFIX}{folder} has {config.vocab_size:,} words, and the data's tokenizer {vocabulary:,}")
    if getattr(base, "pooler", None) is not None:
        base.pooler = None
    for part in base.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return TextClassifier(base.eval(), config.hidden_size, max(1, classes))
