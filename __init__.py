"""dpfl-audit: what does a differentially private federated learning setup leak? Claimed, proven, demonstrated."""

__version__ = "0.1.0"
