"""The twin's accounts: their IDs, which the stored resources, the machines and the clouds' messages name."""

AWS_ACCOUNT = "123456789012"  # the account of AWS's own examples
AZURE_SUBSCRIPTION = "00000000-0000-4000-8000-000000000000"
