"""What a training of the demo shows, in a sentence or two: accuracy, what an attacker gets, and what is proven."""

from __future__ import annotations

from ..results.format import Results
from .words import at_most, observer, percent, terms


def answer(results: Results) -> str:
    """Accuracy beside what a constant answer gets, the leak, and the proven ε where there is a useful one."""
    setup, verdict = results.setup, results.verdict
    accuracy, guessing = setup.test_accuracy, setup.guessing_accuracy
    sentences = [f"{setup.title.capitalize()}."]
    if accuracy is not None and guessing is not None:
        sentences.append(f"Accuracy {percent(accuracy)} (guessing: {percent(guessing)}).")
    sentences.append(verdict.sentences[0])
    row = next((row for row in results.epsilon if row.asked), None)
    if row is not None and row.proven is not None and verdict.proof == "proven":
        place = f"per {row.unit} towards {observer(row.observer)} ({terms(row)})"
        sentences.append(f"Proven: ε of {at_most(row.proven)} {place}.")
    return " ".join(sentences)
