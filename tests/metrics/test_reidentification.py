"""The line-up: chance is what the null hypothesis gives, controls stay there, and a recovered image is picked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dpfl_audit.metrics.image import match
from dpfl_audit.metrics.reidentification import Reidentified, line_up, picked_from_pool
from tiers import quick


def reidentified(
    originals: torch.Tensor, guesses: torch.Tensor, others: torch.Tensor, labels=None, of_guesses=None, of_others=None
) -> Reidentified:
    return line_up(originals, others, labels, of_others).pick(guesses, of_guesses)


def smooth(n: int, seed: int, size: int = 12) -> torch.Tensor:
    """Images (n, 3, size, size) in [0, 1] with structure, as photographs have."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 4, 4, generator=rng)
    return torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")


def test_recovered_images_are_picked_in_any_order_and_contrast():
    originals, distractors = smooth(10, 0), smooth(90, 1)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(2))
    picked = reidentified(originals, 0.4 + 0.2 * originals[order], distractors)
    assert (picked.share, picked.hits, picked.picks) == (1, 10, tuple(order.tolist()))
    assert picked.chance == pytest.approx(10 / 100)


def test_an_original_picked_twice_counts_once():
    originals = smooth(4, 0)
    picked = reidentified(originals, originals[[1, 1, 1, 1]], smooth(6, 1))
    assert picked.picks == (1, 1, 1, 1) and picked.share == 0.25


@pytest.mark.parametrize("seed", range(3))
def test_picks_are_those_of_a_slow_reference(seed):
    originals, distractors = smooth(5, seed), smooth(20, seed + 10)
    noise = torch.rand(originals.shape, generator=torch.Generator().manual_seed(seed))
    guesses = 0.5 * originals + 0.5 * noise
    gallery = torch.cat([originals, distractors]).flatten(1).double().numpy()
    for guess, pick in zip(guesses.flatten(1).double().numpy(), reidentified(originals, guesses, distractors).picks):
        best = max(range(25), key=lambda k: np.corrcoef(guess, gallery[k])[0, 1])
        assert pick == (best if best < 5 else -1)


@pytest.mark.parametrize("kind", ["noise", "one image"])
def test_without_information_the_average_share_is_the_one_derived_and_at_most_chance(kind):
    n, total, rng = 8, 40, torch.Generator().manual_seed(5)
    gallery = smooth(total, 3)
    guesses = torch.rand(n, 3, 12, 12, generator=rng) if kind == "noise" else smooth(1, 4).expand(n, -1, -1, -1)
    shares, different = [], len(set(reidentified(gallery, guesses, torch.zeros(1, 3, 12, 12)).picks))
    for _ in range(400):  # the null hypothesis: any n of the images are the originals
        order = torch.randperm(total, generator=rng)
        picked = reidentified(gallery[order[:n]], guesses, gallery[order[n:]])
        shares.append(picked.share)
    assert picked.chance == n / total
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(different / total, abs=4 * error)
    assert np.mean(shares) <= picked.chance + 4 * error


@pytest.mark.few(2)
@pytest.mark.parametrize(("picks", "share"), [(8, 0.2), (24, 0.6), (40, 1.0), (60, 1.0)])
def test_chance_counts_every_reconstruction(picks, share):
    """Who names `picks` different images of 40, whichever are the 8 originals, hits that share of them on average."""
    gallery, rng = smooth(40, 3), torch.Generator().manual_seed(6)
    guesses = gallery[torch.arange(picks) % 40]
    shares = []
    for _ in range(400):
        order = torch.randperm(40, generator=rng)
        picked = reidentified(gallery[order[:8]], guesses, gallery[order[8:]])
        shares.append(picked.share)
    assert picked.chance == pytest.approx(share)
    assert np.mean(shares) == pytest.approx(share, abs=4 * np.std(shares) / np.sqrt(len(shares)) + 1e-9)


def test_knowing_the_label_earns_nothing_although_the_matching_is_then_right_by_construction():
    originals, labels = smooth(20, 0), torch.arange(20)
    distractors, of_distractors = smooth(20 * 9, 1), torch.arange(20).repeat(9)
    noise = torch.rand(originals.shape, generator=torch.Generator().manual_seed(2))
    assert match(originals, noise, labels, labels) == [(k, k) for k in range(20)]
    picked = reidentified(originals, noise, distractors, labels, labels, of_distractors)
    assert picked.chance == pytest.approx(0.1)
    assert picked.interval[0] <= 0.1 <= picked.interval[1]
    # a guess that is only the class mean, which the label alone gives
    means = torch.stack([distractors[of_distractors == label].mean(0) for label in labels])
    picked = reidentified(originals, means, distractors, labels, labels, of_distractors)
    assert picked.interval[0] <= 0.1


