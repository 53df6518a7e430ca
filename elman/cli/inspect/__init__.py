"""elman inspect: recorded values, gradients, attention and predictions of a run, and probes of untrained models."""

from elman.cli.verbs import verb_group

# Sites in --edit look like dotted settings (layers.0.lstm.gate.forget=1), so words are not parsed as settings.
app = verb_group(
    "inspect",
    settings="unparsed",
    help="Look inside models: gates, states, gradients, attention and predictions along a text; probes of word order "
    "and memory.",
)

from elman.cli.inspect import run_views, synthetic_probes  # noqa: E402, F401  (they add their commands to the app)

run_views.add_views()
