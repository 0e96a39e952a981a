"""What makes the two worlds, with a canary and without: a federation of a setup (federation/), a function
(function.py), a training by DP-SGD (dpsgd.py) or by Opacus (opacus.py), a Flower app (flower/).

`two_worlds/` says what their draws show.
"""
