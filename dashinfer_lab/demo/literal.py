"""What a model writes, made safe to lay out: Markdown without HTML, images, links and diagrams.

An invisible character breaks what could become one of them, so the text looks as the model wrote
it, and `plain` gives it back.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["JOINER", "SCRIPT", "literal", "plain"]

JOINER: Final = "\u2060"
"""Word joiner: has no width, allows no line break."""

_MARKUP: Final = re.compile(
    r"<(?=[a-z/!?])"  # a tag, a comment, a declaration
    r"|&(?=[a-z#])"  # a named or numbered character
    r"|!(?=\[)|\](?=[(\[:])"  # an image, a link and where it goes
    r"|(?<=[`~])(?=\s*mermaid)",  # a diagram, which would be drawn
    re.IGNORECASE,
)

SCRIPT: Final = """
<script>
(() => {
  const plain = (text) => text.replaceAll("\\u2060", "");
  const clipboard = navigator.clipboard;
  if (clipboard) {
    const write = clipboard.writeText.bind(clipboard);
    clipboard.writeText = (text) => write(plain(text));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button && clipboard) clipboard.writeText(button.dataset.copy);
  });
  document.addEventListener("copy", (event) => {
    const chosen = String(document.getSelection());
    if (chosen.includes("\\u2060")) {
      event.clipboardData.setData("text/plain", plain(chosen));
      event.preventDefault();
    }
  });
})();
</script>
"""
"""For the page's head: what is copied is what the model wrote; `data-copy` makes a copy button."""


def literal(text: str) -> str:
    """Return `text` with everything broken that would be more than styled text."""
    return _MARKUP.sub(lambda found: found[0] + JOINER, text)


def plain(text: str) -> str:
    """Undo `literal`."""
    return text.replace(JOINER, "")
