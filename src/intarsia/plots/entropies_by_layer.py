"""Entropy by layer: how sure a network is on its way from the inputs to the logits."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from intarsia.plots.curves import Curve, Point, curve_panels


def entropy_by_layer(
    bands: Mapping[str, Mapping[str, Point]],
    *,
    ceiling: float,
    title: str = "entropy through the layers",
) -> Figure:
    """Entropies in nats by name and layer, with their spread, in the order of the layers.

    `ceiling` is the largest entropy there is, log C. Layers called "before fc2", after the one that
    reads them, are written as "fc2".
    """
    names = list(dict.fromkeys(layer for own in bands.values() for layer in own))
    places = {layer: float(place) for place, layer in enumerate(names)}
    drawn: dict[str, Curve] = {
        name: {places[layer]: point for layer, point in own.items()} for name, own in bands.items()
    }
    written = {place: layer.removeprefix("before ") for layer, place in places.items()}
    return curve_panels(
        {title: drawn},
        title=title,
        x="layer that reads",
        y="nats",
        bounds=(0.0, ceiling),
        x_names=written,
    )
