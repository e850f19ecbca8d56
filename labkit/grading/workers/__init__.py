"""Who grades a class: processes on this machine, or workers of a Dask cluster."""
