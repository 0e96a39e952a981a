"""The commands of `audit`, one a file: its words and options, what it calls, what it prints. `cli.py` lists them.

A command imports what it calls when it is called: `audit --help` does not pay for torch. What several share lies in
`options.py`, `printing.py` (JSON, progress, who does the work) and `gated.py` (gates and trackers of results).
"""
