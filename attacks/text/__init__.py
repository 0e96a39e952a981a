"""Sentences read out of what was sent of a language model (DAGER, Petrov et al. 2024, arXiv:2405.15586, and beyond)."""
