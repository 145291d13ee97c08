"""The number of a cluster's replicas, the time until they are ready, and waits of requests.

``python -m bench capacity`` prints the tables of docs/capacity.md; with ``--ray`` it compares the
simulation with two local nodes of Ray.
"""
