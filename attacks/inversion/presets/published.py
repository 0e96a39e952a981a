"""Settings of published attacks, by name.

Papers that work in normalised space (x − μ)/s are translated to pixels with s = .25 (CIFAR's): a step of lr there is
lr·s here, and as the total variation is 1/s times larger there, tv·(…) becomes tv/s. All objectives here are pure
numbers (`objective.Matching`), so one lr and one tv serve them all: on `photos` (3×1024 network, 25 images, 150
iterations, lr .1, tv .01) cosine gives 42.2 dB, both Euclidean ones 45.8; after a clip to .4 of the norm cosine 41.7,
euclidean 40.8, euclidean-naive 15.6.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..attack import Inversion
from ..match.features import FEATURES
from ..read.surrogate import RATE


@dataclass(frozen=True)
class Published:
    """An attack's settings and where they come from. differs: what is not as in the source, "" if nothing known."""

    settings: Inversion
    source: str
    differs: str = ""


PRESETS: dict[str, Published] = {
    "default": Published(
        Inversion(),
        "ours: signed Adam with few, large steps",
        "the settings under which 300 iterations give what 2,500 small ones give",
    ),
    "noise-aware": Published(
        Inversion(objective="euclidean", tv="noise-aware"),
        "ours: the likelihood's objective under Gaussian noise (Balunović et al. 2022, arXiv:2111.04706) with a prior"
        " that grows with the noise",
        "on `photos` 5 to 8 dB better than the default where noise is more than half of the observed energy",
    ),
    "spectrum-prior": Published(
        Inversion(objective="euclidean", tv=0.0, iterations=60, lr=0.2, learned=True),
        "ours: the likelihood of what was sent, and the auxiliary records' spectrum for a prior (a Wiener filter),"
        " images averaged over what is uncertain of them",
        "only where noise is of known size",
    ),
    "thesis": Published(
        Inversion(iterations=2500, lr=0.01, tv=0.01), "THESIS chapter 4, eq. 2.14: cosine, 2,500 steps of .01, TV .01"
    ),
    "thesis-euclidean": Published(
        Inversion(objective="euclidean-naive", iterations=2500, lr=0.01, tv=0.01),
        "THESIS chapter 4, eq. 4.12: Euclidean distance, 2,500 steps of .01, TV .01",
        "the distance is divided by the observed value's squared norm",
    ),
    "inverting-gradients": Published(
        Inversion(iterations=4800, lr=0.025, tv=0.04),
        "Geiping et al. 2020 (arXiv:2003.14053), Table 1, LeNet: cosine, signed Adam .1, 4,800 iterations, TV .01, in"
        " normalised space",
        "the best iterate is kept, not the last",
    ),
    "dlg": Published(
        Inversion(objective="euclidean-naive", optimiser="lbfgs", iterations=6000, tv=0.0),
        "Zhu et al. 2019 (arXiv:1906.08935): Euclidean distance, L-BFGS, 300 × 20 iterations",
        "labels known instead of optimised; pixels kept in [0, 1]; Wolfe line search; distance divided by the observed"
        " squared norm",
    ),
    "idlg": Published(
        Inversion(objective="euclidean-naive", optimiser="lbfgs", iterations=6000, tv=0.0, labels="inferred"),
        "Zhao et al. 2020 (arXiv:2001.02610): DLG with the label read off the classifier's gradient",
        "labels of several images, or of an update, by the methods of `labels.infer`; the rest as dlg",
    ),
    "gradinversion": Published(
        Inversion(
            objective="euclidean-naive",
            optimiser="adam",
            iterations=20_000,
            lr=0.025,
            tv=1e-4,
            restarts=8,
            consensus=0.01,
            batch_statistics=0.1,
            running_statistics=0.1,
            labels="inferred",
        ),
        "Yin et al. 2021 (arXiv:2104.07586): Euclidean distance, Adam, BatchNorm statistics, eight starts drawn to"
        " their mean, labels from the classifier's gradient",
        "no weight on pixels' size, no Langevin noise; statistics in shares of their own size, the mean over layers for"
        " the sum, and the batch's own where they are told; starts matched within labels instead of registered; labels"
        " by the methods of `labels.infer`, so that they may repeat; of the weights, beside a distance that is divided"
        " by the observed squared norm, only the statistics' is theirs in number",
    ),
    "see-through": Published(
        Inversion(
            objective="euclidean-naive",
            optimiser="adam",
            iterations=20_000,
            lr=0.025,
            tv=1e-4,
            batch_statistics=0.1,
            running_statistics=0.1,
            labels="inferred",
        ),
        "Yin et al. 2021 as JonasGeiping/breaching has it (seethroughgradients.yaml): one start, no group of starts",
        "as gradinversion",
    ),
    "sme": Published(
        Inversion(
            optimiser="adam", iterations=1000, lr=0.25, tv=0.01, along=0.5, along_rate=RATE, manners=("one-round",)
        ),
        "Zhu et al. 2023 (ICML, surrogate model extension): the gradient read between the weights before and after"
        " local training, at a place that is learned from half-way on; cosine, Adam 1 in normalised space, 1,000"
        " iterations",
        "the total variation's weight is ours",
    ),
    "bayes": Published(
        Inversion(objective="euclidean", optimiser="adam", iterations=1000, tv="noise-aware"),
        "Balunović et al. 2022 (arXiv:2111.04706): the likelihood of what was sent under its noise, the distance"
        " squared for Gaussian noise",
        "of Laplace noise the objective absolute is the likelihood's; the prior is our total variation by the noise;"
        " the clip is modelled",
    ),
    "analytic": Published(
        Inversion(iterations=1, exact=True, features=FEATURES),
        "what equations alone give, with next to nothing optimised: images behind a first linear layer with ReLU"
        " (SPEAR, arXiv:2403.03945), features before the classifier (R-GAP, arXiv:2010.07733, its first layer)",
        "columns by planes instead of SPEAR's draws; where nothing is determined the pictures are a start",
    ),
    "fedavg-dimitrov": Published(
        Inversion(objective="absolute", tv=0.1, iterations=400, labels="known", simulated=100, manners=("one-round",)),
        "Dimitrov et al. 2022 (arXiv:2206.12395): local training simulated, images of every epoch apart, their means"
        " tied, matched and averaged in the end; 400 iterations",
        "begins with the update read as one gradient instead of noise; signed Adam; their code's L1 distance, the"
        " tables' is a Euclidean one weighted by layer; pixels kept in [0, 1]; batches in a new order every epoch",
    ),
    "fedavg-span": Published(
        Inversion(
            objective="absolute",
            tv=0.1,
            iterations=400,
            along=0.5,
            span=5.0,
            simulated=60,
            reorder=True,
            manners=("one-round",),
        ),
        "ours: the gradient read half-way through training, and every image asked for a first linear layer's input in"
        " the span of the update's rows; then local training simulated in a new order at every iteration",
    ),
}
