"""A page in the browser on which one weight of a pattern network is moved.

What `intarsia sweetspot studio` opens. All it knows is in `PatternSession`; Gradio is imported by
the page alone.
"""

from intarsia.studio.patterns.pattern_session import MovedWeight, PatternSession, open_patterns

__all__ = ["MovedWeight", "PatternSession", "open_patterns"]
