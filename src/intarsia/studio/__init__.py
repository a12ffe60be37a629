"""A page to play with modules in the browser: what `intarsia studio` opens.

All it knows is in plain classes; Gradio is imported by `page` and `serve` alone.
"""

from intarsia.studio.opening import Opened, open_paths
from intarsia.studio.session import Card, Session

__all__ = ["Card", "Opened", "Session", "open_paths"]
