"""Marks in pages: text between them is generated from result files, the rest is written by hand.

    <!-- results -->                     a block, which a program writes as a whole
    <!-- /results -->

    <!-- = ratio ijcnn1 sklearn -->11.4x<!-- / -->      a number in the middle of a sentence

`pages.py` interprets the words after the equals sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = re.compile(r"<!-- = (.*?) -->(.*?)<!-- / -->", re.DOTALL)
_BLOCK = re.compile(r"<!-- (\w+) -->\n(.*?)\n<!-- /\1 -->", re.DOTALL)


def placed(page: str, text: str, name: str = "results") -> str:
    """The page with this text between its marks."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return before + begin + text + end + after


def numbered(page: str, find: Callable[[str], str]) -> str:
    """The page with its numbers as they are found."""
    return _NUMBER.sub(lambda mark: f"<!-- = {mark[1]} -->{find(mark[1])}<!-- / -->", page)


def by_hand(page: str) -> str:
    """A page without the text between marks."""
    return _NUMBER.sub("", _BLOCK.sub("", page))
