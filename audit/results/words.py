"""Numbers and names in words: the same on the page, in Markdown and in the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ...defenses.terms import Observer
from ...metrics.intervals import clopper_pearson_interval
from .format import AttackResult, AuditedSetup, Epsilon, Verdict

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
        return "∞" if value > 0 else "−∞"
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
        return None if value is None else float(value)
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
    return said if secret or epsilon is None or not math.isfinite(epsilon) else f"{said} with a secret key"


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


@dataclass(frozen=True)
class Metric:
    """A metric in words.

    direction: +1 if larger values mean more leakage, −1 if smaller ones do, 0 if it says nothing by itself.
    """

    label: str
    direction: int
    meaning: str
    share: bool = False  # said in percent
    bound: bool = False  # a lower bound, rounded down

    def say(self, value: float | None) -> str:
        if self.bound:
            return at_least(value)
        return percent(value) if self.share else number(value)

    def at_least(self, value: float | None) -> str:
        return percent_at_least(value) if self.share else at_least(value)

    def at_most(self, value: float | None) -> str:
        return percent_at_most(value) if self.share else at_most(value)


METRICS = {
    "reidentified": Metric(
        "re-identified among outsiders",
        +1,
        "share of images that their reconstruction picks out of a line-up with others of the kind",
        True,
    ),
    "pool_share": Metric(
        "re-identified in its own pool",
        +1,
        "share of images picked out of a line-up with images that might as well have been in their place; no attack"
        " exceeds the ceiling on average, if the proof holds",
        True,
    ),
    "exact": Metric(
        "came back beyond doubt",
        +1,
        "share of images rebuilt with less than a thirtieth of the squared error of the best control, of a flat picture"
        " and of any other image",
        True,
    ),
    "cells_right": Metric(
        "cells right",
        +1,
        "share of a table's cells that are right once rows are paired: the word, or the number within .319 standard"
        " deviations (TabLeak, arXiv:2210.01785); a guess by what is frequent has many, so mind the controls",
        True,
    ),
    "psnr_margin": Metric(
        "PSNR margin (dB)", +1, "PSNR minus that of the best control; above 0 the attack learned something"
    ),
    "psnr": Metric(
        "PSNR (dB)", +1, "closeness of pixels to the original; from about 20 dB on one recognises the picture"
    ),
    "ssim": Metric("SSIM", +1, "similarity of structure, 1 is identical"),
    "mse": Metric("MSE", -1, "mean squared error of pixels in [0, 1], 0 is identical"),
    "lpips": Metric("LPIPS", -1, "perceptual distance by a trained network, 0 is identical"),
    "pixel_cosine": Metric("pixel cosine", +1, "cosine similarity of pixels"),
    "pixel_euclidean": Metric("pixel distance", -1, "Euclidean distance of pixels"),
    "feature_cosine": Metric("feature cosine", +1, "cosine similarity of reference classifiers' outputs"),
    "feature_euclidean": Metric("feature distance", -1, "Euclidean distance of reference classifiers' outputs"),
    "leak_probability": Metric(
        "leak probability",
        0,
        "for comparison with published tables only: relative to its own batch, it gates nothing",
        True,
    ),
    "label_accuracy": Metric(
        "labels inferred",
        0,
        "share of labels that are right, whatever image they are of; chance is the better of an even spread and always"
        " the attacker's most frequent class",
        True,
    ),
    "linked": Metric(
        "messages linked",
        +1,
        "share of the pairs of messages of one anonymous sender, in two rounds, that were paired; chance is the same"
        " where senders trade messages within rounds",
        True,
    ),
    "tracked": Metric(
        "joined messages that are right",
        0,
        "of the pairs of messages that were alike enough to be taken for one sender's, the share that is",
        True,
    ),
    "attack_loss": Metric("attack's own loss", 0, "what the attacker minimised; needs no truth"),
    "auc": Metric("AUC", +1, "chance that a member scores above a non-member; guessing gives 0.5"),
    "balanced_accuracy": Metric(
        "balanced accuracy", +1, "mean of the right answers on members and on non-members", True
    ),
    "epsilon": Metric("ε demonstrated", +1, "lower confidence bound on ε, whatever the mechanism", bound=True),
    "epsilon_ceiling": Metric("most ε a perfect attack shows", 0, "with this many trials, whatever leaks"),
    "epsilon_if_gaussian": Metric("ε if the noise is Gaussian", +1, "lower confidence bound on ε if it is", bound=True),
    "epsilon_if_gaussian_ceiling": Metric(
        "most ε a perfect attack shows if so", 0, "with this many trials, if the noise is Gaussian"
    ),
    "mu": Metric("Gaussian-DP parameter μ", +1, "lower confidence bound on it, if the noise is Gaussian", bound=True),
    "all": Metric("any metric", 0, ""),
}


def metric(name: str) -> Metric:
    """The words for `name`; a metric not in the list is shown under its own name."""
    return METRICS.get(name) or Metric(name.replace("_", " "), 0, "")


def observer(name: str) -> str:
    """
    >>> observer("server"), observer("uplink(3)")
    ('the server', "an eavesdropper on 3 of a client's uploads")
    """
    return Observer.parse(name).words


def attacked(variant: str, manner: str, observer_name: str) -> str:
    """Which of an attack's entries.

    >>> attacked("cosine", "one-round", "server")
    'cosine, one round, seen by the server'
    """
    manner = {"one-round": "one round", "all-rounds": "all rounds together"}.get(manner, manner)
    return ", ".join(part for part in (variant, manner, f"seen by {observer(observer_name)}") if part)


def sees_uploads(name: str) -> bool:
    """Whether an observer sees what clients send.

    >>> sees_uploads("server"), sees_uploads("model")
    (True, False)
    """
    return not Observer.parse(name).sees_merged_only


def sees_at_most(name: str, other: str) -> bool:
    """Whether an observer sees nothing that another does not.

    >>> sees_at_most("downlink", "server"), sees_at_most("server", "downlink")
    (True, False)
    """
    return Observer.parse(name).sees_at_most(Observer.parse(other))


CLAIMANTS = {"paper": "by the paper's formula", "owner": "by the owner", "accountant": "by the accountant"}


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
    >>> claim_said(Epsilon(**place, claimed=2.351, proven=2.351, claimed_by="accountant"))
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
    return at_most(value) if whose == "accountant" else number(value)


def on_condition(row: Epsilon) -> str | None:
    """What a row demonstrates if something holds, in words; None where it has no such bound.

    >>> place = {"observer": "server", "unit": "client", "adjacency": "zero_out"}
    >>> on_condition(Epsilon(**place, condition="the noise is Gaussian", demonstrated_on_condition=37.5))
    '37.5 if the noise is Gaussian'
    """
    if row.demonstrated_on_condition is None:
        return None
    return f"{at_least(row.demonstrated_on_condition)} if {row.condition}"


def chosen(shown: Epsilon | AttackResult) -> str:
    """What the adversary chose for what is demonstrated, to stand behind the number; "" where nothing.

    >>> place = {"observer": "server", "unit": "record", "adjacency": "zero_out"}
    >>> chosen(Epsilon(**place, demonstrated=2.2, demonstrated_from="crafted initial weights"))
    " from crafted initial weights (the adversary chose the model's start)"
    >>> chosen(Epsilon(**place, demonstrated=2.2))
    ''
    """
    return f" from {shown.demonstrated_from} ({WHO_CHOSE})" if shown.demonstrated_from else ""


def chosen_briefly(shown: Epsilon | AttackResult) -> str:
    """The same for a cell of a table: words with which it can begin, "" where nothing was chosen."""
    return f"from {shown.demonstrated_from}" if shown.demonstrated_from else ""


WHO_CHOSE = "the adversary chose the model's start"


def could_show(ceiling: float | None) -> str:
    """The limit of a test: what it can tell at all, which is no limit of what leaks.

    >>> could_show(5.7611), could_show(math.inf)
    ('with this many trials even a perfect attack shows at most 5.77', 'with this many trials there is no limit to it')
    """
    if ceiling == math.inf:
        return "with this many trials there is no limit to it"
    return f"with this many trials even a perfect attack shows at most {at_most(ceiling)}"


ADJACENCIES = {"zero_out": "leaves its contribution out", "replace_one": "exchanges it for any other"}


def adjacency_said(names: Iterable[str]) -> str:
    """What ε, δ and the adjacencies of a table mean, said once for all of it; "" where it has none.

    >>> adjacency_said(["replace_one", "replace_one"]).partition(": ")[2]
    'replace_one exchanges it for any other.'
    """
    used = set(names)
    said = [f"{name} {words}" for name, words in ADJACENCIES.items() if name in used]
    both = "two trainings that differ in one record or client, up to a chance of δ"
    return f"The privacy loss ε compares {both}: {listed(said)}." if said else ""


MULTIPLIER = (
    "The multiplier is the noise over the clip norm C: noise_std/C of a message; with noise inside local training,"
    " that of a batch's sum."
)


def without_noise(accuracy: float | None) -> str:
    """What stands beside the accuracy of a setting with noise: that of the same training without.

    >>> without_noise(None), without_noise(0.75).replace("\N{NO-BREAK SPACE}", " ")
    ('without noise not measured', 'without noise 75 %')
    """
    return f"without noise {'not measured' if accuracy is None else percent(accuracy)}"


def accuracy_said(setup: AuditedSetup, *more: str) -> str:
    """The accuracy on test records, with its 95 % interval and what guessing gets, each where it is known, and more.

    >>> known = {"digest": "", "scheme": "ldp", "test_accuracy": 0.71, "data": {"classes": 10, "sizes": {"test": 300}}}
    >>> accuracy_said(AuditedSetup(**known)).replace("\N{NO-BREAK SPACE}", " ")
    '71 % (65 % to 77 % on 300 test records; guessing one of 10 classes gives 10 %)'
    >>> accuracy_said(AuditedSetup(**known, majority_accuracy=0.1234)).replace("\N{NO-BREAK SPACE}", " ")
    '71 % (65 % to 77 % on 300 test records; always guessing the most frequent class gives 12.3 %)'
    """
    if setup.test_accuracy is None:
        return MISSING
    beside = []
    if (interval := accuracy_interval(setup)) is not None:
        low, high = percent_at_least(interval[0]), percent_at_most(interval[1])
        beside.append(f"{low} to {high} on {times(setup.test_records or 0, 'test record')}")
    if (guessing := setup.guessing_accuracy) is not None:
        guess = f"guessing one of {round(1 / guessing)} classes"
        if setup.majority_accuracy is not None:
            guess = "always guessing the most frequent class"
        beside.append(f"{guess} gives {percent(guessing, 3)}")
    beside += [text for text in more if text]
    return percent(setup.test_accuracy) + (f" ({'; '.join(beside)})" if beside else "")


def accuracy_interval(setup: AuditedSetup) -> tuple[float, float] | None:
    """95 % Clopper–Pearson limits of the accuracy; None where accuracy or number of test records is unknown."""
    n = setup.test_records
    if setup.test_accuracy is None or n is None:
        return None
    return clopper_pearson_interval(round(setup.test_accuracy * n), n)


def useless_said(accuracy: float | None, limits: tuple[float, float] | None, guessing: float | None) -> str:
    """That a model is no better than none, in a sentence; "" where its accuracy's limits lie above what a guess gets,
    or where either is unknown.

    >>> useless_said(0.72, (0.71, 0.73), 0.761).replace("\N{NO-BREAK SPACE}", " ")
    'The model is worse than no model: it has 72 % of the test records right (71 % to 73 %), guessing alone 76.1 %.'
    >>> useless_said(0.77, (0.75, 0.79), 0.761).partition(":")[0], useless_said(0.8, (0.78, 0.82), 0.761)
    ('The model is not shown to be better than no model', '')
    """
    if accuracy is None or limits is None or guessing is None or limits[0] > guessing:
        return ""
    compared = "worse than" if limits[1] < guessing else "not shown to be better than"
    right = f"{percent(accuracy, 3)} of the test records right"
    interval = f"{percent_at_least(limits[0])} to {percent_at_most(limits[1])}"
    return f"The model is {compared} no model: it has {right} ({interval}), guessing alone {percent(guessing, 3)}."


def useless(setup: AuditedSetup) -> str:
    """`useless_said` of what was audited.

    >>> data = {"classes": 10, "sizes": {"test": 300}}
    >>> setups = [AuditedSetup(digest="", scheme="ldp", test_accuracy=a, data=data) for a in (0.12, 0.3)]
    >>> [bool(useless(setup)) for setup in setups]
    [True, False]
    """
    return useless_said(setup.test_accuracy, accuracy_interval(setup), setup.guessing_accuracy)


LEAKS = {
    "none found": "no leak found",
    "moderate": "moderate leak",
    "high": "high leak",
    "severe": "severe leak",
}


def leak_said(verdict: Verdict) -> str:
    """Which leak was found, in words: the first half of the badge. Nothing found is no praise where nothing was tried.

    >>> said = {"level": "none found", "proof": "none", "sentences": ("", "", "")}
    >>> [leak_said(Verdict(**said, measured=m, attacked=a)) for m, a in ((True, True), (False, True), (False, False))]
    ['no leak found', 'leak not measured', 'not attacked']
    """
    if verdict.only_claim:
        return "claim refuted"
    if verdict.level != "none found" or verdict.measured:
        return LEAKS[verdict.level]
    return "leak not measured" if verdict.attacked else "not attacked"


def proof_said(verdict: Verdict) -> str:
    """What is proven, in words: the second half of the badge.

    >>> said = {"level": "high", "measured": True, "attacked": True, "sentences": ("", "", "")}
    >>> proofs = (("proven", 7.2911), ("weak", 159.0), ("weak", None), ("none", None), ("not priced", None))
    >>> [proof_said(Verdict(**said, proof=how, proven=epsilon)) for how, epsilon in proofs]
    ['proven ε ≤ 7.3', 'only ε ≤ 159 proven', 'no useful ε proven', 'nothing proven', 'ε not priced']
    """
    if verdict.proof == "proven":
        return f"{'as declared' if verdict.declared else 'proven'} ε ≤ {at_most(verdict.proven)}"
    if verdict.proof == "weak" and verdict.declared and verdict.proven is not None:
        return f"only ε ≤ {at_most(verdict.proven)}, as declared"
    if verdict.proof == "weak":
        return "no useful ε proven" if verdict.proven is None else f"only ε ≤ {at_most(verdict.proven)} proven"
    return "nothing proven" if verdict.proof == "none" else "ε not priced"


def proof_word(verdict: Verdict) -> str:
    """The same without its number, for beside a table: that is of one unit, and the verdict's of the worst row."""
    words: dict[str, str] = {"proven": "useful ε proven", "weak": "no useful ε proven", "none": "nothing proven"}
    if verdict.declared and verdict.proof == "proven":
        return "useful ε, as declared"
    return words.get(verdict.proof, "ε not priced")


def badge(verdict: Verdict) -> str:
    """Both answers: one of them alone says nothing of the other.

    >>> said = {"measured": True, "attacked": True, "sentences": ("", "", "")}
    >>> badge(Verdict(level="severe", proof="none", **said))
    'severe leak · nothing proven'
    >>> badge(Verdict(level="none found", proof="proven", proven=7.3, **said))
    'no leak found · proven ε ≤ 7.3'
    """
    return f"{leak_said(verdict)} · {proof_said(verdict)}"


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
    return f"{count} {noun}" + "s" * (count != 1)


def where(row: Epsilon) -> str:
    """What an ε is about."""
    delta = "" if row.delta is None else f", δ = {number(row.delta)}"
    return f"per {row.unit} towards {observer(row.observer)} ({row.adjacency}{delta})"
