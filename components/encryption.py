"""Keys of AWS KMS that a stack makes for itself: rotated, and never gone at once."""

import pulumi_aws as aws

from components.part import Part

# KMS only ever schedules a deletion; these are its shortest and its longest delay.
DELETION_DAYS, DELETION_DAYS_PROTECTED = 7, 30


def key(part: Part, name: str, description: str, *, protect: bool) -> aws.kms.Key:
    """Declare a key below `part`.

    Args:
        part: whose child it is.
        name: its name after the part's.
        description: what it encrypts.
        protect: whether it refuses to be deleted, and can be restored for longer.
    """
    return aws.kms.Key(
        f"{part.name}-{name}",
        description=description,
        enable_key_rotation=True,
        deletion_window_in_days=DELETION_DAYS_PROTECTED if protect else DELETION_DAYS,
        opts=part.child(protect=protect),
    )
