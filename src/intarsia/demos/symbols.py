"""A hundred symbols, drawn anew: pictures for a demo that downloads nothing."""

from pathlib import Path

import numpy as np

SYMBOLS = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    "abdefghnqrty"
    "123456789"
    "ΓΔΘΛΞΠΣΦΨΩ"
    "БДЖИЦЧШЫЭЮЯ"
    "☀☁☂☃★☎☘☠☢☮"
    "♔♕♖♗♘♠♣♥♦♪♫"
    "←↑↗↔⇄∞∑√∫≈≠"
)
# Others, for pictures that everybody may have.
OTHERS = "ijklmpsuvwxzñçßæøåéüαβγδεζηθλμξπσφψω☼☾♂♀♭♯✓✗✈✉✂✎❄❤➔➤⌘⏏☕☺☹♨⚓⚡⚙"  # noqa: RUF001
SIDE = 48


def symbol_pictures(
    each: int, seed: int = 0, symbols: str = SYMBOLS
) -> tuple[np.ndarray, np.ndarray]:
    """`each` pictures of every symbol, N x 48 x 48 x 3 in 8 bits, and the symbols themselves.

    Size, place, angle, colours and noise differ from picture to picture.
    """
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    fonts = {size: ImageFont.truetype(str(path), size) for size in range(26, 41)}
    draw = np.random.default_rng(seed)
    pictures = np.empty((each * len(symbols), SIDE, SIDE, 3), np.uint8)
    for place in range(len(pictures)):
        symbol = symbols[place % len(symbols)]
        stencil = Image.new("L", (SIDE, SIDE))
        middle = tuple(SIDE / 2 + draw.uniform(-4, 4, 2))
        font = fonts[int(draw.integers(26, 41))]
        ImageDraw.Draw(stencil).text(middle, symbol, fill=255, font=font, anchor="mm")
        turned = stencil.rotate(draw.uniform(-20, 20), Image.Resampling.BILINEAR)
        ink = np.asarray(turned, np.float32)[:, :, None] / 255
        paper, colour = _two_colours(draw)
        noise = draw.normal(0, 12, (SIDE, SIDE, 3))
        pictures[place] = np.clip(paper * (1 - ink) + colour * ink + noise, 0, 255)
    return pictures, np.array([*symbols] * each)


def _two_colours(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A light one and a dark one, either of which may be the paper."""
    light, dark = draw.uniform(150, 255, 3), draw.uniform(0, 100, 3)
    return (light, dark) if draw.random() < 0.5 else (dark, light)
