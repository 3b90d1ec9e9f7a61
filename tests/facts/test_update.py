"""Rows of instance types from the response of EC2's DescribeInstanceTypes."""

from typing import Any

from facts import update


def description(architecture: str, **gpu: Any) -> dict[str, Any]:
    """Return the description of a type with 4 vCPUs, 16 GiB and, if fields are given, one kind of GPU."""
    gpus = {"GpuInfo": {"Gpus": [{**gpu, "MemoryInfo": {"SizeInMiB": 24_576}}]}} if gpu else {}
    return {
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16_384},
        "ProcessorInfo": {"SupportedArchitectures": ["i386", architecture]},
        "NetworkInfo": {"MaximumNetworkCards": 2, "EfaInfo": {"MaximumEfaInterfaces": 1}},
        **gpus,
    }


def test_types_that_run_linux_have_a_row_in_the_order_of_their_names() -> None:
    types = {
        "m6i.xlarge": description("x86_64"),
        "g5.xlarge": description("x86_64", Count=1, Manufacturer="NVIDIA", Name="A10G"),
        "mac2.metal": description("arm64_mac"),
    }

    assert list(update.instance_types(types).items()) == [
        ("g5.xlarge", [4, 16_384, "x86_64", 2, 1, 1, "NVIDIA", "A10G", 24_576, 1.0]),
        ("m6i.xlarge", [4, 16_384, "x86_64", 2, 1]),
    ]


def test_a_part_of_a_gpu_counts_as_a_gpu_with_its_share() -> None:
    part = description(
        "x86_64",
        Count=0,
        LogicalGpuCount=1,
        GpuPartitionSize=0.125,
        Manufacturer="NVIDIA",
        Name="L4",
    )

    row = dict(zip(update.COLUMNS, update.row_of(part), strict=True))

    assert (row["gpus"], row["gpu_share"]) == (1, 0.125)
