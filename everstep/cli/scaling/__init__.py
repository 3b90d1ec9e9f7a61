"""`everstep scale`: the time of an epoch with one, two, three replicas, beside the ideal."""
