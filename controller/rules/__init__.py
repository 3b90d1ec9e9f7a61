"""The rules of a reconcile pass, one module for each phase of a job."""
