"""Timing in interleaved rounds, and the speed of a trained model on this machine (`elman bench RUN`)."""
