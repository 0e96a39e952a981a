"""`audit choose`: many settings of one config trained, attacked and priced; the one that keeps what is asked of it,
attacked again.

    space.py what may vary → study.py asks for points → trial.py prices, trains and attacks a batch of them
    → decide.py orders those that keep the goals (goals.py) → again.py attacks the best anew with fresh seeds
    → outputs.py, page.py
"""
