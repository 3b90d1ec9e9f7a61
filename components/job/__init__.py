"""Workloads on the platform: data preparation and the elastic training job."""
