"""A chat as text for models that speak ChatML; others are asked through `LLM.chat`."""

from __future__ import annotations

__all__ = ["PromptTemplate"]

_SYSTEM = "You are a helpful assistant."


class PromptTemplate:
    """Templates under DashInfer's names."""

    @staticmethod
    def apply_chatml_template(inputs: str) -> str:
        """One question in ChatML, after a system message, up to where the answer begins."""
        turns = (("system", _SYSTEM), ("user", inputs))
        said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
        return f"{said}<|im_start|>assistant\n"
