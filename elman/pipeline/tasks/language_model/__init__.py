"""Language modelling: the probability of each token, given those before it."""
