"""What a stack declares: typed configuration in, Pulumi resources out."""

from components import sdk

sdk.load_on_use()
