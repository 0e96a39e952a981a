"""Texts out of decoders that were trained on the next word: what layers read, and the last words by the head."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import torch
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.vocabulary import PAD, Vocabulary, next_words, padded, read_tokenizer, vocabulary_of
from dpfl_audit.defenses.hugging_face import decoder
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.losses import loss_of
from messages import NOTHING, client_sends, facts_of, flat, transformer
from messages import view_of as seen_by_server
from torch import nn

NEXT = "next_token"
SMALL = {"vocab_size": 60, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}


def view_of(module, words, texts, *, share="gradient", loss=NEXT, at=None):
    """What a server sees of one client with these texts, trained on each place's next word, at these weights."""
    n, shape = len(texts), tuple(texts.shape[1:])
    training = LocalTraining(lr=0.1, batch_size=n, loss=loss)
    value, _ = client_sends(module, training, (texts, next_words(texts)), torch.arange(n), share, at)
    known = {"target_shape": shape, "vocabulary": Vocabulary(tuple(words))}
    return seen_by_server(module, value, facts_of(training, share), n, shape, len(words), at, **known)


def read(view):
    attack = TextInversion()
    return attack.run_part(attack.parts(view, NOTHING)[0], view, NOTHING, 0)


def texts_of(records):
    return sorted(tuple(n for n in record if n != PAD) for record in records.tolist())


def decoder_of(notes, **options):
    words = vocabulary_of(notes.description).words
    module, _ = transformer(notes, classes=len(words), causal=True, target_shape=(24,), **options)
    return module, words


@pytest.mark.parametrize("loss", [NEXT, "next_token(by='token')"])
@pytest.mark.parametrize(("count", "share"), [(4, "gradient"), (2, "update")])
def test_notes_come_back_with_their_last_words(notes, count, share, loss):
    """The embedding has rows of all words but the last ones, which the head tells."""
    module, words = decoder_of(notes)
    texts = notes.inputs[:count].clone()
    texts[0, 9:] = PAD
    found = read(view_of(module, words, texts, share=share, loss=loss))
    assert texts_of(found.texts) == texts_of(texts) and found.certain.all()
    seen = {n for text in texts_of(texts) for n in text[:-1]}
    assert set(found.words.tolist()) == seen


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("rank", "length", "before", "head"),
    [(8, 14, True, True), (8, 7, False, True), (8, 8, True, False), (8, 8, True, True), (16, 16, True, True)],
)
def test_adapters_and_the_head_tell_a_note_whole(notes, rank, length, before, head):
    """Fewer than both ranks together after a step, fewer than one at the start. Without the head all but the last."""
    module, words = decoder_of(notes, layers=2, lora={"rank": rank, "targets": ["query", "value"]})
    module[1].head.requires_grad_(head)
    at, texts = flat(module), notes.inputs[4:5].clone()
    texts[:, length:] = PAD
    if before:
        training, others = LocalTraining(lr=0.1, batch_size=4, loss=NEXT), notes.inputs[50:54]
        at = at + client_sends(module, training, (others, next_words(others)), torch.arange(4))[0]
    found = read(view_of(module, words, texts, at=at))
    (text,) = texts_of(texts)
    assert set(text[:-1]) <= set(found.words.tolist()) <= set(text)
    assert found.certain.tolist() == [True] and texts_of(found.texts) == [text if head else text[:-1]]
    assert (dict(found.methods)["last words"] == "") == head


