"""What ranks of hidden cases talk through: the trusted side that delivers and records, and the ranks' own ends."""
