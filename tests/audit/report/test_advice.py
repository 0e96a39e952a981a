"""No recommendation rests on attacks that failed, and no two sentences on one setting contradict each other."""

from __future__ import annotations

import pytest
from dpfl_audit.audit.report.advice import advice, recommendable
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.results.verdict import verdict


@pytest.fixture
def setting(make_results, row, tmp_path):
    """A setting by its noise, what is proven, and how well it was attacked."""

    def make(std: float, proven: object, quality: float = 0.0, **changes) -> Results:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        rows = [row(proven=proven, accountant="closed form", **changes)]
        return Results.read(make_results(folder, f"noise {std:g}", quality=quality, noise_std=std, n=6, epsilon=rows))

    return make


def above(results: Results) -> Results:
    """The same with an interval above chance that many checks explain."""
    attack = results.attacks[0]
    lucky = attack.having(
        metrics={**attack.numbers, "psnr_margin": 0.5},
        intervals={**attack.intervals, "psnr_margin": [0.1, 0.9]},
        p_values={"psnr_margin": 0.04, "reidentified": 1.0},
    )
    return results.having(attacks=(lucky,), verdict=verdict((lucky,), results.epsilon))


@pytest.mark.parametrize("proven", ["inf", None, 159.0])
def test_no_noise_is_recommended_where_nothing_useful_is_proven(setting, proven):
    """That attacks failed bounds no stronger one; a proof does."""
    said = advice([setting(0.01, "inf", 0.9), setting(0.3, proven)])
    assert "has the least noise" not in " ".join(said)
    assert said[0].startswith("No setting can be recommended: “noise 0.3” (noise_std 0.3) shows no leak, but")
    assert "that these attacks failed rules out no stronger one" in said[0]


def test_the_least_noise_that_is_proven_is_recommended(setting):
    said = advice([setting(0.01, "inf", 0.9), setting(0.1, 159.0), setting(0.2, 9.0), setting(0.3, 6.0)])[0]
    assert "“noise 0.2” (noise_std 0.2) has the least noise at which ε ≤ 9 is proven and no leak was found" in said


def test_no_setting_is_recommended_whose_interval_lies_above_chance(setting):
    """Corrected for many checks it is no leak; for a recommendation it is doubt enough."""
    quiet = setting(0.3, 6.0)
    lucky = above(quiet)
    assert lucky.verdict.level == "none found" and recommendable(quiet) and not recommendable(lucky)
    said = advice([setting(0.01, "inf", 0.9), lucky])
    assert said[0].startswith("No setting can be recommended") and "an interval lies above chance" in said[0]
    assert advice([lucky])[0].startswith("Attack again")
    assert "“noise 0.3” (noise_std 0.3) has the least noise" in advice([setting(0.01, "inf", 0.9), quiet])[0]


@pytest.mark.parametrize("changes", [{"claimed": 8.0, "proven": 800.0}, {"proven": 800.0}, {"proven": "inf"}])
def test_advice_on_one_setting_never_says_both_no_change_and_more_noise(setting, changes):
    proven = changes.pop("proven")
    said = " ".join(advice([setting(0.3, proven, **changes)]))
    assert "no change" not in said and "Nothing has to change" not in said
    assert ("times the noise" in said) is (proven == 800.0)
    assert "Do not rest on the attacks that failed" in said


def test_where_a_proof_of_use_stands_nothing_has_to_change(setting):
    assert advice([setting(0.3, 6.0)]) == [
        "Nothing has to change for what is proven, ε ≤ 6: no attack beat its control. Less noise would prove less, and"
        " was not attacked."
    ]
    said = advice([setting(0.3, 6.001, claimed=2.0)])
    assert (
        said[0] == "No leak was found, but what is claimed is not proven (proven ε ≤ 6.01)."
        and "times the noise" in said[1]
    )


def test_noise_is_rounded_up_and_so_is_what_is_proven(setting):
    """A noise rounded down would not prove what is said of it."""
    (_, said) = advice([setting(0.3, 812.2, claimed=8.0)])
    std, factor = (
        float(said.split(before)[1].split(after)[0]) for before, after in (("noise_std ", " "), ("takes ", " "))
    )
    from dpfl_audit.audit.proven.gaussian import gaussian_multiplier

    exact = gaussian_multiplier(8.0, 1e-5) / gaussian_multiplier(812.2, 1e-5)
    assert exact <= factor < exact * 1.01 and 0.3 * exact <= std < 0.3 * exact * 1.01
