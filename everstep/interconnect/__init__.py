"""Measurement of the network between the nodes of a group: collectives of increasing sizes, and their transport.

`benchmark` is the program of each process; `everstep nccl-test` starts it and shows its results. The program needs only
PyTorch and the standard library, so that it runs in any image: the command adds these sources to the pods.
"""
