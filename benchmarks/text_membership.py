"""Whose sentences a message is of, by projection residuals (ProjRes): one full gradient of all-MiniLM-L6-v2, by batch
and noise.

    python benchmarks/text_membership.py FOLDER_OF_MODEL in_domain_train.tsv [--batches 8 16 32] [--repeats 3]

The model and the sentences: as `text.py`. Members are the batch, the others as many sentences of the same file; noise
is given as its length over the gradient's. The control asks the same of a gradient of other sentences.
"""

from __future__ import annotations

import torch
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.attacks.base import Knowledge, MembershipScores
from dpfl_audit.defenses.data.vocabulary import vocabulary_of
from dpfl_audit.metrics.membership import auc
from text import LENGTH, encoder, gradient_of, of_model_and_sentences, sentences_of, view_of

NOISES = (0.0, 0.01, 0.1, 1.0, 3.0)


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = sentences_of(given.sentences, given.model, LENGTH)
    words = vocabulary_of(data.description)
    assert words is not None
    module, layout, start = encoder(given.model, data)
    (attack,) = ATTACKS["membership-projection"].make({}, False, "cpu")
    print("| batch | tokens | " + " | ".join(f"noise {rho:g}" for rho in NOISES) + " | control |")
    print("|" + "---|" * (3 + len(NOISES)), flush=True)
    for batch in given.batches:
        tokens, areas = 0.0, [0.0] * (len(NOISES) + 1)
        for k in range(given.repeats):
            own, others, strangers = torch.arange(3 * k * batch, 3 * (k + 1) * batch).split(batch)
            asked = torch.cat([own, others])
            knowledge = Knowledge(
                {},
                torch.zeros(0),
                torch.zeros(0),
                candidate_inputs=data.inputs[asked],
                candidate_targets=data.targets[asked],
                candidate_ids=torch.arange(2 * batch),
            )
            tokens += int((data.inputs[own] >= 0).sum()) / given.repeats
            for place, (rows, rho) in enumerate([*((own, rho) for rho in NOISES), (strangers, 0.0)]):
                value = gradient_of(module, layout, start, data, rows)
                noise_std = rho * float(value.norm()) / len(value) ** 0.5
                value = value + noise_std * torch.randn(value.shape, generator=torch.Generator().manual_seed(k))
                view = view_of(module, layout, start, value, batch, data, words, noise_std)
                found = attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0)
                assert isinstance(found, MembershipScores)
                scores = found.scores
                areas[place] += auc(scores[:batch].tolist(), scores[batch:].tolist())[0] / given.repeats
        print(f"| {batch} | {tokens:.0f} | " + " | ".join(f"{area:.3g}" for area in areas) + " |", flush=True)


if __name__ == "__main__":
    main()
