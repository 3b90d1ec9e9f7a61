"""HTTP endpoints of the twin's clouds, for clients such as boto3 that read an account.

They serve the few requests with which a tool checks an account before it creates anything; resources are
created through the providers.
"""
