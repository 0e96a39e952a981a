"""What an observer got in two worlds becomes scores, and scores become a lower bound on ε.

    likelihood.py, vector_scores.py (what was seen → scores) → draws.py, sequential.py (how many draws)
    → estimators/ (scores → ε) → measured.py (the numbers of an entry)

What makes the worlds is in `worlds/`.
"""
