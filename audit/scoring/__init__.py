"""Scores of evidence: from here on the truth may be looked at."""

from .score import ScoredAttacks, score

__all__ = ["ScoredAttacks", "score"]
