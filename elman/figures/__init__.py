"""Figures: one description of a plot, rendered with matplotlib, as HTML or as terminal text."""
