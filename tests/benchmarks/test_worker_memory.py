"""The resident memory of a worker, measured in its own process, and its summary."""

from benchmarks.worker_memory import lines, measure_in_a_process, summarize


def test_a_step_raises_the_peak_of_a_process() -> None:
    arguments = ["--model", "resnet18", "--size", "32", "--global-batch", "16"]

    sample = measure_in_a_process(arguments, ("live", "1/8"))

    assert 0 < sample["started"] < sample["peak"]


def test_the_ratio_divides_the_median_peaks() -> None:
    small, large = (
        [{"started": 1024, "peak": peak * 1024} for peak in peaks]
        for peaks in ((90, 100, 900), (104, 105, 106))
    )

    report = summarize({("live", "1/8"): small, ("live", "8/8"): large})

    assert report["live"]["peak 1/8"] == 100.0
    assert report["live"]["ratio"] == 1.05
    assert list(lines(report))[1].split() == ["live", "1.0", "100.0", "105.0", "1.050"]
