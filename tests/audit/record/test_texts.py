"""Texts through a recorder: numbers of words with a mask, a network of one's own or of peft, and what is read of it."""

from __future__ import annotations

import importlib
import json

import pytest
import torch
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.record.recording import DeclaredTraining, recording_of
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.vocabulary import PAD, read_tokenizer, vocabulary_of
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.terms import Observer
from torch import nn

NETS = """
import torch
from dpfl_audit.defenses import models
from torch import nn

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        about = {"input_shape": (24,), "classes": 4, "mean": (), "std": (), "seed": 1, "vocabulary": WORDS}
        self.body = models.build("transformer", lora={"rank": 8, "targets": ["query", "value"]}, **about)

    def forward(self, ids):
        return self.body(torch.where(ids == 0, -1, ids))
"""
NOTES = load("notes", seed=5)
WORDS = vocabulary_of(NOTES.description).words


@pytest.fixture
def reader(tmp_path, monkeypatch):
    (tmp_path / "nets_of_texts.py").write_text(NETS.replace("WORDS", str(len(WORDS))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return importlib.import_module("nets_of_texts").Reader()


def gradient(net: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    named = {name: p for name, p in net.named_parameters() if p.requires_grad}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()))))


def stepped(net: nn.Module, loss: torch.Tensor) -> None:
    """A step on other texts, so that B is not 0."""
    with torch.no_grad():
        for name, value in gradient(net, loss).items():
            net.get_parameter(name).sub_(0.1 * value)


def read(folder, allow=None):
    setup = check_setup(folder)[0]
    view, knowledge = setup.view(Observer.parse("server"), allow), setup.knowledge()
    attack = TextInversion()
    return attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0)


def test_a_note_comes_back_through_a_recording_of_adapters(reader, tmp_path):
    ids, targets = NOTES.inputs[:5].clone(), NOTES.targets[:5]
    ids[0, 14:] = PAD
    padded = torch.where(ids < 0, 0, ids)  # the owner's network takes 0 for padding
    stepped(reader, nn.functional.cross_entropy(reader(padded[1:]), targets[1:]))
    data = {"vocabulary": list(WORDS), "pad": 0}
    with Recorder("s", reader, share="gradient", data=data, strict=True) as rec:
        rec.broadcast(0, reader)
        sent = gradient(reader, nn.functional.cross_entropy(reader(padded[:1]), targets[:1]))
        rec.upload(0, 0, sent, 1, records=(padded[:1], targets[:1]))
    truth = check_setup(tmp_path / "s")[1].truth
    assert truth.inputs.dtype == torch.int64 and torch.equal(truth.inputs, ids[:1])
    found = read(tmp_path / "s", "nets_of_texts:Reader")
    assert set(found.words.tolist()) == set(ids[0].tolist()) - {PAD}
    assert found.certain.tolist() == [True] and torch.equal(found.texts[0][:14], ids[0, :14])


def test_a_mask_says_what_is_padding_and_texts_get_one_length(reader, tmp_path):
    with Recorder("s", reader, data={"vocabulary": list(WORDS), "input_shape": (24,)}, strict=True) as rec:
        rec.broadcast(0, reader)
        left = {"input_ids": torch.tensor([[0, 0, 7, 9]]), "attention_mask": torch.tensor([[0, 1, 1, 1]])}
        rec.upload(0, 0, reader, 1, records=(left, torch.tensor([2])))
        rec.upload(0, 1, reader, 2, records=(torch.tensor([[3, 4], [5, PAD]]), torch.tensor([0, 1])))
    kept = check_setup(tmp_path / "s")[1].truth.inputs
    assert kept[:, :3].tolist() == [[0, 7, 9], [3, 4, PAD], [5, PAD, PAD]] and bool((kept[:, 3:] == PAD).all())


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (torch.rand(1, 4), "expected \\(n, length\\) tokens"),
        (torch.tensor([[3, 10**6]]), "the vocabulary's words from 0 to"),
        (torch.tensor([[3, 4], [PAD, PAD]]), "no word that its mask shows"),
        ({"input_ids": torch.tensor([[3]]), "attention_mask": torch.tensor([[1, 1]])}, "a mask of shape"),
        ({"ids": torch.tensor([[3]])}, "expected input_ids"),
        ({"input_ids": torch.tensor([[3, 4]]), "token_type_ids": torch.tensor([[0, 1]])}, "token_type_ids are not 0"),
        (torch.full((1, 30), 3), "a text of 30 tokens; the recording's have 24"),
    ],
)
def test_what_is_no_text_is_refused_in_one_sentence(reader, records, words):
    with Recorder("s", reader, data={"vocabulary": list(WORDS), "input_shape": (24,)}, strict=True) as rec:
        rec.broadcast(0, reader)
        with pytest.raises(BadInput, match=words):
            rec.upload(0, 0, reader, 1, records=(records, torch.zeros(len(records), dtype=torch.long)))
        rec.abandon()


