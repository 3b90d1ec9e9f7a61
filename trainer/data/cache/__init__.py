"""Shards read through a folder of the node, which is filled from an object store while training begins.

    worker  -- samples it needs next -->  filler  -- whole shards -->  folder of the node
    reader  <-- mapped shards, once they are there --------------------------'
    reader  <-- single images, until then --  object store

The order of samples does not change, so a run may continue with or without the cache, and in another
zone. Each image is verified by the checksum in the index, regardless of its source.

Why single images: an epoch is a shuffle of all samples, so the first batch needs images of every shard,
and would wait for the whole data set. Why a separate process: a download competes with the training for
the interpreter lock.
"""
