"""Times between the notice of a spot interruption and the end of the machine, in seconds.

    notice ... eviction (SIGTERM) ... worker's own deadline ... SIGKILL ... machine stops
                                                       EXIT        NODE_MARGIN

The grace period in the configuration is an upper bound. The time that really remains depends on
when the node is drained; the spot watcher annotates the workers with the machine's deadline, and
each worker leaves within the shorter of the two.
"""

NOTICE_SECONDS = {"aks": 30, "eks": 120}
"""Kind of cluster -> time from the notice to the interruption: Azure's Preempt, EC2's instance-action."""

GRACE_SECONDS = {"aks": 25, "eks": 110}
"""Kind of cluster -> default of a worker's termination grace period."""

NODE_MARGIN_SECONDS = 2.0
"""Time from the end of the last pod to the end of the machine, for writes and unmounts."""

EXIT_SECONDS = 5
"""Time from a worker's own deadline to its SIGKILL."""

CLOUD_DRAIN_SHARE = 1 / 6
"""Share of the notice for which the watcher leaves the drain to a cloud that promises one: 5 of Azure's 30 s."""

CLOUD_DRAIN_SECONDS = 20.0
"""Upper bound of that share: 20 of AWS's 120 s."""

WORKER_NOTIFICATION_SECONDS = 2.0
"""Time for a worker's annotation to appear in its file; then the worker is evicted in any case."""
