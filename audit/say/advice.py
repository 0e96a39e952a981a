"""What to change, in sentences; each says whether it was measured or computed."""

from __future__ import annotations

from collections.abc import Sequence

from ..judge.judgement import Judgement
from ..results.format import AuditedSetup, Epsilon, Results
from .accuracy import accuracy_said
from .badge import proof_said
from .words import at_most, listed, number, observer, percent_at_most
from .words import noise as noise_said

KEY_IS_PUBLISHED = "the key of this noise is published, so what is proven does not hold against whoever has the config"
LUCK = "more checks lie above their control there than luck explains: attack it again"
NOT_COMPARABLE = (
    "No noise can be recommended from these results: no setting has both a known noise_std and an interval to judge by."
)
RUN_ATTACKS = "Run attacks with the truth at hand before changing anything: nothing was measured here."
SCORE_ATTACKS = "Score the attacks where the training data is at hand: without it what they reached is unknown."
MEASURE_MORE = "Attack more images or records, until success can be told from luck: nothing was measured here."
PLANT_CANARIES = "Run `audit run --attack canary`, which needs no control among the records: these attacks have none."
STRENGTHEN = (
    "Strengthen the noise and attack again. Only this one setting was measured, so these results do not say how much is"
    " enough; `audit report` puts the results of several settings side by side."
)
ATTACK_AGAIN = (
    "Attack again, with more records or another seed: more checks lie above their control than luck explains."
)
SECRET_KEY = f"Train again with a secret noise key: {KEY_IS_PUBLISHED}."
LOOK_IN_CODE = (
    "Find what in the function gives more away than is claimed, and audit it again; these results do not say."
)
OTHER_CANARIES = "Audit it with other canaries before relying on it: a canary that shows little says nothing of others."
FEWER_ROUNDS = (
    "All rounds of one client together leaked, and the attacks on a single round did not beat their control: fewer"
    " rounds for each client would help (not re-attacked)."
)
FIXED_BOUNDS = (
    "make clip norm and noise scale public constants, and let no step use private data without noise (the reasons under"
    " the table say which does)"
)


def _noise(results: Results) -> str:
    return noise_said(results.setup.noise_std, results.server_noise_std)


def least_noise(results: Results, judgement: Judgement, label: str, where: str) -> str:
    accuracy = ""
    if results.setup.test_accuracy is not None:
        accuracy = f", at a test accuracy of {accuracy_said(results.setup)}"
    return (
        f"Of the settings measured{where}, “{label}” ({_noise(results)}) has the least noise at which"
        f" ε ≤ {at_most(judgement.proven)} is proven and no leak was found, there and with more noise{accuracy}."
    )


def none_fits(results: Results, label: str, where: str, why: str) -> str:
    return f"No setting{where} can be recommended: “{label}” ({_noise(results)}) shows no leak, but {why}."


def no_stronger_attack(judgement: Judgement) -> str:
    return f"a stronger attack may succeed where these failed ({proof_said(judgement)})"


def all_leaked(results: Results, label: str, where: str, uploads_seen: bool) -> str:
    """Of settings of one clip that all leaked, the one with the most noise too. uploads_seen: by an attacker."""
    setup = results.setup
    if not setup.noise_std and not results.server_noise_std:
        what = "Training without clip or noise" if setup.clip_norm is None else "Clipping alone"
        return f"{what} (“{label}”, no noise) leaked: noise is needed."
    if not setup.noise_std and uploads_seen:
        return (
            f"Every setting{where} leaked, and a server's noise protects nobody from those who see the uploads"
            f" ({_noise(results)}): noise is needed before anything leaves the client."
        )
    return f"Every setting{where} leaked up to the largest noise tried ({_noise(results)}): more noise is needed."


def not_proven(judgement: Judgement) -> str:
    return f"Do not rely on the failure of these attacks: {proof_said(judgement)}, so a stronger one may succeed."


def claim_not_proven(judgement: Judgement) -> str:
    return f"No leak was found, but what is claimed is not proven ({proof_said(judgement)})."


def nothing_to_change(judgement: Judgement) -> str:
    return (
        f"Nothing has to change for what is proven, ε ≤ {at_most(judgement.proven)}: no attack beats its control. Less"
        " noise would prove less, and was not attacked."
    )


def useless_clip(setup: AuditedSetup) -> str:
    said = (
        f"The clip of {number(setup.clip_norm)} changed nothing: no contribution was longer, so what was shared is as"
        " sharp as without it."
    )
    median = setup.norm_before_clip_median
    if median is None or not 0 < median < (setup.clip_norm or 0):
        return said
    share = percent_at_most(median / (setup.clip_norm or 1))
    return (
        f"{said} A clip near {number(median)}, the median norm, would need only {share} of the noise for the same proof"
        " (not re-attacked). The median is of private data, so choose such a clip by public data."
    )


def target(epsilon: float, claimed: bool) -> str:
    return f"the claimed ε = {number(epsilon)}" if claimed else f"ε = {number(epsilon)}"


def place(row: Epsilon) -> str:
    return f"per {row.unit} ({row.adjacency}) towards {observer(row.observer)}"


def missing(row: Epsilon, what: str, steps: Sequence[str]) -> str:
    return f"For {what} {place(row)}, {listed(list(steps) or [FIXED_BOUNDS])}."


def compute_noise(row: Epsilon, what: str, epsilon: float, secret: bool) -> str:
    known = "Proven" if secret else "With a secret noise key proven"
    return (
        f"{known} {place(row)} is ε = {at_most(row.proven)}, not {what}: `audit epsilon --target-epsilon {epsilon:g}`"
        " computes the noise it takes (not re-attacked)."
    )


def calibrate(row: Epsilon, what: str, factor: float, setup: AuditedSetup) -> str:
    amount = f"{at_most(factor)} times the noise"
    if std := setup.noise_std:
        amount += f" (noise_std {at_most(std * factor)} instead of {number(std)})"
    key = "" if setup.secret_key else " and a secret noise key"
    return (
        f"Calibrate the noise to what the clip guarantees for one {row.unit}: to prove {what} {place(row)} over as many"
        f" rounds takes {amount}{key}; computed, not re-attacked."
    )
