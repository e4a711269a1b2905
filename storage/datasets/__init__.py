"""Datasets: chunked zarr, written block by block, verified, and read in batches."""