def test_a_tokenizers_file_tells_the_vocabulary(tmp_path):
    path = tmp_path / "tokenizer.json"
    content = {"model": {"vocab": {"a": 0, "##b": 2}}, "added_tokens": [{"id": 3, "content": "[SEP]"}]}
    path.write_text(json.dumps(content))
    assert read_tokenizer(path).words == ("a", "[unused1]", "##b", "[SEP]")
    path.write_text(json.dumps({"model": {"vocab": [["x", -1.0], ["y", -2.0]]}}))
    assert read_tokenizer(path).words == ("x", "y")
    path.write_text("{}")
    with pytest.raises(BadInput, match=r"tokenizer.json with a vocabulary"):
        Recorder(tmp_path / "s", nn.Linear(2, 2), data={"tokenizer": str(path)}, strict=True)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_network_of_the_library_with_pefts_adapters_is_built_again_without_code(tmp_path):
    """Names as peft has them in the network, and as it saves them; the words of a text come back."""
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install 'dpfl-audit[text]'")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, num_labels=3, initializer_range=0.5,
    )  # fmt: skip
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"], lora_dropout=0.1)
    net = peft.get_peft_model(transformers.BertForSequenceClassification(config), lora).eval()
    ids, mask = torch.randint(5, 60, (4, 7)), torch.ones(4, 7, dtype=torch.long)
    targets = torch.tensor([0, 1, 2, 0])
    logits = net(input_ids=ids, attention_mask=mask).logits
    stepped(net, nn.functional.cross_entropy(logits[1:], targets[1:]))
    loss = nn.functional.cross_entropy(net(input_ids=ids[:1], attention_mask=mask[:1]).logits, targets[:1])
    saved = dict(peft.get_peft_model_state_dict(net))
    with Recorder(
        tmp_path / "s", net, share="gradient", data={"vocabulary": [f"w{i}" for i in range(60)]}, strict=True
    ) as rec:
        rec.broadcast(0, saved)
        rec.upload(0, 0, gradient(net, loss), 1, records=({"input_ids": ids[:1]}, targets[:1]))
    setup = check_setup(tmp_path / "s")[0]
    view = setup.view(Observer.parse("server"))
    wanted = {f"1.network.{name}" for name, p in net.named_parameters() if p.requires_grad}
    assert {*view.layout.names} == wanted == {*Layout.of(view.module).names}
    with torch.no_grad():
        for name, value in view.layout.split(view.global_model(0)).items():
            view.module.get_parameter(name).copy_(value)
    assert torch.allclose(view.module(ids), net(input_ids=ids, attention_mask=mask).logits, atol=1e-5)
    found = read(tmp_path / "s")
    assert set(found.words.tolist()) == set(ids[0].tolist())
    assert sum(words.startswith("no Dropout") for words in found.assumed) == 1


def small_gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="not installed: pip install 'dpfl-audit[text]'")
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
    config = transformers.GPT2Config(**sizes)
    return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("convention", ["own words", "next words"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_decoder_of_the_library_is_recorded_with_its_labels(tmp_path, side, convention):
    """Padding in front, a word that is not asked for, and labels as the library or as plain torch takes them."""
    net = small_gpt2()
    ids, own = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 0]]), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    if side == "left":
        ids[1], own[1] = ids[1].roll(1), own[1].roll(1)
    labels = torch.where(own == 1, ids, -100)
    labels[0, 1] = -100
    places = (own.cumsum(1) - 1).clamp_min(0)
    logits = net(input_ids=ids, attention_mask=own, position_ids=places).logits
    shifted = torch.cat([labels[:, 1:], torch.full((2, 1), -100)], 1)
    shifted[own == 0] = -100
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), shifted, ignore_index=-100)
    given = ({"input_ids": ids, "attention_mask": own}, labels if convention == "own words" else shifted)
    data, words = {"vocabulary": [f"w{i}" for i in range(60)]}, "next_token(by='token')"
    words = words if convention == "own words" else nn.CrossEntropyLoss()
    with Recorder(tmp_path / "s", net, share="gradient", data=data, loss=words, strict=True) as rec:
        rec.broadcast(0, dict(net.named_parameters()))
        rec.upload(0, 0, gradient(net, loss), 2, records=given)
    setup, auditor = check_setup(tmp_path / "s")
    assert auditor.truth.inputs.tolist() == [[5, 6, 7, 8, 9], [10, 11, 12, 13, PAD]]
    assert auditor.truth.targets.tolist() == [[-100, 7, 8, 9, -100], [11, 12, 13, -100, -100]]
    assert (setup.manifest.data.classes, setup.manifest.data.target_shape) == (60, [5])
    found = read(tmp_path / "s")
    assert sorted(text.tolist() for text in found.texts) == sorted(auditor.truth.inputs.tolist())


