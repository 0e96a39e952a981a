"""What somebody who mistyped a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# What an amount of noise is measured in, as names of keys say it. Two keys with different ones are no misspellings of
# each other, however alike they look: a noise multiplier of 1 is no noise_std of 1.
NOISE = ("multiplier", "std", "variance", "squared", "scale", "sigma")
QUANTITIES = (*NOISE, "norm", "epsilon", "delta", "rounds", "steps", "epochs")

# What other libraries call it, in the same unit.
ELSEWHERE = {"learning_rate": "lr", "max_grad_norm": "clip", "l2_norm_clip": "clip", "clipping_norm": "clip"}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that was probably meant by `name`; None where none is near, or is another quantity.

    >>> known = ("noise_std", "sigma", "clip", "lr")
    >>> nearest("noise_sdt", known), nearest("noise_multiplier", known), nearest("learning_rate", known)
    ('noise_std', None, 'lr')
    """
    typed, names = name.lower(), {each.lower(): each for each in known}
    for each in names:
        if each == ELSEWHERE.get(typed) or _letters(each) == _letters(typed):
            return names[each]
    whole = [each for each in names if typed in _words(each) or each.startswith(typed) or each in _words(typed)]
    close = difflib.get_close_matches(typed, names, n=3, cutoff=0.7)
    likely = [*whole, *close] if len(typed) > 2 else close
    return next((names[each] for each in likely if _same_quantity(typed, each) and not _opposite(typed, each)), None)


def instead(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses `name`: what was probably meant, else what is known.

    >>> instead("adm", ("sgd", "adam")), instead("lion", ("sgd", "adam"))
    ("; did you mean 'adam'?", '; known are sgd, adam')
    >>> instead("noise_multiplier", ("clip", "noise_std", "sigma"))
    '; noise is given by noise_std or sigma here, which are other quantities'
    >>> instead("local", ("local-gaussian", "local-laplace", "ldp"))
    '; there are local-gaussian, local-laplace'
    """
    known = list(known)
    if len(family := [each for each in known if each.startswith(f"{name}-")]) > 1:
        return f"; there are {', '.join(family)}"
    if (near := nearest(name, known)) is not None:
        return f"; did you mean {near!r}?"
    noises = [each for each in known if _quantities(each) & set(NOISE)]
    if noises and _quantities(name.lower()) & set(NOISE):
        return f"; noise is given by {' or '.join(noises)} here, which are other quantities"
    return f"; known are {', '.join(known)}" if known else ""


def _opposite(typed: str, known: str) -> bool:
    return typed != known and typed in (f"un{known}", f"no{known}", f"not{known}", f"non{known}")


def _same_quantity(typed: str, known: str) -> bool:
    """Of noise, both names must say the same quantity; of anything else, they may not say two different ones."""
    wanted, have = _quantities(typed), _quantities(known)
    return wanted == have or not ((wanted and have) or (wanted | have) & set(NOISE))


def _quantities(name: str) -> set[str]:
    near = (difflib.get_close_matches(word, QUANTITIES, n=1, cutoff=0.7) for word in _words(name) if len(word) > 1)
    return {match[0] for match in near if match}


def _letters(name: str) -> list[str]:
    """By which two names are alike but for the order of letters and what stands between words."""
    return sorted(name.replace("-", "").replace("_", ""))


def _words(name: str) -> list[str]:
    return name.replace("-", "_").split("_")
