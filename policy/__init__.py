"""Everstep's Pulumi policy pack: what no stack may declare."""
