"""Trainings that somebody else's code did: recorded as they run, or read from a dump, into a setup like any other.

    broadcast, upload ──▶ rounds on disk ──▶ what is declared, beside what was recorded ──▶ a setup folder

What the owner declares of clip, noise and sampling is a release like any other. It is priced as declared; what raw
values, or two runs of a round, contradict proves nothing.
"""
