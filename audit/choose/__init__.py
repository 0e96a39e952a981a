"""`audit choose`: many settings of one config trained, attacked and priced; the one that keeps what is asked of it,
attacked again.

    opening.py what is asked (space.py what may vary) → carry_out.py asks for points → trial.py prices, trains and
    attacks a batch of them
    → decide.py orders those that keep the goals (goals.py) → again.py attacks the best anew with fresh seeds
    → study.py what it came to → outputs.py, page.py
"""
