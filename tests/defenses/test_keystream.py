"""The keystream that noise is drawn from: the standard's own words, on any processor and by any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from dpfl_audit.defenses.randomness import ZEROS, Keystream, aes_words
from dpfl_audit.defenses.steps.perturb import draw
from dpfl_audit.defenses.threads import in_threads
from torch import Tensor

# NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt): the key, the initial counter, and the four output blocks.
NIST_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
NIST_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
NIST_OUTPUT = (
    "0bdf7df1591716335e9a8b15c860c502",
    "5a6e699d536119065433863c8f657b94",
    "1bc12c9c01610d5d0d8bd6a3378eca62",
    "2956e1c8693536b1bee99c73a31576b6",
)


def test_words_are_those_of_the_standard():
    words = aes_words(bytes.fromhex(NIST_KEY), bytes.fromhex(NIST_COUNTER), 8)
    assert words.numpy().tobytes() == bytes.fromhex("".join(NIST_OUTPUT))


@pytest.mark.parametrize("count", [0, 1, 2, 3, len(ZEROS) // 8, len(ZEROS) // 8 + 1, 3 * len(ZEROS) // 8 - 1])
def test_fewer_words_are_the_first_of_more(count):
    """However many pieces they are made of."""
    first, more = Keystream(0, "noise").words(count), Keystream(0, "noise").words(3 * len(ZEROS) // 8 + 5)
    assert len(first) == count and torch.equal(first, more[:count])


@pytest.mark.full
def test_a_processor_without_the_instructions_draws_the_same():
    """A program of ordinary ones takes the place of those for AES."""
    off = "~0x200000200000000"
    code = "from dpfl_audit.defenses.randomness import Keystream; print(Keystream(7, 'noise').words(1000).tolist())"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OPENSSL_ia32cap": off}, capture_output=True, text=True
    )
    assert ran.stdout.strip() == str(Keystream(7, "noise").words(1000).tolist()), ran.stderr


def test_noise_is_the_same_for_any_number_of_threads():
    def noise(client: int) -> Tensor:
        return draw("gaussian", 0.3, 100_001, Keystream(5, "noise", client))

    threads = torch.get_num_threads()
    drawn: list[Tensor] = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            drawn += [torch.stack(list(in_threads(noise, range(6)))), torch.stack([noise(c) for c in range(6)])]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(drawn[0], other) for other in drawn[1:])
