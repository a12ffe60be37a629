"""Write the notebook docs/notebooks/digits.ipynb, with what it showed, as a page of the site.

jupyter execute --inplace docs/notebooks/digits.ipynb
python docs/build/walkthrough.py
"""

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
NOTEBOOK, PAGE = DOCS / "notebooks" / "digits.ipynb", DOCS / "walkthrough.md"


def main() -> None:
    PAGE.write_text(page(NOTEBOOK))
    print(PAGE.relative_to(DOCS.parent))


def page(notebook: Path) -> str:
    """Markdown of the cells and their printed outputs."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    title, *rest = [text for cell in cells for text in _parts(cell)]
    made = f"<!-- Made by docs/build/walkthrough.py from {notebook.name}; do not edit. -->"
    source = f"The notebook itself: [{notebook.name}]({notebook.relative_to(PAGE.parent)})."
    return "\n\n".join([title, made, source, *rest]) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    text = "".join(cell["source"]).strip()
    if cell["cell_type"] == "markdown":
        return [text]
    shown = "".join(_shown(output) for output in cell["outputs"]).strip("\n")
    return [f"```python\n{text}\n```", *([f"```text\n{shown}\n```"] if shown else [])]


def _shown(output: dict[str, Any]) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain") or "")


if __name__ == "__main__":
    main()
