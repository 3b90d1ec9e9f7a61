"""HTTP endpoints of the twin's clouds for tests of clients that read an account, such as boto3.

They serve the few requests with which a tool checks an account before it creates anything; resources are
created through the providers.
"""
