"""No recommendation rests on attacks that failed, and no two sentences on one setting contradict each other."""

from __future__ import annotations

import pytest
from dpfl_audit.audit.report.advice import advice, recommendable
from dpfl_audit.audit.report.facts import ReportedSetting
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.say import advice as say


@pytest.fixture
def setting(make_results, row, tmp_path):
    """A setting by its noise, what is proven, and how well it was attacked."""

    def make(std: float, proven: object, quality: float = 0.0, **changes) -> ReportedSetting:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        rows = [row(proven=proven, accountant="closed form", **changes)]
        make_results(folder, f"noise {std:g}", quality=quality, noise_std=std, n=6, epsilon=rows)
        return ReportedSetting(folder, Results.read(folder), f"noise {std:g}")

    return make


def above(setting: ReportedSetting, p_value: float) -> ReportedSetting:
    """The same with an interval above chance, and another check that is above its control as rarely by luck."""
    attack = setting.results.attacks[0]
    lucky = attack.having(
        metrics={**attack.numbers, "psnr_margin": 0.5},
        intervals={**attack.intervals, "psnr_margin": [0.1, 0.9]},
        p_values={"psnr_margin": 0.04, "reidentified": p_value},
    )
    return ReportedSetting(setting.folder, setting.results.having(attacks=(lucky,)), setting.label)


@pytest.mark.parametrize("proven", ["inf", None, 159.0])
def test_no_noise_is_recommended_where_nothing_useful_is_proven(setting, proven):
    """That attacks failed bounds no stronger one; a proof does."""
    quiet = setting(0.3, proven)
    assert not quiet.judgement.shows_leak and not recommendable(quiet)
    why = say.no_stronger_attack(quiet.judgement)
    assert advice([setting(0.01, "inf", 0.9), quiet])[0] == say.none_fits(quiet.results, "noise 0.3", "", why)


def test_the_least_noise_that_is_proven_is_recommended(setting):
    settings = [setting(0.01, "inf", 0.9), setting(0.1, 159.0), setting(0.2, 9.0), setting(0.3, 6.0)]
    least = settings[2]
    assert advice(settings)[0] == say.least_noise(least.results, least.judgement, "noise 0.2", "")
    assert least.judgement.proven == 9


def test_no_setting_is_recommended_of_which_more_checks_are_above_their_control_than_luck_explains(setting):
    """Corrected for many checks it is no leak: 1 of 2 at 5 % comes by luck in 10 of 100, 2 of 2 in one of 400."""
    loud, quiet = setting(0.01, "inf", 0.9), setting(0.3, 6.0)
    assert recommendable(above(quiet, p_value=1.0))
    lucky = above(quiet, p_value=0.04)
    assert lucky.judgement.level == "none found" and recommendable(quiet) and not recommendable(lucky)
    assert advice([loud, lucky])[0] == say.none_fits(lucky.results, "noise 0.3", "", say.LUCK)
    assert advice([lucky])[0] == say.ATTACK_AGAIN
    assert advice([loud, quiet])[0] == say.least_noise(quiet.results, quiet.judgement, "noise 0.3", "")


@pytest.mark.parametrize("changes", [{"claimed": 8.0, "proven": 800.0}, {"proven": 800.0}, {"proven": "inf"}])
def test_advice_on_one_setting_never_says_both_no_change_and_more_noise(setting, changes):
    alone = setting(0.3, changes.pop("proven"), **changes)
    first, further = advice([alone])
    assert first == say.not_proven(alone.judgement)
    assert (say.place(alone.results.epsilon[0]) in further) and "Nothing" not in further


def test_where_a_proof_of_use_stands_nothing_has_to_change(setting):
    enough = setting(0.3, 6.0)
    assert advice([enough]) == [say.nothing_to_change(enough.judgement)]
    claimed = setting(0.3, 6.001, claimed=2.0)
    first, _ = advice([claimed])
    assert first == say.claim_not_proven(claimed.judgement)


def test_noise_is_rounded_up_and_so_is_what_is_proven(setting):
    """A noise rounded down would not prove what is said of it."""
    (_, said) = advice([setting(0.3, 812.2, claimed=8.0)])
    std, factor = (
        float(said.split(before)[1].split(after)[0]) for before, after in (("noise_std ", " "), ("takes ", " "))
    )
    from dpfl_audit.audit.proof.theorems.gaussian import gaussian_multiplier

    exact = gaussian_multiplier(8.0, 1e-5) / gaussian_multiplier(812.2, 1e-5)
    assert exact <= factor < exact * 1.01 and 0.3 * exact <= std < 0.3 * exact * 1.01
