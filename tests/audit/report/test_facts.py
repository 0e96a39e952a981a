"""The facts of a report name all noise and every clip, wherever in the scheme they are."""

from __future__ import annotations

import pytest
from dpfl_audit.audit.judge.judgement import judgement_of
from dpfl_audit.audit.report.facts import epsilon_table, facts, metric_rows, notices
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.results.format import Epsilon, Results
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.run.audited import audited_setup
from dpfl_audit.audit.say.change import noised
from dpfl_audit.audit.say.reasons import reasons
from dpfl_audit.audit.say.warnings import NO_CLIP
from dpfl_audit.audit.say.words import on_condition
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup

CENTRAL = {
    "server_noise_std": 0.25,
    "server_clip_norm": 3.0,
    "server_share_clipped": 0.5,
    "server_norm_before_clip": 3.1,
}
UNCLIPPED = {
    "clip_norm": None,
    "share_clipped": None,
    "noise_std": 0.0,
    "noise_multiplier": None,
    "sensitivity": "none: nothing bounds what is sent",
}


@pytest.fixture
def results(make_results, tmp_path):
    def of(rounds: list[dict], **setup) -> Results:
        return Results.read(make_results(tmp_path, n=2, noise_std=0.0, setup=setup)).model_copy(
            update={"rounds": tuple(rounds)}
        )

    return of


def by_name(results: Results) -> dict[str, dict[str, str]]:
    return {fact["name"]: fact for fact in facts(results)}


def test_the_servers_noise_and_clip_stand_beside_an_upload_without_any(results):
    """Means over the rounds that have them: the last row is the final model's, which has none."""
    figures = by_name(
        results(
            [CENTRAL, {**CENTRAL, "server_noise_std": 0.75, "server_clip_norm": 5.0}, {"test_loss": 1.0}], **UNCLIPPED
        )
    )
    assert figures["noise_std"]["value"] == "0" and "client sends" in figures["noise_std"]["note"]
    assert figures["server's noise_std"]["value"] == "0.5" and "broadcasts" in figures["server's noise_std"]["note"]
    clip = figures["server's clip norm"]
    assert clip["value"] == "4" and "50\u00a0%" in clip["note"]


def test_a_scheme_of_the_clients_alone_says_nothing_of_the_server(results):
    assert not [name for name in by_name(results([{"noise_std": 0.5}])) if "server" in name]


@pytest.mark.parametrize("value", ["0.25", None, [1]])
def test_a_strangers_figure_that_is_no_number_is_not_averaged(value, results):
    assert "server's noise_std" not in by_name(results([{"server_noise_std": value}]))


@pytest.mark.parametrize(
    ("rounds", "setup", "warned"),
    [
        ([{}], UNCLIPPED, True),
        ([CENTRAL], UNCLIPPED, False),  # the server clips
        ([{}], {**UNCLIPPED, "share_clipped": 0.4}, False),  # clients clip to a norm of their own
    ],
    ids=["nowhere", "server", "private norm"],
)
def test_no_clip_is_only_said_where_there_is_none(rounds, setup, warned, results):
    assert (NO_CLIP in notices(results(rounds, **setup))) == warned


def test_a_clip_inside_local_training_is_one(make_results, row, tmp_path):
    """DP-SGD: no clip on what is sent, and yet a proof."""
    setup = {**UNCLIPPED, "clipped_in_training": True}
    bounded = Results.read(make_results(tmp_path, n=2, epsilon=[row(proven=3.0)], setup=setup))
    assert NO_CLIP not in notices(bounded)


@pytest.mark.parametrize(("scheme", "on"), [("dpsgd", "a step's mean gradient"), ("ldp", "a message")])
def test_the_noise_is_said_to_be_where_the_scheme_adds_it(scheme, on, tmp_path):
    """σ·C/batch_size of DP-SGD was said to be on a message, which has that of many steps."""
    config = parse_config(
        {
            "data": {"name": "digits", "clients": 2, "samples_per_client": 10},
            "model": {"name": "linear"},
            "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
            "scheme": {"name": scheme, "rounds": 1, "clip": 1.0, "sigma": 1.0},
        }
    )
    train(build(config, tmp_path), tmp_path / "setup")
    setup = audited_setup(Auditor(open_setup(tmp_path / "setup")))
    assert noised(setup) == on


@pytest.mark.parametrize(
    ("claimed", "proven", "number"),
    [
        (5.0, 2.0, "below"),  # a smaller ε is a stronger guarantee
        (5.0, 10.0, "is 10, 2 times"),
        (5.0, "inf", "no proof"),
        (5.0, 5.0, None),
    ],
)
def test_claim_and_proof_are_compared_the_right_way_round(claimed, proven, number, row):
    sentences = reasons(Epsilon.model_validate(row(claimed=claimed, proven=proven)), [])
    assert len(sentences) == (number is not None) and all(number in sentence for sentence in sentences)


