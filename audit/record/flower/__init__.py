"""Trainings of Flower apps, recorded with the app's own code untouched: a mod on the client, a wrapper on the server.

Nothing here imports flwr before it is called.
"""
