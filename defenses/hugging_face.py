"""Networks of the Hugging Face library from a folder on disk: an encoder with a classifier on the mean of its last
layer, or a decoder that tells the next word.

Weights are read from safetensors alone and no code of the folder is run; nothing is fetched.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .lora import ADAPTER

PREFIX = "hf:"
LIBRARY = "transformers"  # the name of a network of the library that is built by its config
OF_ADAPTERS = ("r", "lora_alpha", "target_modules", "fan_in_fan_out", "bias", "use_rslora", "modules_to_save")


class LanguageModel(nn.Module):
    """What a network of the library makes of texts (n, length) int64, padding negative: its logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        mask = (tokens >= 0).long()
        return self.network(input_ids=tokens.clamp_min(0), attention_mask=mask).logits


def facts_of_network(module: nn.Module) -> dict[str, Any] | None:
    """What `built` makes a network of the library of, bare or with peft's LoRA; None of any other network."""
    library, peft = sys.modules.get(LIBRARY), sys.modules.get("peft")
    adapters = None
    if peft is not None and isinstance(module, peft.PeftModel):
        told = module.peft_config.get(ADAPTER)
        if len(module.peft_config) != 1 or not isinstance(told, peft.LoraConfig):
            return None
        adapters = {name: _plain(getattr(told, name)) for name in OF_ADAPTERS}
        adapters["task_type"] = _plain(told.task_type)
        module = module.get_base_model()
    if library is None or not isinstance(module, library.PreTrainedModel):
        return None
    config = json.loads(module.config.to_json_string(use_diff=False))
    return {"network": type(module).__name__, "config": config, "adapters": adapters}


def _plain(value: Any) -> Any:
    """For JSON: a set by its order, an enum by its value."""
    if isinstance(value, set | tuple):
        return sorted(value)
    return getattr(value, "value", value)


def built(network: str, config: Mapping[str, Any], adapters: Mapping[str, Any] | None) -> LanguageModel:
    """A network of the library with weights that mean nothing, by what `facts_of_network` says.

    Args:
        network: the name of its class. config: of it. adapters: of peft's LoRA, None for none.

    Raises:
        ValueError: a package is not installed, or it has no such network.
    """
    library = _package(LIBRARY)
    kind = getattr(library, network, None)
    if not (inspect.isclass(kind) and issubclass(kind, library.PreTrainedModel)):
        raise ValueError(f"{LIBRARY} has no network {network!r}")
    told = {name: value for name, value in config.items() if name != "auto_map"}
    known: Any = kind
    made = known._from_config(known.config_class.from_dict(told), attn_implementation="eager", dtype=torch.float32)
    if adapters is not None:
        peft = _package("peft")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of names that peft and the library change together
            made = peft.get_peft_model(made, peft.LoraConfig(**adapters))
    return LanguageModel(made)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ValueError(f"this model needs {name}, of the extra [text]: pip install 'dpfl-audit[text]'") from None


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
    base, config = _opened(folder, "AutoModel", length, vocabulary)
    if getattr(base, "pooler", None) is not None:
        base.pooler = None
    model = TextClassifier(base, config.hidden_size, max(1, classes))
    _answer(model, folder, torch.arange(length)[None].remainder(vocabulary))
    return model


def decoder(folder: str, length: int, vocabulary: int) -> LanguageModel:
    """The model in a folder with the head that tells its next word: logits (n, length, words). Else as `classifier`.

    Raises:
        ValueError: what `classifier` raises, and where it sees the next word.
    """
    model = LanguageModel(_opened(folder, "AutoModelForCausalLM", length, vocabulary)[0])
    texts = torch.arange(length).remainder(vocabulary).repeat(2, 1)
    texts[1, -1] = (texts[1, -1] + 1) % vocabulary
    before, other = _answer(model, folder, texts)[:, :-1]
    if not torch.allclose(before, other, rtol=1e-3, atol=1e-3):
        raise ValueError(f"{PREFIX}{folder} sees the next word that it is to tell; next_token needs a decoder")
    return model


def _answer(model: nn.Module, folder: str, texts: Tensor) -> Tensor:
    """What the model makes of texts of full length: some have fewer places than their config says."""
    try:
        with torch.no_grad():
            return model(texts)
    except Exception as error:  # the library's networks raise nothing more exact
        why = " ".join(str(error).split())[:160]
        raise ValueError(
            f"{PREFIX}{folder} reads no text of {texts.shape[1]} tokens ({why}); lower [data] length"
        ) from None


def _opened(folder: str, kind: str, length: int, vocabulary: int) -> tuple[Any, Any]:
    """The model in a folder, by the library's name of what opens it, and its config."""
    home = Path(folder).expanduser()
    for name in ("config.json", "model.safetensors"):
        if not (home / name).is_file():
            raise ValueError(
                f"{PREFIX}{folder}: there is no {name}; a folder with config.json and model.safetensors is needed, and"
                " pickled weights are not opened"
            )
    library = _package(LIBRARY)
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = library.AutoConfig.from_pretrained(home, **settings)
        settings |= {"config": config, "use_safetensors": True, "attn_implementation": "eager", "dtype": torch.float32}
        base, loading = getattr(library, kind).from_pretrained(home, output_loading_info=True, **settings)
    except Exception as error:  # the library raises what its parts raise
        raise ValueError(f"{PREFIX}{folder} cannot be opened ({' '.join(str(error).split())[:160]})") from None
    if lacking := sorted(name for name in loading["missing_keys"] if "pooler" not in name):
        raise ValueError(f"{PREFIX}{folder}: model.safetensors lacks {len(lacking)} tensors, such as {lacking[0]}")
    if broken := [name for name, value in base.named_parameters() if not bool(value.isfinite().all())]:
        raise ValueError(f"{PREFIX}{folder}: {broken[0]} in model.safetensors has numbers that are not finite")
    places = getattr(config, "max_position_embeddings", length)
    if length > places:
        raise ValueError(f"{PREFIX}{folder} has {places} places, and texts have {length} tokens; lower [data] length")
    if vocabulary > config.vocab_size:
        raise ValueError(f"{PREFIX}{folder} has {config.vocab_size:,} words, and the data's tokenizer {vocabulary:,}")
    for part in base.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return base.eval(), config
