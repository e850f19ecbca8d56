"""What the lessons on parameter servers train with: weights on one rank, tables on several, workers with a pace.

Plain `torch.distributed.rpc`. The servers themselves are what learners write.
"""