def test_the_page_shows_the_servers_noise(make_results, tmp_path):
    folder = make_results(tmp_path / "r", n=2, setup=UNCLIPPED)
    content = Results.read(folder).model_copy(update={"rounds": (CENTRAL,)})
    (folder / "results.json").write_text(content.text())
    assert "server&#39;s noise_std" in str(render([folder], None, "html"))


def test_settings_side_by_side_name_the_servers_noise(make_results, tmp_path):
    """cdp: no noise on an upload, and yet not a setting without noise."""
    folders = []
    for i, std in enumerate((0.25, 0.5)):
        folders.append(
            make_results(tmp_path / str(i), f"cdp {i}", n=2, noise_std=0.0, setup={**UNCLIPPED, "digest": f"{i}" * 64})
        )
        content = Results.read(folders[-1]).model_copy(update={"rounds": ({**CENTRAL, "server_noise_std": std},)})
        (folders[-1] / "results.json").write_text(content.text())
    page, table = (str(render(folders, None, form)) for form in ("html", "csv"))
    assert "server's 0.5" in page.replace("&#39;", "'")
    assert table.splitlines()[0].split(",")[3] == "server_noise_std" and ",0.25," in table


CONDITION = {"condition": "the noise is Gaussian", "demonstrated_on_condition": 55.0, "ceiling_on_condition": 56.0}


@pytest.mark.parametrize(
    ("numbers", "flag", "said"),
    [
        (
            {"claimed": 26.0, "proven": 800.0},
            "refuted on its condition",
            "if the noise is Gaussian (55) exceeds claimed (26): the claim is false on that condition.",
        ),
        (
            {"claimed": None, "proven": 30.0},
            "contradicted on its condition",
            "(55) exceeds proven (30): the proof does not describe what ran, or the condition fails.",
        ),
        ({"claimed": 8.0, "proven": 800.0}, "refuted", "exceeds claimed (8): the claim is false."),
        ({"claimed": None, "proven": 8.0}, "contradicted", "exceeds proven (8): the proof does not describe what ran."),
    ],
)
def test_a_bound_on_a_condition_is_never_shown_without_it(numbers, flag, said, make_results, row, tmp_path):
    """In the table's flag and reasons, in the page's cells and in the comparison of settings."""
    own = [row(unit="client", demonstrated=8.6, ceiling=8.7, **CONDITION, **numbers)]
    folders = [make_results(tmp_path / name, name, n=2, epsilon=own) for name in ("one", "two")]
    table = epsilon_table(judgement_of(Results.read(folders[0])))
    assert [entry["flag"] for _, rows in table["observers"] for entry in rows] == [flag]
    assert said in " ".join(reason for _, reasons in table["reasons"] for reason in reasons)
    for text in (render(folders), render(folders[:1])):
        named = on_condition(judgement_of(Results.read(folders[0])).epsilon[0])
        assert named and 0 < text.count(named) == text.count("55 if") and "8.6" in text


def test_what_a_test_could_show_is_no_upper_limit_of_what_leaks(canary, make_results, tmp_path):
    """A demonstrated ε has a lower limit only."""
    results = Results.read(make_results(tmp_path, n=2, extra_attacks=[canary()]))
    (attack,) = [attack for attack in results.attacks if attack.kind == "canary"]
    shown = {row["name"]: row["interval"] for row in metric_rows(attack, [])}
    assert attack.intervals["epsilon"] == (2.1, 4.0) and shown["epsilon"].split()[-1] == "2.1"


def test_dp_sgd_shows_its_clip_and_multiplier(tmp_path):
    """Both are of a record's gradient in a local step; what is sent is not clipped, so its own would be –."""
    raw = {
        "seed": 4,
        "data": {"name": "digits", "clients": 2, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "local": {"batch_size": 5},
        "scheme": {"name": "dpsgd", "clip": 0.5, "sigma": 3.0, "rounds": 1},
    }
    experiment = build(parse_config(raw), tmp_path)
    setup = train(experiment, tmp_path / "setup")
    results = run(
        setup,
        tmp_path / "results",
        RunOptions(attacks=("inversion",), overrides=("inversion.iterations=2",), pixels_only=True),
    )
    shown = {fact["name"]: fact for fact in facts(results)}
    assert (shown["clip norm"]["value"], shown["noise_multiplier"]["value"]) == ("0.5", "3")
    assert shown["noise_multiplier"]["note"].startswith("noise on a batch's sum divided by the clip norm C = 0.5 (each")
    assert "σ·C/batch_size" in shown["sigma"]["note"]
    counted = experiment.data.test_targets.bincount()
    assert results.setup.guessing_accuracy == int(counted.max()) / int(counted.sum()) > 0.1
    assert "15.3\N{NO-BREAK SPACE}%" in shown["test accuracy"]["note"]
    assert not any("no clip" in sentence for sentence in results.warnings)
