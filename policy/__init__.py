"""Everstep's Pulumi policy pack: rules for the resources of every stack."""
