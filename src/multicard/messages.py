"""Text for people, in English and Chinese side by side, so that neither can be forgotten."""

import os
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Text(NamedTuple):
    """One message in both languages."""

    en: str
    zh: str

    def to(self, language: Language) -> str:
        """The message in `language`."""
        return self.zh if language == "zh" else self.en


def language_of_the_locale() -> Language:
    """Chinese where the user's locale is Chinese, English elsewhere."""
    named = next(
        (os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), None
    )
    if named is None:
        import locale

        named = locale.getlocale()[0] or ""
    return "zh" if named.lower().startswith("zh") else "en"
