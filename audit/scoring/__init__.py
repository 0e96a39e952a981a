"""Scores of evidence: from here on the truth may be looked at."""

from .score import LEFT_OUT, Depth, ScoredAttacks, score

__all__ = ["LEFT_OUT", "Depth", "ScoredAttacks", "score"]
