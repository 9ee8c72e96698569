"""What is measured about the package: one way to run, one record, one table."""
