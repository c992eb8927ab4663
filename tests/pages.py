"""Reading reports: a strict parser of their HTML, and a real browser where there is one."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VOID = {"meta", "br"}
DRAWN = {"path", "rect", "circle", "line"}
NUMBERS = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "fill-opacity"}


class Page(HTMLParser):
    """A report: its sections with their texts, tables and pictures; raises for bad HTML."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.ids, self.links, self.tags = [], [], [], set()
        self.texts, self.tables, self.pictures = {}, {}, {}
        self.tiles, self.cell = {}, None
        self.feed(text)
        self.close()
        assert not self.stack, f"open at the end: {self.stack}"
        assert len(self.ids) == len(set(self.ids))
        assert set(self.links) <= {f"#{name}" for name in self.ids}

    @property
    def section(self):
        return self.ids[-1] if self.ids else "head"

    @property
    def text(self):
        return " ".join(" ".join(words) for words in self.texts.values())

    def words(self, section):
        return "".join(self.texts[section])

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        known = dict(attributes)
        assert len(known) == len(attributes), f"an attribute of {tag} is there twice"
        assert not any(name.startswith("on") for name in known), known
        assert "src" not in known and "srcset" not in known
        assert "url(" not in known.get("style", "")
        if "href" in known:
            assert known["href"].startswith("#"), known["href"]
            self.links.append(known["href"])
        if tag == "section":
            assert "section" not in self.stack
            self.ids.append(known["id"])
        if tag == "svg":
            box = [float(number) for number in known["viewbox"].split()]
            self.pictures.setdefault(self.section, []).append({"box": box, "drawn": 0, "texts": []})
        elif "svg" in self.stack:
            self._check_coordinates(tag, known)
        if tag == "tr":
            self.tables.setdefault(self.section, []).append([])
        if tag in ("td", "th", "dt", "dd") or (tag == "text"):
            self.cell = ""
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, f"</{tag}> within {self.stack}"
        self.stack.pop()
        if tag in ("td", "th"):
            self.tables[self.section][-1].append(self.cell)
        elif tag == "text":
            self.pictures[self.section][-1]["texts"].append(self.cell)
        elif tag == "dt":
            self.tile = self.cell
        elif tag == "dd":
            self.tiles.setdefault(self.tile, self.cell)

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "style":
            assert "@import" not in data and "url(" not in data and "http" not in data
            return
        self.texts.setdefault(self.section, []).append(data)
        if self.cell is not None:
            self.cell += data

    def _check_coordinates(self, tag, known):
        picture = self.pictures[self.section][-1]
        picture["drawn"] += tag in DRAWN - {"line"}
        for name in NUMBERS & known.keys():
            assert math.isfinite(float(known[name])), (tag, known)
        right, bottom = picture["box"][2:]
        points = [(float(known.get("x", 0)), float(known.get("y", 0)))]
        points += [
            (float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", _path(known))
        ]
        for x, y in points:
            assert -0.1 <= x <= right + 0.1 and -0.1 <= y <= bottom + 0.1, (tag, known)

    def rows(self, section):
        """Rows of the section's tables by their first cell."""
        return {row[0]: row[1:] for row in self.tables[section] if row}


def _path(known):
    path = known.get("d", "")
    assert re.fullmatch(r"(M-?[\d.]+ -?[\d.]+(L-?[\d.]+ -?[\d.]+)*)?", path), path
    return path


def value(text):
    """The number that a cell shows."""
    return float(text.replace(",", "").replace("%", "").replace("\u2212", "-"))


# --- a browser -----------------------------------------------------------------------------

# what is where, by the browser itself: sections, pictures, and texts that leave their picture
_LOOK = """
<!DOCTYPE html><body style="margin:0">
<iframe id="page" src="PAGE" style="border:0;width:WIDTHpx;height:HEIGHTpx"></iframe>
<script>
document.getElementById("page").onload = event => {
  const page = event.target.contentDocument, found = {sections: {}, outside: []};
  const place = one => one.getBoundingClientRect();
  const box = one => (r => [r.x, r.y, r.width, r.height])(place(one));
  for (const one of page.querySelectorAll("section")) found.sections[one.id] = box(one);
  found.pictures = [...page.querySelectorAll("svg")].map(box);
  for (const svg of page.querySelectorAll("svg")) {
    const frame = place(svg);
    for (const text of svg.querySelectorAll("text")) {
      const r = place(text);
      if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.bottom > frame.bottom + 1)
        found.outside.push(text.textContent);
    }
  }
  found.width = page.documentElement.scrollWidth;
  found.height = page.documentElement.scrollHeight;
  const told = document.createElement("pre");
  told.textContent = JSON.stringify(found);
  document.body.append(told);
};
</script>
"""


def browser():
    """The command of a browser, or None."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Browser:
    """A headless browser that looks at one page."""

    def __init__(self, command, folder, page):
        self.command, self.folder, self.page = command, folder, page

    def _run(self, *words):
        profile = self.folder / "profile"
        shared = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        shared += ["--allow-file-access-from-files", "--virtual-time-budget=5000"]
        done = subprocess.run(
            [self.command, *shared, f"--user-data-dir={profile}", *words],
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-500:]
        return done.stdout.decode()

    def look(self, width, height=20_000):
        """Where things are on a screen of this width."""
        wrapper = self.folder / f"look{width}.html"
        text = _LOOK.replace("PAGE", self.page.name).replace("WIDTH", str(width))
        wrapper.write_text(text.replace("HEIGHT", str(height)))
        dom = self._run("--window-size=1400,900", "--dump-dom", wrapper.as_uri())
        return json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", dom, re.DOTALL)[1]))

    def picture(self, width, height, dark=False):
        """A screenshot, as an array of colours."""
        from matplotlib.image import imread

        path = self.folder / "screen.png"
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        size = f"--window-size={width},{height}"
        self._run(size, *scheme, f"--screenshot={path}", self.page.as_uri())
        return imread(path)[:, :, :3]

    def printed(self):
        """The bytes of the page as a PDF."""
        path = self.folder / "page.pdf"
        self._run(f"--print-to-pdf={path}", self.page.as_uri())
        return path.read_bytes()
