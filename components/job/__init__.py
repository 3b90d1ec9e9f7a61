"""What is run on the platform: the preparation of data, and the elastic job."""
