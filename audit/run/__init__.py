"""`audit run`: a line of stages, each a function of the ones before.

    open (opening.py, choosing.py) → plan (planning.py) → attack (evidence.py) → score (scoring/) → price (pricing.py)
    → judge (judging.py) → write (stages.py, which calls them all)

Choose, plan and attack get the public half of a setup alone: what an observer sees, and knowledge/ (public_half.py).
The auditor's half (truth/ and auditor/) enters at the stage of scores.
"""

from .choosing import costs_of_inversion
from .job import Job
from .opening import asked_of, opened
from .options import RunOptions
from .pricing import check_gates
from .stages import carry_out, carry_out_together, run

__all__ = [
    "Job",
    "RunOptions",
    "asked_of",
    "carry_out",
    "carry_out_together",
    "check_gates",
    "costs_of_inversion",
    "opened",
    "run",
]
