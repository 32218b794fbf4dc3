"""The programming languages of MBXP that the reference scores."""

from typing import Literal, get_args

Language = Literal["cpp", "javascript", "php", "python", "ruby", "typescript"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
