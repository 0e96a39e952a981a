"""The table of sentences: a short one on a small network reads whole batches, and what is missing is named."""

from __future__ import annotations

import gzip

import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.reproduce import tables
from dpfl_audit.audit.reproduce.dager import FOLDER, SETS, DagerTable, Sentences
from dpfl_audit.audit.reproduce.table import Request
from dpfl_audit.audit.reproduce.tables import reproduce

WORDS = ["ann", "ben", "came", "left", "took", "gave", "one", "two", "red", "blue", "drugs", "pills"]


def test_a_short_one_reads_whole_batches(tmp_path, monkeypatch):
    (tmp_path / "text").mkdir()
    told = [" ".join(WORDS[2 * k + (n >> k & 1)] for k in range(6)) for n in range(64)]
    rows = [f"source\t{n % 2}\t\t{text}" for n, text in enumerate(told)]
    (tmp_path / "text" / "of.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    sentences = Sentences("Of", ("of.tsv",), (1, 2), {1: {"rouge1": 1.0}})
    small = DagerTable({"of": sentences}, model={"name": "transformer"})
    monkeypatch.setitem(tables.TABLES, "dager", tables.PublishedTable("short", small.run))
    one, two = reproduce("dager", data_root=tmp_path, trials=1).rows
    assert (one["batch"], one["published_rouge1"], two["published_rouge1"]) == ("1", 1.0, None)
    for row in (one, two):  # DAGER's finding: without noise nothing is lost; and it is not what any sentence has
        assert row["rouge1"] == row["rouge2"] == row["whole"] == 1.0 > row["others"]


def test_files_of_all_layouts_are_read(tmp_path):
    (tmp_path / "cola.tsv").write_text("a\t1\t\tOne two.\na\t0\t*\tThree.\n")
    (tmp_path / "sst.tsv").write_text("sentence\tlabel\nfour five \t1\n")
    (tmp_path / "bad").write_text("six . \n")
    (tmp_path / "good").write_text("seven\n\neight\n")
    read = [
        [(line["text"], line["target"]) for line in Sentences("", files).lines(tmp_path)]
        for files in (("cola.tsv",), ("sst.tsv",), ("bad", "good"))
    ]
    assert read == [
        [("One two.", "1"), ("Three.", "0")],
        [("four five", "1")],
        [("six .", "0"), ("seven", "1"), ("eight", "1")],
    ]


@pytest.mark.parametrize(
    ("request_of", "told"),
    [
        ({"data": "imdb"}, "cola, sst2, rotten-tomatoes"),
        ({}, "--data-root"),
        ({"data_root": True}, "cola_val.tsv is missing"),
        ({"data_root": True, "data": "sst2"}, "config.json is missing"),
    ],
)
def test_what_is_missing_is_named(request_of, told, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / SETS["sst2"].files[0]).write_text("sentence\tlabel\nfour\t1\n")
    given = {**request_of, **({"data_root": tmp_path} if "data_root" in request_of else {})}
    with pytest.raises(BadInput, match=told):
        DagerTable().run(Request(**given))
    assert not (tmp_path / FOLDER).exists()