def test_chance_by_label_by_hand():
    images = smooth(9, 0)
    labels, of_guesses, others = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 2, 2, 2, 2])
    picked = reidentified(images[:3], images[:3], images[3:], labels, of_guesses, others)
    # label 0: two originals among four, two picks: 2·2/4; label 1 has no distractor: 1·1/1; of three originals
    assert picked.chance == pytest.approx((1 + 1) / 3) and picked.share == 1


def test_flat_and_nearly_equal_images_count_against_the_attack_and_copies_do_not():
    originals, distractors = smooth(3, 0), smooth(5, 1)
    assert reidentified(originals, torch.full((3, 3, 12, 12), 0.5), distractors).picks == (-1, -1, -1)
    nearly = originals[:1] * 0.999
    assert reidentified(originals, originals, torch.cat([distractors, nearly])).picks == (-1, 1, 2)
    picked = reidentified(originals, originals, torch.cat([distractors, originals[:1]]))
    # Nine images, three of them originals; who picks three finds 2 + 1 + 1 of the nine at best.
    assert picked.picks == (0, 1, 2) and picked.chance == pytest.approx(4 / 9)


@pytest.mark.parametrize("m", quick([1, 2, 3, 9], 2))
def test_chance_holds_where_images_occur_more_than_once(m):
    """Nine images of four kinds; two of them are the originals, by lot. Guesses are the kinds with most copies."""
    every, label = smooth(4, 0)[[0, 0, 0, 0, 1, 1, 2, 2, 3]], torch.zeros(9, dtype=torch.long)
    guesses, rng, shares, alone = every[[0, 4, 6, 8]][:m], torch.Generator().manual_seed(1), [], []
    for _ in range(600):
        order = torch.randperm(9, generator=rng)
        line_up = reidentified(every[order[:2]], guesses, every[order[2:]])
        picked = picked_from_pool(every[order[:1]], label[:1], guesses, every[order[1:]], label[1:])
        shares.append(line_up.share)
        alone.append(picked.hits)
    assert line_up.chance == picked.chance == sum((4, 2, 2, 1)[:m]) / 9
    assert np.mean(shares) == pytest.approx(line_up.chance, abs=0.06)
    assert np.mean(alone) == pytest.approx(line_up.chance, abs=0.08)


def test_bad_input_is_refused():
    images = smooth(3, 0)
    with pytest.raises(ValueError, match="at least one of each"):
        reidentified(images, images, images[:0])
    with pytest.raises(ValueError, match="must be like the originals"):
        reidentified(images, images, images[:, :1])
    with pytest.raises(ValueError, match="or for none"):
        reidentified(images, images, images, torch.arange(3))


# --- out of an original's own pool


@pytest.mark.few(1)
@pytest.mark.parametrize("m", [1, 3, 30])
def test_whatever_was_made_without_the_original_picks_it_no_more_often_than_its_chance(m):
    """The original is any of D + 1 images with equal probability; reconstructions are fixed before it is drawn."""
    gallery, rng = smooth(11, 0), torch.Generator().manual_seed(1)
    guesses = torch.cat([gallery[:m], smooth(max(0, m - 11), 2)])  # the best there are: images of the gallery itself
    hits, trials, label = 0, 600, torch.zeros(1, dtype=torch.long)
    for _ in range(trials):
        order = torch.randperm(11, generator=rng)
        picked = picked_from_pool(gallery[order[:1]], label, guesses, gallery[order[1:]], label.expand(10))
        hits += picked.hits
    assert picked.chances == (min(m, 11) / 11,) and picked.candidates == 10
    assert hits / trials == pytest.approx(min(m, 11) / 11, abs=4 * np.sqrt(0.25 / trials))


def test_only_images_of_the_same_label_are_in_the_line_up():
    originals, pool = smooth(2, 0), smooth(6, 1)
    labels = torch.tensor([0, 1])
    picked = picked_from_pool(originals, labels, originals.flip(0), pool, torch.tensor([0, 0, 0, 0, 1, 1]))
    assert (picked.hits, picked.n, picked.candidates) == (2, 2, 2)
    assert picked.chances == (2 / 5, 2 / 3) and picked.chance == pytest.approx((2 / 5 + 2 / 3) / 2)
    assert picked_from_pool(originals, labels, originals, pool, torch.full((6,), 7)) is None
    grey = torch.full_like(originals, 0.5)
    assert picked_from_pool(originals, labels, grey, pool, torch.tensor([0, 0, 0, 0, 1, 1])).hits == 0


def test_where_every_other_image_is_a_copy_nothing_rivals_the_originals():
    """Data of few kinds: whoever draws one kind has drawn its copies, which chance counts."""
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    found = reidentified(images, images, images.repeat(5, 1, 1, 1))
    assert found.share == 1 and found.chance == pytest.approx(1)
