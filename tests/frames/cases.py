"""All cases of the codec; `test_parser.py` runs every one in every way it can be cut."""

from __future__ import annotations

from tests.frames.cases_body import BODIES, DRAFT_RULES, GRAMMAR, LIMITS
from tests.frames.cases_head import ESCAPES, FRAMES, HEADERS, LINE_ENDS

GROUPS = {
    "frames": FRAMES,
    "line ends": LINE_ENDS,
    "headers": HEADERS,
    "escapes": ESCAPES,
    "bodies": BODIES,
    "grammar": GRAMMAR,
    "draft": DRAFT_RULES,
    "limits": LIMITS,
}
