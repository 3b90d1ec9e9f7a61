"""Measurement of the network between the nodes of a group: collectives of increasing sizes, and their transport.

`benchmark` is the program of each process; `everstep nccl-test` starts it and shows its results. It needs PyTorch
and the standard library only, so that it runs in any image: the command sends these sources along.
"""
