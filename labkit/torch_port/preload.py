"""Imported by a process that others are forked from: what torch would load at first use."""

import torch._dynamo  # noqa: F401  # optimizers pull it in: 0.7 s
