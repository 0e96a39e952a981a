"""Sentences for people, by subject. What they say is decided elsewhere."""
