"""The page as a Gradio application: Views makes what it shows, the Session has what it knows."""

from pathlib import Path

import gradio as gr
from fastapi import FastAPI

from intarsia.studio.ui.events import Events
from intarsia.studio.ui.layout import Layout
from intarsia.studio.ui.views import Views
from intarsia.studio.visitors import Visitors
from intarsia.studio.web.studio_limits import StudioLimits

HERE = Path(__file__).parent
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
WAKING = 1.0  # seconds between looks at Gradio's queue, which no event uses, instead of 0.001
AMBER = gr.themes.Color(
    "#fdf6ea", "#faead0", "#f3d3a1", "#e9b870", "#dd9c45",
    "#c87f24", "#a8651a", "#854e15", "#633a12", "#452a10", "#2b1a0a", name="amber",
)  # fmt: skip


def mount(blocks: gr.Blocks, limits: StudioLimits) -> FastAPI:
    """The page as an application, without links to elsewhere, recording, sharing or an API page."""
    blocks.state_session_capacity = limits.pages
    queue = blocks._queue
    queue.sleep_when_free = queue.progress_update_sleep_when_free = WAKING
    theme = gr.themes.Base(
        primary_hue=AMBER,
        secondary_hue=AMBER,
        neutral_hue="stone",
        radius_size="lg",
        font=FONTS,
        font_mono=MONO,
    ).set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        block_title_text_weight="600",
        block_border_width="1px",
    )
    return gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        blocks,
        path="/",
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        show_error=False,
        max_file_size=limits.file_bytes,
        theme=theme,
        css=(HERE / "studio.css").read_text(encoding="utf-8"),
    )


def build(visitors: Visitors, title: str) -> gr.Blocks:
    """All controls, and what happens when they are used."""
    with gr.Blocks(title="intarsia studio", analytics_enabled=False, fill_width=True) as blocks:
        page = Layout(Views(visitors.shared), title, visitors.limits)
        Events(page, visitors).connect(blocks)
    return blocks
