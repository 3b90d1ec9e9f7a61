"""The job for which a capacity history is replayed."""

from everstep.capacity.job import LIVE, JobModel, Prices
from everstep.goodput import assumptions


def test_the_assumptions_add_boot_and_idle_times_to_the_assumptions_of_the_report() -> None:
    job = JobModel(work=3600.0, machines=2, prices=Prices(spot=1.0, on_demand=3.0))

    boot, idle, *costs = job.assumptions()

    assert boot.startswith("boot 300 s: assumed")
    assert idle.startswith("idle 600 s: default of cluster.autoscaling.scaleDownMinutes")
    assert costs == [*assumptions(LIVE), "machines are lost without notice"]
