"""How right the estimates are: problems with known truth, real tables, rivals."""
