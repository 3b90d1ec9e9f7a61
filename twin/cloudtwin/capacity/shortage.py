"""The clouds' error messages for machines that they do not start. Pure.

Sources, read on 2026-11-25. EC2: for on-demand machines, the error of RunInstances (ray-project/ray #49097) in the form
in which an Auto Scaling group reports it (aws/containers-roadmap #2204); for spot machines, cortexlabs/cortex #1258.
Azure: for a pool in a zone, jenkins-infra/helpdesk #4459; for on-demand machines of a region, Azure/AKS #1272; for spot
machines of a region, MicrosoftDocs/azure-docs #71304; for a price above `spotMaxPrice`, "Error messages for Azure Spot
Virtual Machines".
"""

from cloudtwin.accounts import AZURE_SUBSCRIPTION, scale_set
from cloudtwin.capacity.pools import Pool
from cloudtwin.capacity.prices import exceeds_max_price


def reason(pool: Pool, missing: int, price: float | None = None) -> str:
    """Return the error of a pool's cloud for machines that it does not start, and their number.

    Args:
        pool: the pool.
        missing: number of machines.
        price: current spot price of one machine; None if it is not known.
    """
    if exceeds_max_price(pool, price):
        text = _price_too_high(pool, price)
    elif pool.cloud == "aws":
        text = _aws(pool)
    else:
        text = _azure(pool)
    return f"{text} ({missing} more of {pool.name})"


def _aws(pool: Pool) -> str:
    if pool.capacity == "spot":
        return (
            "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available that "
            f"matches your request. Launching EC2 instance failed: {' or '.join(pool.instance_types)} in {pool.zone}."
        )
    machine = pool.instance_types[0]
    return (
        f"Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        f"{machine} capacity in the Availability Zone you requested ({pool.zone}). Our system will be working on "
        f"provisioning additional capacity. You can currently get {machine} capacity by not specifying an "
        "Availability Zone in your request. Launching EC2 instance failed."
    )


def _azure(pool: Pool) -> str:
    if pool.zone:
        return (
            "OverconstrainedZonalAllocationRequest: Allocation failed. VM(s) with the following constraints cannot be "
            "allocated, because the condition is too restrictive. Please remove some constraints and try again. "
            "Constraints applied are: - Availability Zone - Networking Constraints (such as Accelerated Networking or "
            f"IPv6) - VM Size: {pool.instance_types[0]} in {pool.zone}."
        )
    if pool.capacity == "spot":
        return (
            f"SkuNotAvailable: The requested size for resource '{scale_set(pool.name)}' is currently not available in "
            f"location '{pool.region}' zones '' for subscription '{AZURE_SUBSCRIPTION}'. Please try another size or "
            "deploy to a different location or zones. See https://aka.ms/azureskunotavailable for details."
        )
    return (
        "AllocationFailed: Allocation failed. We do not have sufficient capacity for the requested VM size in this "
        f"region. Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance: "
        f"{pool.instance_types[0]} in {pool.region}."
    )


def _price_too_high(pool: Pool, price: float | None) -> str:
    return (
        "SpotPriceGreaterThanProvidedMaxPrice: Unable to perform operation 'Create VM' since the provided max price "
        f"'{pool.max_price} USD' is lower than the current spot price '{price} USD' for Azure Spot VM size "
        f"'{pool.instance_types[0]}'."
    )
