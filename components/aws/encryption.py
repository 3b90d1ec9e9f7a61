"""Keys of AWS KMS that a stack creates: rotated, and deleted with a delay.

With `cluster.kmsKeyArn`, a stack creates no key and uses that key for all of its data, except a SCRATCH_2 file system
and the workspace of metrics.
"""

from pulumi_aws import kms

from components.component import Component

# The shortest and the longest delay that KMS allows; it never deletes immediately.
DELETION_DAYS, DELETION_DAYS_PROTECTED = 7, 30


def declare_key(parent: Component, name: str, description: str, *, protect: bool) -> kms.Key:
    """Declare a KMS key as a child of a component.

    Args:
        parent: component that owns the key.
        name: suffix of the key's logical name.
        description: data that it encrypts.
        protect: whether Pulumi refuses to delete it; its deletion is also delayed for longer.
    """
    return kms.Key(
        f"{parent.name}-{name}",
        description=description,
        enable_key_rotation=True,
        deletion_window_in_days=DELETION_DAYS_PROTECTED if protect else DELETION_DAYS,
        opts=parent.child(protect=protect),
    )
