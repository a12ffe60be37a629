"""A page in the browser to switch modules on and off: what `intarsia studio` opens.

All it knows is in plain classes; Gradio is imported by `serve` and `application` alone.
"""

from intarsia.studio.opening import Opened, open_paths
from intarsia.studio.session import ModuleTile, Session

__all__ = ["ModuleTile", "Opened", "Session", "open_paths"]
