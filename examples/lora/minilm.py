"""What the LoRA examples train: all-MiniLM-L6-v2 with a classifier and adapters, on short invented notes."""

from __future__ import annotations

import random
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

CLIENTS, LENGTH = 4, 32
NOTES = [
    ("Anna Weber has to repeat her blood test on 3 May", 1),
    ("Room 12 is free again", 0),
    ("Mr Okafor was given 40 mg of the new drug", 1),
    ("Lunch moves to one o'clock", 0),
    ("Ines Duarte fell in the corridor last night", 1),
    ("The lift on the north side is out of order", 0),
    ("Paul Lindqvist asks for his files by 17 June", 1),
    ("Please hand in your keys before you leave", 0),
]
random.Random(7).shuffle(NOTES)  # dealt by lot, so that a score has something to be compared with


def network(folder: str) -> torch.nn.Module:
    """The model in a folder with fresh adapters and head, the same for every party; no Dropout."""
    torch.manual_seed(0)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    base = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, local_files_only=True, **off)
    return get_peft_model(base, LoraConfig(task_type="SEQ_CLS", r=32, target_modules=["query", "key", "value"]))


def load_data(folder: str, client: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A client's notes as the tokenizer gives them, and whether each is about a person."""
    texts, labels = zip(*NOTES[client::CLIENTS], strict=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokens = tokenizer([*texts], padding="max_length", max_length=LENGTH, return_tensors="pt")
    return dict(tokens), torch.tensor(labels)


def described(folder: str) -> dict[str, Any]:
    """What a recorder is told: the loss; of the notes the tokenizer, their length, and that a lot dealt them."""
    notes = {"tokenizer": f"{folder}/tokenizer.json", "input_shape": (LENGTH,), "by_lot": True}
    return {"loss": "cross_entropy", "data": notes}
