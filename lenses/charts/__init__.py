"""Charts as Altair objects, the same in the app, in reports and in notebooks.

    from lenses import charts

    charts.card(comparison, result)
    charts.save(charts.ledger(result), "svg")

A chart is made of plain values (`lenses.outcome`) and needs no torch. Fields have fixed names, so that
no text of a user is ever read as a field; what a user wrote is data and nothing else.
"""

from lenses.charts.agreement import agreement, square
from lenses.charts.card import card
from lenses.charts.export import WIDTH, save, spec
from lenses.charts.heat import heat
from lenses.charts.ledger import ledger, ledger_panel
from lenses.charts.pieces import pieces
from lenses.charts.planted import planted
from lenses.charts.setting_in import setting_in
from lenses.charts.spread import band, onset_groups, onsets, panel
from lenses.charts.surfacing import movers, peaks
from lenses.charts.validation import blocks_map, forest, recall, scatter

__all__ = [
    "WIDTH",
    "agreement",
    "band",
    "blocks_map",
    "card",
    "forest",
    "heat",
    "ledger",
    "ledger_panel",
    "movers",
    "onset_groups",
    "onsets",
    "panel",
    "peaks",
    "pieces",
    "planted",
    "recall",
    "save",
    "scatter",
    "setting_in",
    "spec",
    "square",
]