def random_decoder(kind, **options):
    transformers = pytest.importorskip("transformers", reason="not installed: pip install 'dpfl-audit[text]'")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL, **options)
    network = getattr(transformers, {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}[kind])
    network = network._from_config(config, attn_implementation="eager").eval()
    facts = {"network": type(network).__name__, "config": config.to_dict(), "adapters": None}
    about = {"input_shape": (8,), "classes": 60, "mean": (), "std": (), "seed": 0, "target_shape": (8,)}
    module = models.build("transformers", vocabulary=60, trained_elsewhere=True, **about, **facts)
    module[1].network.load_state_dict(network.state_dict())
    return module, [f"w{n}" for n in range(60)]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("GPT2", {"n_positions": 16, "n_embd": 64}),  # tied, and its linear layers' weights are transposed
        ("Llama", {"hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": True}),  # no places of its own
    ],
)
def test_decoders_of_the_library_tell_their_texts(kind, options):
    module, words = random_decoder(kind, **options)
    texts = padded([[5, 5, 6, 7, 8], [9, 10, 9, 11, 12, 13], [14, 5, 15]], 8)
    for known in (words, words[:50]):  # as many as the embedding has rows, and fewer
        found = read(view_of(module, known, texts))
        assert texts_of(found.texts) == texts_of(texts) and found.certain.all()


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("GPT2LMHeadModel", lambda held: held, None),
        ("BertLMHeadModel", lambda held: held, "sees the next word"),
        ("GPT2LMHeadModel", lambda held: {k: v for k, v in held.items() if "attn" not in k}, "lacks 4 tensors"),
        ("GPT2LMHeadModel", lambda held: {k: v * float("nan") for k, v in held.items()}, "not finite"),
        ("GPT2LMHeadModel", None, "cannot be opened"),
    ],
)
def test_what_a_folder_of_a_decoder_must_have(tmp_path, kind, change, why):
    transformers = pytest.importorskip("transformers", reason="not installed: pip install 'dpfl-audit[text]'")
    files, network = pytest.importorskip("safetensors.torch"), getattr(transformers, kind)
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}  # by BERT's names; GPT-2 has them too
    network(network.config_class(vocab_size=60, **sizes)).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    if change is None:
        path.write_bytes(path.read_bytes()[:-50])
    else:
        files.save_file(change(files.load_file(path)), path, {"format": "pt"})
    if why is None:
        assert decoder(str(tmp_path), 8, 60)(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 8, 60)
    else:
        with pytest.raises(ValueError, match=why):
            decoder(str(tmp_path), 8, 60)


def test_a_first_word_again_and_again_is_no_text():
    """A decoder that knows places by attention alone reads the same of "w9", "w9 w9" and so on."""
    module, words = random_decoder("Llama", hidden_size=64, intermediate_size=96)
    found = read(view_of(module, words, padded([[9, 10], [11, 12, 13]], 8)))
    assert texts_of(found.texts) == [(9, 10), (11, 12, 13)]


def test_the_loss_is_that_of_the_library():
    module, _ = random_decoder("GPT2", n_positions=16, n_embd=64)
    texts = torch.tensor([[5, 6, 7, 8], [9, 10, 11, PAD]])
    labels, mask = torch.where(texts < 0, -100, texts), (texts >= 0).long()
    theirs = module[1].network(input_ids=texts.clamp_min(0), attention_mask=mask, labels=labels).loss
    ours = loss_of("next_token(by='token')").mean(module(texts), next_words(texts))
    assert torch.allclose(ours, theirs, atol=1e-6)
    by_record = loss_of(NEXT).mean(module(texts), next_words(texts))
    each = [nn.functional.cross_entropy(module(t[None])[0, :-1], t[1:]) for t in (texts[0], texts[1, :3])]
    assert torch.allclose(by_record, sum(each) / 2, atol=1e-6) and not torch.allclose(ours, by_record, atol=1e-3)


@pytest.mark.full
def test_eight_sentences_of_smollm2_come_back_whole():
    """SmolLM2-135M as a folder that DPFL_AUDIT_SMOLLM2 names, as `benchmarks/unpack_gguf.py` makes it."""
    folder = Path(os.environ.get("DPFL_AUDIT_SMOLLM2", "smollm2"))
    data = Path(__file__).resolve().parents[3] / "shared" / "data" / "text" / "cola_val.tsv.gz"
    if not (folder / "model.safetensors").is_file() or not data.is_file():
        pytest.skip("the weights or the sentences are not here; set DPFL_AUDIT_SMOLLM2 to the folder of SmolLM2-135M")
    tokenizers = pytest.importorskip("tokenizers")
    reader = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    with gzip.open(data, "rt") as lines:
        texts = padded([reader.encode(line.split("\t")[3].strip()).ids for _, line in zip(range(8), lines)], 32)
    words = read_tokenizer(folder / "tokenizer.json").words
    about = {"input_shape": (32,), "classes": len(words), "mean": (), "std": (), "seed": 0, "target_shape": (32,)}
    module = models.build(f"hf:{folder}", vocabulary=len(words), **about)
    found = read(view_of(module, words, texts))
    assert texts_of(found.texts) == texts_of(texts) and found.certain.all()
