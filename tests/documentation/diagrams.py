"""Draw the diagrams of the documentation: `python -m tests.documentation.diagrams`.

They are included in the pages as they are, so that they take their colours from the theme, light or dark; the fallback
colours are for who opens a file by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent.parent.parent / "docs" / "_static" / "diagrams"

STYLE = """\
.dg text { font: 13px var(--font-stack, sans-serif); fill: var(--color-foreground-primary, #1b1f24); }
.dg .title { font-weight: 600; font-size: 14px; }
.dg .note { fill: var(--color-foreground-secondary, #5a5c63); }
.dg .box { fill: var(--color-background-secondary, #f8f9fb); stroke: var(--color-foreground-border, #878787); }
.dg .accent { fill: var(--color-brand-soft, #e3eefc); stroke: var(--color-brand-primary, #0a4bff); }
.dg .good { fill: var(--dg-good, #d9f2e3); stroke: var(--dg-good-line, #1a8a5a); }
.dg .bad { fill: var(--dg-bad, #fbe0dd); stroke: var(--dg-bad-line, #c0392b); }
.dg .frame { fill: none; stroke: var(--color-foreground-border, #878787); stroke-dasharray: 4 4; }
.dg .line { fill: none; stroke: var(--color-foreground-secondary, #5a5c63); stroke-width: 1.5; }
.dg .dashed { stroke-dasharray: 5 4; }
.dg .head { fill: var(--color-foreground-secondary, #5a5c63); }"""


class Drawing:
    """An SVG in the making.

    Args:
        name: of the file, without its ending.
        title: what a screen reader says.
        width, height: in pixels.
    """

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.name = name
        self._lines = [
            f'<svg class="dg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'style="min-width: {width * 4 // 5}px" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<defs><marker id="{name}-head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="head" d="M0 0 L10 5 L0 10 z"/></marker></defs>',
        ]

    def box(self, x: int, y: int, width: int, height: int, *texts: str, kind: str = "box") -> None:
        """Draw a box; the first text is its title."""
        self._lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        top = y + height // 2 - 9 * (len(texts) - 1) + 5
        for number, text in enumerate(texts):
            self.text(x + width // 2, top + 18 * number, text, kind="" if number else "title", anchor="middle")

    def frame(self, x: int, y: int, width: int, height: int, label: str) -> None:
        """Draw a dashed border with a label inside its upper edge."""
        self._lines.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>')
        self.text(x + 12, y + 20, label, kind="note")

    def text(self, x: int, y: int, text: str, *, kind: str = "", anchor: str = "start") -> None:
        """Write a line of text."""
        self._lines.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(self, *points: tuple[int, int], dashed: bool = False, head: bool = True) -> None:
        """Draw a line over points, with a head at its end."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        end = f' marker-end="url(#{self.name}-head)"' if head else ""
        self._lines.append(f'<path class="line{" dashed" * dashed}" d="{path}"{end}/>')

    def svg(self) -> str:
        """Return the whole file."""
        return "\n".join([*self._lines, "</svg>", ""])


def threads() -> Drawing:
    """Draw which thread reads, writes and runs user code."""
    art = Drawing("threads", "The threads of a connection: who writes, who reads, who runs your code", 760, 350)
    art.frame(10, 10, 200, 330, "your program")
    art.frame(240, 10, 330, 330, "stompy, one connection")
    art.box(600, 40, 150, 280, "broker")
    art.box(25, 45, 170, 80, "your threads", "send, ack, receive", kind="accent")
    art.box(25, 235, 170, 80, "your handlers", "and listeners", kind="accent")
    art.box(400, 45, 155, 80, "write lock", "frames leave whole")
    art.box(400, 145, 155, 70, "heartbeat thread", "one byte when idle")
    art.box(400, 235, 155, 80, "reader thread", "parses, routes")
    art.box(255, 235, 125, 80, "dispatcher", "thread", "and its queue")
    art.box(255, 145, 125, 70, "inbox", "bounded")
    art.arrow((195, 75), (400, 75))
    art.text(252, 68, "frames", kind="note")
    art.arrow((555, 85), (600, 85))
    art.arrow((555, 180), (600, 180))
    art.arrow((600, 275), (555, 275))
    art.arrow((400, 275), (380, 275))
    art.arrow((255, 275), (195, 275))
    art.arrow((430, 235), (430, 225), (317, 225), (317, 215))
    art.arrow((255, 180), (110, 180), (110, 125))
    art.text(120, 172, "messages", kind="note")
    art.arrow((400, 250), (390, 250), (390, 105), (195, 105), dashed=True)
    art.text(252, 99, "receipts, errors", kind="note")
    return art


def acknowledgement() -> Drawing:
    """Draw what an acknowledgement covers in each mode."""
    art = Drawing("acknowledgement", "Which messages are settled when the program calls ack() on the third", 720, 240)
    art.text(250, 24, "five messages were delivered; the program calls ack() on the third", kind="note")
    rows = (
        ("auto", "settled when sent; ack() raises AckError", "good good good good good"),
        ("client", "ack() settles it and all earlier ones", "good good good bad bad"),
        ("client-individual", "ack() settles that one message", "bad bad good bad bad"),
    )
    for number, (mode, meaning, kinds) in enumerate(rows):
        top = 42 + number * 56
        art.text(10, top + 18, mode, kind="title")
        art.text(10, top + 36, meaning, kind="note")
        for place, kind in enumerate(kinds.split()):
            art.box(290 + place * 84, top, 72, 42, str(place + 1), kind=kind)
    art.box(290, 212, 16, 16, kind="good")
    art.text(314, 225, "settled: never delivered again")
    art.box(516, 212, 16, 16, kind="bad")
    art.text(540, 225, "delivered again if lost")
    return art


def reconnect() -> Drawing:
    """Draw what happens between two sessions."""
    art = Drawing("reconnect", "What happens, in order, when a connection is lost and replaced", 760, 300)
    for y, label in ((62, "session"), (122, "send()"), (182, "messages"), (242, "listeners")):
        art.text(10, y + 5, label, kind="title")
    art.box(100, 40, 150, 44, "session 1", kind="good")
    art.box(250, 40, 140, 44, "lost: try, wait, try", kind="bad")
    art.box(390, 40, 80, 44, "handshake")
    art.box(470, 40, 110, 44, "subscriptions", "resend")
    art.box(580, 40, 170, 44, "session 2", kind="good")
    art.box(100, 100, 150, 44, "sent at once", kind="good")
    art.box(250, 100, 330, 44, "waits, up to send_timeout")
    art.box(580, 100, 170, 44, "sent at once", kind="good")
    art.box(100, 160, 150, 44, "delivered", kind="good")
    art.box(250, 160, 330, 44, "unacknowledged ones return to the broker", kind="bad")
    art.box(580, 160, 170, 44, "delivered again", kind="good")
    art.arrow((250, 225), (250, 212), dashed=True)
    art.arrow((320, 225), (320, 212), dashed=True)
    art.arrow((580, 225), (580, 212), dashed=True)
    art.text(155, 247, "on_disconnected", kind="")
    art.text(290, 265, "on_reconnecting, before each further attempt")
    art.text(580, 247, "on_connected")
    art.arrow((100, 286), (750, 286))
    art.text(100, 280, "time", kind="note")
    return art


def outbox() -> Drawing:
    """Draw the way of a message through an outbox."""
    art = Drawing("outbox", "A message on its way through an outbox", 760, 230)
    art.box(10, 60, 130, 70, "your threads", "put()", kind="accent")
    art.box(225, 40, 150, 110, "SQLite file", "waiting messages", "synced to disk")
    art.box(450, 60, 120, 70, "forwarder", "thread")
    art.box(670, 40, 80, 110, "broker")
    art.box(225, 175, 150, 44, "dead letters", kind="bad")
    art.arrow((140, 82), (225, 82))
    art.text(182, 74, "1", kind="title", anchor="middle")
    art.arrow((225, 110), (140, 110), dashed=True)
    art.text(182, 128, "2: id", anchor="middle")
    art.arrow((375, 82), (450, 82))
    art.text(412, 74, "3: in order", anchor="middle")
    art.arrow((570, 82), (670, 82))
    art.text(620, 74, "4: SEND", anchor="middle")
    art.arrow((670, 110), (570, 110), dashed=True)
    art.text(620, 128, "5: RECEIPT", anchor="middle")
    art.arrow((450, 110), (375, 110), dashed=True)
    art.text(412, 128, "6: remove", anchor="middle")
    art.arrow((550, 130), (550, 197), (375, 197))
    art.text(390, 190, "after `attempts` ERRORs")
    art.arrow((225, 190), (190, 190), (190, 140), (225, 140))
    art.text(130, 170, "retry()")
    return art


def spark() -> Drawing:
    """Draw the way of messages through the pipeline on Spark."""
    art = Drawing("spark", "Messages from a broker through Spark and back", 760, 290)
    art.box(10, 60, 100, 150, "broker")
    art.frame(135, 10, 280, 270, "beside or in the driver")
    art.box(150, 75, 110, 80, "receivers", "one or more", "connections", kind="accent")
    art.box(295, 75, 105, 80, "spool", "files on disk")
    art.box(295, 205, 105, 60, "checkpoint", "offsets")
    art.frame(435, 10, 190, 270, "executors")
    art.box(450, 75, 160, 80, "micro-batches", "your query")
    art.box(450, 205, 160, 60, "sink", "one connection a task", kind="accent")
    art.box(650, 60, 100, 150, "broker", "or any other", "sink of Spark")
    art.arrow((110, 100), (150, 100))
    art.text(112, 92, "MSG", kind="note")
    art.arrow((150, 130), (110, 130), dashed=True)
    art.text(113, 147, "ACK", kind="note")
    art.arrow((260, 100), (295, 100))
    art.arrow((295, 130), (260, 130), dashed=True)
    art.text(160, 178, "acknowledged only", kind="note")
    art.text(160, 195, "after the disk has it", kind="note")
    art.arrow((400, 115), (450, 115))
    art.arrow((347, 205), (347, 155))
    art.arrow((530, 155), (530, 205))
    art.arrow((610, 235), (700, 235), (700, 210))
    return art


DRAWINGS: tuple[Callable[[], Drawing], ...] = (threads, acknowledgement, reconnect, outbox, spark)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in DRAWINGS:
        art = draw()
        (FOLDER / f"{art.name}.svg").write_text(art.svg(), encoding="utf-8")
        sys.stdout.write(f"{art.name}\n")
