"""The maintained ElasticJob controller."""
