"""What was learned of a dataset, to be used elsewhere: corrected sets, weights, soft labels."""
