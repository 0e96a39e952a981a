"""How much of sentences comes back from an update of several local steps: all-MiniLM-L6-v2 with a classifier.

    python benchmarks/text_steps.py FOLDER_OF_MODEL in_domain_train.tsv [--batch 4] [--repeats 5]

The model and the sentences: as `text.py`. Every step is of the same batch; a row of one step is the ceiling of what
several can tell. Adam starts with no memory, as a client that trains anew each round.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, View
from dpfl_audit.attacks.text.attack import TextInversion
from dpfl_audit.defenses.data.vocabulary import vocabulary_of
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.local import LocalJob, LocalTraining
from dpfl_audit.metrics.text import TextsBeside, counted_words, score_texts
from text import LENGTH, encoder, of_model_and_sentences, sentences_of, view_of

SETTINGS = (
    ("sgd", 0.01, 1),
    ("sgd", 0.01, 3),
    ("sgd", 0.1, 3),
    ("sgd", 0.01, 10),
    ("adam", 1e-4, 1),
    ("adam", 1e-4, 3),
)
SCORES = ("words_told", "words_wrong", "rouge1", "rouge2", "whole")


def main() -> None:
    parser = of_model_and_sentences(__doc__)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = sentences_of(given.sentences, given.model, LENGTH)
    words = vocabulary_of(data.description)
    assert words is not None
    module, layout, start = encoder(given.model, data)
    others = [counted_words(words.spoken(record)) for record in data.auxiliary_inputs.tolist()]
    print("| optimiser | lr | steps | words told | wrong | ROUGE-1 | -2 | whole | others' ROUGE-1 |\n|" + "---|" * 9)
    for optimiser, lr, steps in SETTINGS:
        total = torch.zeros(len(SCORES) + 1)
        for k in range(given.repeats):
            own = torch.arange(k * given.batch, (k + 1) * given.batch)
            training = LocalTraining(optimiser=optimiser, lr=lr, batch_size=given.batch, steps=steps, epochs=None)
            batches = own.repeat(steps, 1)
            job = LocalJob(module, layout, training, start, data.inputs, data.targets, batches, "update", 0.1)
            view = view_of(module, layout, start, looped([job])[0].value, given.batch, data, words)
            facts = PublicFacts("fedavg", "update", optimiser, lr, given.batch, steps, None, noise_std=0.0)
            found = read(
                replace(view, facts=facts, messages=(view.messages[0], replace(view.messages[1], kind="update")))
            )
            said = [[counted_words(words.spoken(r)) for r in x.tolist()] for x in (data.inputs[own], found.texts)]
            told = counted_words(words.spoken(found.words.tolist()))
            scores = score_texts(TextsBeside(said[0], [], others), said[1], told)
            control = scores["controls"]["other_texts"]["rouge1"]
            total += torch.tensor([*(scores[name] or 0.0 for name in SCORES), control]) / given.repeats
        figures = " | ".join(f"{value:.3g}" for value in total.tolist())
        print(f"| {optimiser} | {lr:g} | {steps} | {figures} |", flush=True)


def read(view: View):
    """What the attack reads of the only message."""
    attack, nothing = TextInversion(), Knowledge({}, torch.zeros(0), torch.zeros(0))
    return attack.run_part(attack.parts(view, nothing)[0], view, nothing, 0)


if __name__ == "__main__":
    main()
