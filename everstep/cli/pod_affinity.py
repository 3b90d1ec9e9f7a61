"""The pod affinity of a job's workers, for the pods of jobs that are derived from it."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from everstep.catalog.names import JOB_NAME_LABEL


def relabel(affinity: Mapping[str, Any], job: str) -> dict[str, Any]:
    """Return the affinity for the pods of another job: its required terms select these pods instead of the workers."""
    relabeled = deepcopy(dict(affinity))
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = (relabeled.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        for term in terms or ():
            labels = (term.get("labelSelector") or {}).get("matchLabels") or {}
            if JOB_NAME_LABEL in labels:
                labels[JOB_NAME_LABEL] = job
    return relabeled
