"""Avro by hand, led by the shipped schemas: readers, writers, forms."""
