"""Randomness as an argument: every stream is derived from the run's seed and what it is for.

What privacy hangs on (noise, secret cohorts and batches, opaque names) also hangs on a key (`secret_seed`), as the seed
is public; all else comes from the seed alone. Noise, cohorts and batches are a `Keystream`'s. A torch generator would
not do: of its seed only the low 32 bits count, so that anybody could try all of them, and 50,000 draws of noise would
hold two equal ones every fourth time; and the Mersenne Twister's state can be computed from what it gave out.
"""

from __future__ import annotations

import hashlib

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

SPARE_BITS = 11  # of a 64-bit word, below the 53 that make a uniform number of float64
WORD = 8  # bytes
BLOCK = 16  # bytes of an AES block; a message of zeros gives the keystream itself
ZEROS = bytes(2**18)  # what is encrypted at a time: it stays in the processor's cache, and one call takes below 2**31


def stream(seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose, e.g. `stream(seed, round, party, "noise")`, independent of those for others.

    >>> stream(0, 1, "noise") == stream(0, 1, "noise") != stream(0, 2, "noise")
    True
    """
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU torch generator for one purpose. Draws are made on the CPU so that they are the same on every device."""
    return torch.Generator().manual_seed(stream(seed, *purpose))


def secret_seed(seed: int, key: str) -> int:
    """256 bits that only the holders of the key know, different for every seed: where all streams begin that privacy
    hangs on.

    >>> secret_seed(0, "a") == secret_seed(0, "a") not in (secret_seed(1, "a"), secret_seed(0, "b"))
    True
    """
    return int.from_bytes(hashlib.sha256(repr((seed, key)).encode()).digest(), "big")


def aes_words(key: bytes, counter: bytes, count: int) -> Tensor:
    """The first words (count,) of int64 of AES-256 in counter mode (NIST SP 800-38A, 6.5), the lowest byte first.

    They are the same on every processor; where it has instructions for AES, they come at some gigabytes a second.

    Args:
        key: 32 bytes. counter: the first block to encrypt, 16 bytes; each later one is larger by 1.
    """
    words = torch.empty(count + BLOCK // WORD, dtype=torch.int64)  # the cipher asks for a block's room after the end
    room = words.numpy().data.cast("B")
    cipher = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    for start in range(0, WORD * count, len(ZEROS)):
        cipher.update_into(ZEROS[: WORD * count - start], room[start:])
    return words[:count]


class Keystream:
    """Random numbers for one purpose that whoever lacks the seed cannot tell from coin flips: AES-256 in counter mode.

    The key is SHA-256 of the seed and the purpose (for noise: of which message, of which round, for which value), the
    upper half of the counter block is the number of the call, the lower half counts its blocks. So no block is
    encrypted twice under a key, unless a stream of the same seed and purpose is begun again, which gives the same
    numbers by intent.

    >>> numbers = Keystream(0, "noise")
    >>> first = numbers.words(2)
    >>> torch.equal(first, Keystream(0, "noise").words(2)), torch.equal(first, numbers.words(2))
    (True, False)
    """

    def __init__(self, seed: int, *purpose: object) -> None:
        self._key, self._calls = hashlib.sha256(f"keystream {(seed, *purpose)!r}".encode()).digest(), 0

    def words(self, count: int) -> Tensor:
        """(count,) of int64, every bit a coin flip."""
        self._calls += 1
        return aes_words(self._key, self._calls.to_bytes(8, "big") + bytes(8), count)

    def uniform(self, count: int) -> Tensor:
        """(count,) of float64 in (0, 1): the middles of 2⁵³ equal parts."""
        return centred(self.words(count)).add_(0.5)

    def permutation(self, count: int) -> Tensor:
        """(count,) the numbers 0 to count − 1 in random order (two equal words of 64 bits do not happen)."""
        return self.words(count).argsort()


def fraction(words: Tensor, more: Tensor) -> Tensor:
    """Uniform numbers (n,) of float64 in (0, 1] with 53 significant bits however small they are, as floating-point
    numbers are everywhere but near 1: the middles of 2¹⁰⁶ equal parts, rounded, the least 2⁻¹⁰⁷.

    Args:
        words, more: (n,) each, of which the top bits are used: the first 53 of a number, and the next 53.
    """
    return (words >> SPARE_BITS).add_(2**52).double().add_(centred(more).add_(0.5)).mul_(2.0**-53)


def centred(words: Tensor) -> Tensor:
    """Uniform numbers (n,) of float64 in (−½, ½), the middles of 2⁵³ equal parts, from the top bits of words (n,)."""
    return (words >> SPARE_BITS).double().add_(0.5).mul_(2.0**-53)