@pytest.mark.filterwarnings("ignore:model. ε is priced and attacks are left out")
@pytest.mark.parametrize("length", [None, 24])
@pytest.mark.parametrize("causal", [True, False])
def test_torchs_cross_entropy_is_of_next_words_where_each_place_scores_all_words(causal, length):
    about = {"input_shape": (24,), "classes": 4, "mean": (), "std": (), "seed": 1, "vocabulary": len(WORDS)}
    net = models.build("transformer", **about, **({"causal": True, "target_shape": (24,)} if causal else {}))
    data = {"vocabulary": list(WORDS)} | ({} if length is None else {"input_shape": (length,)})
    for loss in (nn.CrossEntropyLoss(), nn.functional.cross_entropy):
        made = recording_of(net, DeclaredTraining(data=data, loss=loss))
        assert made.loss == ("next_token(by='token')" if causal else "cross_entropy")


@pytest.mark.filterwarnings("ignore:model. ε is priced and attacks are left out")
def test_words_that_are_not_asked_for_are_no_class_numbers(tmp_path):
    about = {"input_shape": (4,), "classes": 9, "mean": (), "std": (), "seed": 1, "vocabulary": 9}
    net = models.build("transformer", **about, causal=True, target_shape=(4,))
    with Recorder(tmp_path / "s", net, data={"vocabulary": list("abcdefghi")}, loss="next_token", strict=True) as rec:
        rec.broadcast(0, net.state_dict())
        rec.upload(0, 0, net.state_dict(), 1, records=(torch.tensor([[5, 6, 7, 8]]), torch.tensor([[5, -100, 7, 8]])))
    assert check_setup(tmp_path / "s")[1].truth.targets.tolist() == [[-100, 7, 8, -100]]


def test_labels_that_are_not_the_texts_words_are_refused(tmp_path):
    net = small_gpt2()
    ids, data = torch.tensor([[5, 6, 7]]), {"vocabulary": [f"w{i}" for i in range(60)]}
    with Recorder(tmp_path / "s", net, share="gradient", data=data, loss="next_token", strict=True) as rec:
        rec.broadcast(0, dict(net.named_parameters()))
        refused = (torch.tensor([[9, 9, 9]]), "neither"), (torch.tensor([1]), "a word for each place")
        for client, (labels, why) in enumerate(refused):
            with pytest.raises(BadInput, match=why):
                rec.upload(0, client, dict(net.named_parameters()), 1, records=(ids, labels))
        rec.abandon()


def test_tied_weights_that_a_state_dict_has_twice_are_read_once(tmp_path):
    net = small_gpt2()
    ids, data = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]]), {"vocabulary": [f"w{i}" for i in range(60)]}
    with Recorder(tmp_path / "s", net, data=data, loss="next_token", strict=True) as rec:
        rec.broadcast(0, net.state_dict())
        moved = gradient(net, net(input_ids=ids, labels=ids).loss)
        sent = {name: -0.1 * moved[name.replace("lm_head", "transformer.wte")] for name in net.state_dict()}
        rec.upload(0, 0, sent, 2, records=(ids, ids))
    setup = check_setup(tmp_path / "s")[0]
    assert {*setup.layout.names} - {*setup.view(Observer.parse("server")).layout.names} == {"1.network.lm_head.weight"}
    assert sorted(text.tolist() for text in read(tmp_path / "s").texts) == [[5, 6, 7, 8], [9, 10, 11, 12]]
