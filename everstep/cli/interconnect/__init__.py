"""`everstep nccl-test`: where its processes run, and how its results are shown."""
