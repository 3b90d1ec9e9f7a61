"""`everstep scale`: the time of an epoch with one, two, three replicas, compared with linear scaling."""
