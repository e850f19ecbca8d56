"""Right plans, for the explorers to show: what exercises ask for. Ranks of hidden cases do not see this folder."""
