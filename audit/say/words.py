"""Numbers and names in words: the same on the page, in Markdown and in the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ...defenses.terms import Observer
from ..results.format import AttackResult, Epsilon

MISSING = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, digits: int = 3) -> str:
    """A number for people, to `digits` significant digits, never rounding digits before the point away.

    >>> [number(x) for x in (None, float("inf"), 0, 0.01234, 1234.5, 1e-4, 1e-5, 2.5e7, -3.14159)]
    ['–', '∞', '0', '0.0123', '1234', '0.0001', '10⁻⁵', '2.5·10⁷', '−3.14']
    """
    if value is None:
        return MISSING
    if math.isinf(value):
        if value > 0:
            return "∞"
        return "−∞"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 6:
        text = f"{value:{',' if exponent > 3 else ''}.{max(digits - 1 - exponent, 0)}f}".replace(
            ",", "\N{NARROW NO-BREAK SPACE}"
        )
        if "." in text:
            text = text.rstrip("0").rstrip(".")
    else:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        times_ten = "10" + str(int(power)).translate(_SUPERSCRIPT)
        text = {"1": times_ten, "-1": "-" + times_ten}.get(mantissa, f"{mantissa}·{times_ten}")
    return text.replace("-", "−")


def at_least(value: float | None, digits: int = 3) -> str:
    """A lower limit as `number` says it, rounded down: what is said holds as well.

    >>> at_least(4.996), at_least(5.4), at_least(1234.5), at_least(-0.1234), at_least(None), at_least(float("inf"))
    ('4.99', '5.4', '1234', '−0.124', '–', '∞')
    """
    return number(_rounded(value, digits, ROUND_FLOOR), digits)


def at_most(value: float | None, digits: int = 3) -> str:
    """An upper limit, rounded up.

    >>> at_most(5.001), at_most(5.4), at_most(1234.5), at_most(9.999), at_most(-0.1234), at_most(2.511e7)
    ('5.01', '5.4', '1235', '10', '−0.123', '2.52·10⁷')
    """
    return number(_rounded(value, digits, ROUND_CEILING), digits)


def _rounded(value: float | Decimal | None, digits: int, rounding: str) -> float | None:
    """As written in decimals, so that 5.4 stays 5.4 in either direction; to the digits that `number` shows."""
    if not value or math.isinf(value):
        if value is None:
            return None
        return float(value)
    exact = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    exponent = exact.adjusted()
    last = exponent - digits + 1
    return float(exact.quantize(Decimal(1).scaleb(min(last, 0) if exponent < 6 else last), rounding))


def proven_if_secret(epsilon: float | None, secret: bool) -> str:
    """A proven ε, and what it asks for where the noise's key is not secret.

    >>> [proven_if_secret(*known) for known in ((7.3, True), (7.3, False), (None, False), (math.inf, False))]
    ['7.3', '7.3 with a secret key', '–', '∞']
    """
    said = at_most(epsilon)
    if secret or epsilon is None or not math.isfinite(epsilon):
        return said
    return f"{said} with a secret key"


def noise(noise_std: float | None, server_noise_std: float | None) -> str:
    """The noise on a client's message, and what a server adds to its broadcasts where it does.

    >>> noise(0.1, None), noise(0.0, 0.5)
    ('noise_std 0.1', "noise_std 0, server's noise_std 0.5")
    """
    return f"noise_std {number(noise_std)}" + (
        f", server's noise_std {number(server_noise_std)}" if server_noise_std else ""
    )


def percent(share: float | None, digits: int = 2) -> str:
    """
    >>> [percent(x).replace("\N{NO-BREAK SPACE}", " ") for x in (None, 0.0, 0.0001, 0.025, 0.317, 1.0)]
    ['–', '0 %', '0.01 %', '2.5 %', '32 %', '100 %']
    """
    if share is None:
        return MISSING
    return f"{number(100 * share, digits)}\N{NO-BREAK SPACE}%"


def percent_at_least(share: float | None) -> str:
    """A lower limit in percent, rounded down.

    >>> [percent_at_least(x).replace("\N{NO-BREAK SPACE}", " ") for x in (None, 0.0, 0.57, 0.3183, 0.9996)]
    ['–', '0 %', '57 %', '31 %', '99 %']
    """
    return _percent(share, ROUND_FLOOR)


def percent_at_most(share: float | None) -> str:
    """An upper limit in percent, rounded up.

    >>> [percent_at_most(x).replace("\N{NO-BREAK SPACE}", " ") for x in (None, 0.0, 0.57, 0.3117, 0.02031, 0.999)]
    ['–', '0 %', '57 %', '32 %', '2.1 %', '100 %']
    """
    return _percent(share, ROUND_CEILING)


def between(interval: tuple[float, float]) -> str:
    """A confidence interval of a share, rounded outwards.

    >>> between((0.7123, 0.9377)).replace("\N{NO-BREAK SPACE}", " ")
    '71 to 94 %'
    """
    low, high = interval
    return f"{percent_at_least(low).removesuffix('%').strip()} to {percent_at_most(high)}"


def _percent(share: float | None, rounding: str) -> str:
    if share is None:
        return MISSING
    return f"{number(_rounded(100 * Decimal(repr(float(share))), 2, rounding), 2)}\N{NO-BREAK SPACE}%"


def quoted(names: list[str]) -> str:
    """Names of settings in a sentence, where commas of their own would confuse.

    >>> quoted(["no noise, no clip", "much noise"])
    '“no noise, no clip” and “much noise”'
    """
    return listed([f"“{name}”" for name in names])


def observer(name: str) -> str:
    """
    >>> observer("server"), observer("uplink(3)")
    ('the server', "an eavesdropper on 3 of a client's uploads")
    """
    return Observer.parse(name).words


KINDS = {  # of attacks
    "inversion": "inversion",
    "linking": "linking",
    "attribute": "attribute inference",
    "membership": "membership inference",
    "canary": "canaries",
}


CLAIMANTS = {
    "paper": "by the paper's formula",
    "owner": "by the owner",
    "framework": "by the framework",
    "accountant": "by the accountant",
}


def attack_entry(variant: str, manner: str, observer_name: str) -> str:
    """Which of an attack's entries.

    >>> attack_entry("cosine", "one-round", "server")
    'cosine, one round, seen by the server'
    """
    manner = {"one-round": "one round", "all-rounds": "all rounds together"}.get(manner, manner)
    return ", ".join(part for part in (variant, manner, f"seen by {observer(observer_name)}") if part)


def claimant(whose: str) -> str:
    """Whose a claim is: what stands behind "claimed"; nothing where there is none.

    >>> claimant("paper"), claimant("owner"), claimant("")
    ("by the paper's formula", 'by the owner', '')
    """
    return CLAIMANTS.get(whose, "")


def claim_said(row: Epsilon) -> str:
    """What a row claims and whose claim it is; the accountant's is rounded as what is proven is.

    >>> place = {"observer": "server", "unit": "client", "adjacency": "zero_out"}
    >>> claim_said(Epsilon(**place, claimed=5.3, claimed_by="paper")), claim_said(Epsilon(**place))
    ("5.3 is claimed by the paper's formula", 'nothing is claimed')
    >>> claim_said(Epsilon(**place, claimed=2.351, claimed_by="accountant"))
    '2.36 is claimed by the accountant'
    """
    if row.claimed in (None, math.inf):
        return "nothing is claimed"
    return f"{claim(row.claimed, row.claimed_by)} is claimed {claimant(row.claimed_by)}".rstrip()


def claim(value: float | None, whose: str) -> str:
    """A claimed ε: the accountant's is what is proven and rounded up like it, another's is as near as it can be said.

    >>> claim(2.351, "accountant"), claim(2.351, "paper")
    ('2.36', '2.35')
    """
    if whose == "accountant":
        return at_most(value)
    return number(value)


def on_condition(row: Epsilon) -> str | None:
    """What a row demonstrates if something holds, in words; None where it has no such bound.

    >>> place = {"observer": "server", "unit": "client", "adjacency": "zero_out"}
    >>> on_condition(Epsilon(**place, condition="the noise is Gaussian", demonstrated_on_condition=37.5))
    '37.5 if the noise is Gaussian'
    """
    if row.demonstrated_on_condition is None:
        return None
    return f"{at_least(row.demonstrated_on_condition)} if {row.condition}"


def demonstrated(row: Epsilon, named: str = "") -> str:
    """What a row demonstrates: the number on a condition, and the one that holds in any case.

    named: the condition, where the sentence has named it already.

    >>> place = {"observer": "server", "unit": "client", "adjacency": "zero_out"}
    >>> demonstrated(Epsilon(**place, demonstrated=8.6, condition="it rains", demonstrated_on_condition=55.0))
    '55 if it rains, 8.6 in any case'
    """
    counted, conditional = at_least(row.demonstrated), on_condition(row)
    if conditional is None:
        return f"{counted}{chosen(row)}"
    if named:
        conditional = f"{at_least(row.demonstrated_on_condition)} on that condition"
    if row.demonstrated is None:
        numbers = [conditional]
    else:
        numbers = [conditional, f"{counted} in any case"]
    return f"{', '.join(numbers)}{chosen(row)}"


def chosen(shown: Epsilon | AttackResult) -> str:
    """What the adversary chose for what is demonstrated, to stand behind the number; "" where nothing.

    >>> place = {"observer": "server", "unit": "record", "adjacency": "zero_out"}
    >>> chosen(Epsilon(**place, demonstrated=2.2, demonstrated_from="crafted initial weights"))
    ", from crafted initial weights (the adversary chose the model's start)"
    >>> chosen(Epsilon(**place, demonstrated=2.2))
    ''
    """
    if shown.demonstrated_from:
        return f", {chosen_briefly(shown)} ({WHO_CHOSE})"
    return ""


def chosen_briefly(shown: Epsilon | AttackResult) -> str:
    """The same for a cell of a table: words with which it can begin, "" where nothing was chosen."""
    if shown.demonstrated_from:
        return f"from {shown.demonstrated_from}"
    return ""


WHO_CHOSE = "the adversary chose the model's start"


def could_show(ceiling: float | None) -> str:
    """The limit of a test: what it can tell at all, which is no limit of what leaks.

    >>> could_show(5.7611), could_show(math.inf)
    ('with this many trials even a perfect attack shows at most 5.77', 'with this many trials an attack may show any ε')
    """
    if ceiling == math.inf:
        return "with this many trials an attack may show any ε"
    return f"with this many trials even a perfect attack shows at most {at_most(ceiling)}"


def area_ceiling(area: float | None) -> str:
    """The most that the proof allows any attack's AUC; "" where it was not asked.

    >>> area_ceiling(None), area_ceiling(1.0), area_ceiling(0.611)
    ('', 'no ceiling', 'ceiling 0.611')
    """
    if area is None:
        return ""
    if area >= 1:
        return "no ceiling"
    return f"ceiling {at_most(area)}"


def ceiling_said(share: float | None) -> str:
    """The largest share of successes that the proof allows any attack.

    >>> ceiling_said(None), ceiling_said(1.0), ceiling_said(0.25).replace("\N{NO-BREAK SPACE}", " ")
    ('no ceiling', 'no ceiling', 'ceiling 25 %')
    """
    if share is None or share >= 1:
        return "no ceiling"
    return f"ceiling {percent_at_most(share)}"


def closest_said(prior: float | None, even: float | None) -> str:
    """The largest PSNR in dB that the proof allows any attack, of Gaussian pictures and of even pixels; "" where it
    allows all.

    >>> closest_said(None, None), closest_said(None, 13.24)[:31], closest_said(14.11, 13.24)[-37:]
    ('', 'no attack comes closer than 13.', '; real pictures may be guessed better')
    """
    if even is None:
        return ""
    assumed = "all pixels are independent and even"
    most, beside = at_most(even), ""
    if prior is not None:
        most, beside = at_most(prior), f" ({at_most(even)} dB if {assumed})"
        assumed = "they are Gaussian about the mean of their label, with the covariance of the auxiliary ones"
    within = f"no attack comes closer than {most} dB to any of these pictures in 95 % of trainings"
    return f"{within}, if {assumed}{beside}; real pictures may be guessed better"


ADJACENCIES = {
    "zero_out": "leaves its contribution out",
    "replace_one": "exchanges it for any other of as many records",
}


def adjacency_said(names: Iterable[str]) -> str:
    """What ε, δ and the adjacencies of a table mean, said once for all of it; "" where it has none.

    >>> adjacency_said(["replace_one", "replace_one"]).partition(": ")[2]
    'replace_one exchanges it for any other of as many records.'
    """
    used = set(names)
    said = [f"{name} {words}" for name, words in ADJACENCIES.items() if name in used]
    both = "two trainings that differ in one record or client, up to a chance of δ"
    if said:
        return f"The privacy loss ε compares {both}: {listed(said)}."
    return ""


MULTIPLIER = (
    "The multiplier is the noise over the clip norm C: noise_std/C of a message; with noise inside local training,"
    " that of a batch's sum."
)


def known_to_another(epsilon: float) -> str:
    """Towards a client who takes part as well, beside an ε that counts on what it knows of itself."""
    limit = "no finite ε is proven"
    if epsilon < math.inf:
        limit = f"ε is at most {at_most(epsilon)}"
    return f"Another client knows its own draw and noise: towards it {limit} (--colluding 1)."


NO_SECRET = "The noise is not secret: its key is published, and whoever has the config can draw it and take it off."


def listed(items: list[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part)


def times(count: int, noun: str) -> str:
    """
    >>> times(1, "image"), times(3, "image")
    ('1 image', '3 images')
    """
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def where(row: Epsilon) -> str:
    """What an ε is about."""
    return f"per {row.unit} towards {observer(row.observer)} ({terms(row)})"


def terms(row: Epsilon) -> str:
    """What an ε means nothing without, beside its observer and unit."""
    if row.delta is None:
        return row.adjacency
    return f"{row.adjacency}, δ = {number(row.delta)}"


LONG = 5.0  # minutes that a person does not wait for without being told


def takes_long(minutes: float, shorter: str) -> str:
    """What is said before work of more than `LONG` minutes begins, "" for less. shorter: what makes it so."""
    if minutes <= LONG:
        return ""
    return f"this takes about {minutes:.0f} minutes on two cores; {shorter}"


def spent_said(spent: float, delta: float | None) -> str:
    """The ε of what the same records were used for before a training; "" for 0. delta: its own."""
    if not spent:
        return ""
    used = "The same records were used before this training, as by a search"
    if spent == math.inf:
        return f"{used}, and no ε bounds that: towards whoever saw it too nothing is proven."
    price = at_most(spent)
    if delta is not None:
        price = f"{price} (δ = {delta:.3g})"
    return f"{used}, with ε = {price}: towards whoever saw that too, the sums of both ε and of both δ hold."
