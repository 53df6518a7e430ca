"""Masked language modelling: the probability of hidden tokens, given both sides."""
