"""Records of text: which numbers they are, what is refused in one sentence, and that engines train on them alike."""

from __future__ import annotations

import json

import pytest
import torch
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data import load
from dpfl_audit.defenses.data.csv_table import deal_of
from dpfl_audit.defenses.data.text import text_dataset, told_by_next_words
from dpfl_audit.defenses.data.vocabulary import PAD, UNKNOWN, Vocabulary, vocabulary_of
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining, PerExample


def network(data, dtype=torch.float32, **options):
    words = len(vocabulary_of(data.description))
    about = {"input_shape": data.input_shape, "classes": data.classes, "mean": (), "std": (), "seed": 1}
    return models.build("transformer", vocabulary=words, width=8, heads=2, **about, **options).to(dtype)


def table(folder, rows, name="x.csv", header="text,target"):
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


ROWS = [f"the cat number {n} sat.,{'ab'[n % 2]}" for n in range(60)]


@pytest.fixture(scope="module")
def data():
    return load("notes", seed=5)


def test_notes_are_whole_words_of_a_public_list(data):
    vocabulary = vocabulary_of(data.description)
    assert (data.inputs.shape, data.inputs.dtype, data.classes) == ((1200, 24), torch.int64, 4)
    assert not any((split == 0).any() for split in (data.inputs, data.test_inputs, data.auxiliary_inputs))  # unknown
    assert vocabulary.words[0] == UNKNOWN
    assert int((data.inputs != PAD).sum(1).max()) <= 24 and bool((data.inputs[:, -1] == PAD).any())
    again = load("notes", seed=5)
    assert torch.equal(data.inputs, again.inputs) and data.description == again.description
    other = load("notes", seed=6)
    assert other.description["vocabulary"] == [*vocabulary.words] and not torch.equal(data.inputs, other.inputs)


KINDS = [("cross_entropy", False), ("cross_entropy", True), ("next_token", True), ("next_token(by='token')", True)]


@pytest.mark.few(4)
@pytest.mark.parametrize(("loss", "causal"), KINDS)
@pytest.mark.parametrize("rule", [None, PerExample(0.5, 1.0)], ids=["sgd", "dpsgd"])
def test_engines_train_a_transformer_alike(rule, loss, causal, data):
    shape = ()
    if loss != "cross_entropy":
        data, shape = told_by_next_words(data), (24,)
    module = network(data, torch.float64, causal=causal, target_shape=shape)
    layout = Layout.of(module)
    start = layout.join({name: value.detach() for name, value in module.named_parameters()})
    training = LocalTraining(lr=0.1, batch_size=3, per_example=rule, loss=loss)
    jobs = [
        LocalJob(module, layout, training, start, data.inputs, data.targets, rows, "update", 0.1, 7, num_examples=6)
        for rows in (torch.tensor([[0, 1, 2], [3, 4, -1]]), torch.tensor([[7, 8, 9], [10, 11, 12]]))
    ]
    for a, b in zip(batched(jobs), looped(jobs), strict=True):
        assert float(a.value.norm()) > 0.01
        assert torch.allclose(a.value, b.value, atol=1e-9)


def test_padding_changes_nothing(data):
    """A text's scores are the same however much padding is behind it, and a causal model looks back alone."""
    module = network(data, torch.float64, causal=True)
    short = data.inputs[:2, :20].clone()
    short[:, 10:] = PAD
    assert torch.equal(module(short[:, :10]), module(short[:, :10].double()))
    assert torch.allclose(module(short), module(short[:, :10]), atol=1e-12)


def test_texts_of_a_file_by_words_of_the_auxiliary_rows(tmp_path):
    data = load("text", root=table(tmp_path, ROWS), seed=3, tokenizer="words", length=5)
    vocabulary = vocabulary_of(data.description)
    own = {vocabulary.text(record) for record in data.auxiliary_inputs.tolist()}
    assert all(text.split()[:3] == ["the", "cat", "number"] and text.endswith("sat") for text in own)
    assert [len(split) for split in (data.inputs, data.test_inputs, data.auxiliary_inputs)] == [38, 12, 10]
    assert bool((data.inputs[:, 3] == 0).all())  # numbers that no auxiliary text has
    assert data.description["read_as"].endswith("10 of 10") and data.classes == 2  # all of them are cut


