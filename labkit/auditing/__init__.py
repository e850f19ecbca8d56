"""What is wrong with a distributed training run, and where: a program is watched on virtual ranks, rules look on."""
