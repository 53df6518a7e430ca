"""Classification: one label of several for each text, or any number of them."""
