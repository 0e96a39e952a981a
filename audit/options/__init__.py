"""What a command, and the Python function beside it, can be asked: a frozen dataclass each, every option once.

    option.py (a field → an option of click, and a keyword of a function) ← attack.py, train.py, study.py, …

Nothing heavy is imported: `audit --help` reads all of it.
"""
