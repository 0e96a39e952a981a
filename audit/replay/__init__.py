"""A private training run again on a neighbour of its data, with the same coins and every noisy output held: what noise
is added to may move by its declared bound, and all else that leaves must be equal. A failure is a fact; no statistics.

Composition of mechanisms needs both of every one of them, for all coins and all earlier outputs (Re:cord-play,
arXiv:2602.17454). One pair of data sets on which it fails refutes the proof. A pass says nothing of other pairs, of the
noise or of the accounting.
"""
