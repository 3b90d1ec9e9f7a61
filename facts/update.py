"""Write the data files that come from botocore, and on request the file of instance types.

Usage: python facts/update.py [--instance-types FILE]

FILE is the response of EC2's DescribeInstanceTypes, as moto packages it:
`moto/ec2/resources/instance_types.json.gz`, a JSON object with the name of a type as the key.
"""

import argparse
import gzip
import json
from collections.abc import Mapping
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cloudfacts" / "data"
COLUMNS = (
    "vcpus",
    "memory_mib",
    "architecture",
    "network_cards",
    "efa_interfaces",
    "gpus",
    "gpu_manufacturer",
    "gpu_model",
    "gpu_memory_mib",
    "gpu_share",
)


def botocore_data(name: str) -> dict[str, Any]:
    """Return a data file of botocore, which is installed without its dependencies."""
    for path in files("botocore") or ():
        if path.as_posix().removesuffix(".gz") == f"botocore/data/{name}":
            raw = path.read_binary()
            text = gzip.decompress(raw) if path.suffix == ".gz" else raw
            content: dict[str, Any] = json.loads(text)
            return content
    raise FileNotFoundError(f"botocore has no data file {name}")


def regions() -> dict[str, Any]:
    """Return the regions of the standard partition, from botocore's endpoint data."""
    endpoints = botocore_data("endpoints.json")
    partition = next(
        candidate for candidate in endpoints["partitions"] if candidate["partition"] == "aws"
    )
    descriptions = {name: region["description"] for name, region in partition["regions"].items()}
    return {
        "source": f"botocore {version('botocore')}, endpoints.json, partition aws",
        "regions": dict(sorted(descriptions.items())),
    }


def instance_type_names() -> dict[str, Any]:
    """Return the names of the instance types, from botocore's model of EC2."""
    model = botocore_data("ec2/2016-11-15/service-2.json")
    families: dict[str, list[str]] = {}
    for name in model["shapes"]["InstanceType"]["enum"]:
        family, _, size = name.partition(".")
        families.setdefault(family, []).append(size)
    return {
        "source": f"botocore {version('botocore')}, EC2 service model, shape InstanceType",
        "families": {family: " ".join(sorted(families[family])) for family in sorted(families)},
    }


def instance_types(descriptions: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return name -> row of `COLUMNS` for the types that run Linux on x86-64 or ARM.

    Args:
        descriptions: name -> description, as DescribeInstanceTypes returns it.
    """
    rows = {name: row_of(descriptions[name]) for name in sorted(descriptions)}
    return {name: row for name, row in rows.items() if row[2] in ("x86_64", "arm64")}


def row_of(description: Mapping[str, Any]) -> list[Any]:
    """Return one type's row of `COLUMNS`; the row of a type without GPUs ends before the GPU columns."""
    network = description["NetworkInfo"]
    row = [
        description["VCpuInfo"]["DefaultVCpus"],
        description["MemoryInfo"]["SizeInMiB"],
        description["ProcessorInfo"]["SupportedArchitectures"][-1],
        network.get("MaximumNetworkCards", 1),
        network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
    ]
    for gpu in description.get("GpuInfo", {}).get("Gpus", ())[:1]:
        row += [gpu.get("LogicalGpuCount") or gpu["Count"], gpu["Manufacturer"], gpu["Name"]]
        row += [gpu["MemoryInfo"]["SizeInMiB"], gpu.get("GpuPartitionSize", 1.0)]
    return row


def as_text(content: Mapping[str, Any]) -> str:
    """Return JSON with one line for each entry of the outer two levels."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            rows = [f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in value.items()]
            lines.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(rows) + "\n  }")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def generated_files() -> dict[str, str]:
    """Return file name -> text of the files that come from botocore alone."""
    return {
        "aws_regions.json": as_text(regions()),
        "aws_instance_type_names.json": as_text(instance_type_names()),
    }


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--instance-types", type=Path, metavar="FILE", help="response of DescribeInstanceTypes"
    )
    arguments = parser.parse_args()
    for name, text in generated_files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    if arguments.instance_types:
        path = FOLDER / "aws_instance_types.json"
        old_content = json.loads(path.read_text(encoding="utf-8"))
        with gzip.open(arguments.instance_types) as file:
            types = instance_types(json.load(file))
        content = {
            "source": old_content["source"],
            "date": old_content["date"],
            "columns": list(COLUMNS),
        }
        path.write_text(as_text({**content, "types": types}), encoding="utf-8")


if __name__ == "__main__":
    main()
