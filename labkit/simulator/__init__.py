"""The virtual cluster: torch.distributed on N accelerators in one process and in virtual time."""
