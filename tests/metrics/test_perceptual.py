"""LPIPS: known answers with the real weights, loading without a network, and saying so where there are no weights."""

from __future__ import annotations

import lpips
import pytest
import torch
from dpfl_audit.metrics import perceptual
from dpfl_audit.metrics.leakage import score_images
from dpfl_audit.metrics.perceptual import NotMeasured, Perceptual, load


def test_known_answers_of_torchmetrics_for_squeeze(shared_data):
    metric = load("squeeze", shared_data("weights/lpips_backbones"))
    rng = torch.Generator().manual_seed(42)
    a, b = (torch.rand(2, 3, 100, 100, generator=rng) for _ in range(2))
    assert metric.distance(a, b).tolist() == pytest.approx([0.1024, 0.0938], abs=5e-5)


@pytest.mark.parametrize("net", ["alex", "squeeze"])
def test_distance_is_zero_for_identical_images_and_grows_with_noise(shared_data, net):
    metric = load(net, shared_data("weights/lpips_backbones"))
    rng = torch.Generator().manual_seed(0)
    a = torch.nn.functional.interpolate(torch.rand(4, 3, 6, 6, generator=rng), size=32, mode="bicubic").clamp(0, 1)
    noise = torch.randn(a.shape, generator=rng)
    values = [metric.distance(a, (a + s * noise).clamp(0, 1)).mean().item() for s in (0, 0.05, 0.1, 0.2, 0.4)]
    assert values[0] == 0 and values == sorted(values) and values[-1] > 0.05
    grey = a[:, :1]
    assert torch.allclose(
        metric.distance(grey, grey.flip(0)),
        metric.distance(grey.expand(-1, 3, -1, -1), grey.flip(0).expand(-1, 3, -1, -1)),
    )


@pytest.mark.parametrize("net", ["alex", "squeeze"])
def test_weights_by_hand_are_those_lpips_would_use(tmp_path, monkeypatch, net):
    with torch.random.fork_rng(), pytest.warns(UserWarning, match="deprecated"):
        reference = lpips.LPIPS(net=net, pnet_rand=True, verbose=False)
    weights = {"features." + name.split(".", 1)[1]: value for name, value in reference.net.state_dict().items()}
    weights["classifier.1.weight"] = torch.zeros(3)  # a whole state dict holds more than is needed
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    file = tmp_path / "hub" / "checkpoints" / perceptual.WEIGHTS[net].rsplit("/", 1)[1]
    torch.save(weights, file)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    state = torch.get_rng_state()
    metric = load(net)
    assert torch.equal(torch.get_rng_state(), state)  # building a network draws no number of anybody else's
    assert isinstance(metric, Perceptual) and metric.source == str(file)
    a, b = torch.rand(2, 3, 3, 33, 40, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(a, b, normalize=True).flatten()
    assert torch.allclose(metric.distance(a, b).float(), expected)
    side = perceptual.SMALLEST[net]
    assert metric.distance(*torch.rand(2, 1, 3, side, side)).isfinite().all()
    with pytest.raises(ValueError, match=f"{side}×{side}"):
        metric.distance(*torch.rand(2, 1, 3, side - 1, side))
    assert "2 channels" in metric.unable((1, 2, 40, 40))


def test_without_weights_it_says_what_is_missing_and_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for answer in (load("alex"), load("alex", tmp_path)):
        assert isinstance(answer, NotMeasured)
        assert "alexnet-owt-7be5be79.pth" in answer.reason and "https://download.pytorch.org" in answer.reason


def test_lpips_is_among_the_scores_where_there_is_a_network(shared_data):
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    row = score_images(images, images.flip(0) * 0.5, perceptual=load("squeeze", shared_data("weights/lpips_backbones")))
    assert row["lpips"] > 0 and row["controls"]["gray"]["lpips"] > 0 and "lpips" not in row["not_measured"]


def test_bad_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match="do not exist"):
        load("alex", tmp_path / "nowhere.pth")
    with pytest.raises(ValueError, match="'vgg19'"):
        load("vgg19")
    torch.save({"features.0.weight": torch.zeros(2)}, tmp_path / "wrong.pth")
    with pytest.raises(ValueError, match=r"features\.0\.weight"):
        load("squeeze", tmp_path / "wrong.pth")
    (tmp_path / "text.pth").write_text("not weights")
    with pytest.raises(ValueError, match=r"text\.pth"):
        load("squeeze", tmp_path / "text.pth")


def test_alexnet_is_used_where_there_are_both_as_most_papers_report_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    answer = perceptual.find()
    assert isinstance(answer, NotMeasured) and "`audit weights`" in answer.reason
    for net in ("squeeze", "alex"):
        file = perceptual.cache() / f"{perceptual.ARCHITECTURES[net]}-features.pth"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        assert perceptual.find() == perceptual.find(file) == perceptual.find(file.parent) == (net, file)
    with pytest.raises(ValueError, match="do not exist"):
        perceptual.find(tmp_path / "nowhere")