def test_a_training_text_changes_nothing_that_is_public(tmp_path):
    """Its words, its length and whether it is cut are its owner's."""
    first = load("text", root=table(tmp_path, ROWS), seed=3, tokenizer="words", length=20)
    victim = int(deal_of(len(ROWS), 3).train[0])
    rows = [("zebra " * 30 if n == victim else row.partition(",")[0]) + f",{'ab'[n % 2]}" for n, row in enumerate(ROWS)]
    second = load("text", root=table(tmp_path, rows), seed=3, tokenizer="words", length=20)
    assert not torch.equal(first.inputs, second.inputs)
    assert {k: v for k, v in first.description.items() if k != "sha256"} == {
        k: v for k, v in second.description.items() if k != "sha256"
    }


def test_lines_of_json_are_the_same_texts(tmp_path):
    pairs = [row.rsplit(",", 1) for row in ROWS]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": text, "target": target}) + "\n" for text, target in pairs))
    from_csv = load("text", root=table(tmp_path, ROWS), seed=3, tokenizer="words")
    assert torch.equal(load("text", root=str(path), seed=3, tokenizer="words").inputs, from_csv.inputs)


def test_a_quote_that_its_line_does_not_close_joins_no_rows(tmp_path):
    rows = ['"' + row.replace(",", "\t") for row in ROWS]
    made = load("text", root=table(tmp_path, rows, "x.tsv", "text\ttarget"), seed=3, tokenizer="words")
    assert made.description["sizes"] == {"training": 38, "test": 12, "auxiliary": 10}


@pytest.mark.parametrize(
    ("header", "options", "words"),
    [
        ("text,label", {"tokenizer": "words"}, ("no column 'target'",)),
        ("sentence,target", {"tokenizer": "words"}, ("no column 'text'",)),
        ("text,target", {}, ("tokenizer.json", 'tokenizer = "words"')),
        ("text,target", {"tokenizer": "words", "length": 0}, ("length = 0",)),
        ("text,target", {"tokenizer": "words", "length": 2.5}, ("length = 2.5",)),
        ("text,target", {"tokenizer": 3}, ("tokenizer = 3",)),
        ("text,target", {"tokenizer": "words", "labels": ["a", "c"]}, ("lacks",)),
        ("text,text", {"tokenizer": "words"}, ("two columns 'text'",)),
        ("text,target", {"tokenizer": "words", "mean": [0.0], "std": [1.0]}, ("no mean",)),
    ],
)
def test_what_is_refused(tmp_path, header, options, words):
    with pytest.raises(ValueError) as raised:
        load("text", root=table(tmp_path, ROWS, header=header), seed=3, **options)
    assert all(word in str(raised.value) for word in words)


def test_cells_that_lack_a_class_or_a_text_are_refused(tmp_path):
    for row in ("a cat,", " ,a"):
        with pytest.raises(ValueError, match="in 1 rows; leave these rows out"):
            load("text", root=table(tmp_path, [*ROWS, row]), seed=3, tokenizer="words")
    (tmp_path / "x.jsonl").write_text('{"sentence": "a", "target": 0}\n' * 60)
    with pytest.raises(ValueError, match="no column 'text'"):
        load("text", root=str(tmp_path / "x.jsonl"), seed=3, tokenizer="words")


def test_records_without_a_word_or_beyond_the_vocabulary_are_refused():
    vocabulary, targets = Vocabulary((UNKNOWN, "a")), torch.tensor([0])
    for record, word in ((torch.tensor([[PAD, PAD]]), "no token"), (torch.tensor([[2, 0]]), "token 2")):
        with pytest.raises(ValueError, match=word):
            text_dataset("t", ((record, targets),) * 3, 2, vocabulary, {})


def test_a_folder_of_pickles_is_not_opened(tmp_path):
    for name in ("config.json", "pytorch_model.bin", "modeling_own.py"):
        (tmp_path / name).write_text("{}")
    about = {"input_shape": (4,), "classes": 2, "mean": (), "std": (), "seed": 0}
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        models.build(f"hf:{tmp_path}", vocabulary=9, **about)


def test_a_decoder_alone_tells_the_next_word():
    about = {"input_shape": (4,), "classes": 9, "mean": (), "std": (), "seed": 0, "vocabulary": 9, "target_shape": (4,)}
    with pytest.raises(ValueError, match="causal = true"):
        models.build("transformer", **about)
    assert models.build("transformer", causal=True, **about)(torch.zeros(2, 4)).shape == (2, 4, 9)
    with pytest.raises(ValueError, match="the records of digits are none"):
        told_by_next_words(load("digits", seed=0))


def test_text_and_images_have_models_of_their_own():
    about = {"input_shape": (4,), "classes": 2, "seed": 0}
    with pytest.raises(ValueError, match="transformer"):
        models.build("mlp", mean=(), std=(), vocabulary=9, **about)
    with pytest.raises(ValueError, match="notes"):
        models.build("transformer", mean=(0,) * 4, std=(1,) * 4, **about)
