"""A Flower app's own client function, with and without a canary.

    the app ──▶ what its server sends first ──▶ the client's own training ──▶ its mods, with noise drawn anew ──▶ seen

Nothing here imports flwr before it is called.
"""
