"""Renders the documents as one static site with search: `make docs`.

    python deploy/docs.py --to build/docs

It copies the pages as they lie in the repository, so that their links to each other hold, and has MkDocs render them. A link to a
file that does not exist, or to a heading that a page does not have, ends it with an error. Links to files that are not pages, such as
folders and source code, become plain text.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "examples/**/*.md", "bench/README.md", "bench/results/*.md")
PICTURES = (".svg", ".png")
# The theme's links are too pale on white, and its tables are wider than a phone.
STYLE = """\
:root { --bs-link-color-rgb: 0, 94, 162; --bs-link-hover-color-rgb: 0, 63, 110; }
[data-bs-theme=dark] { --bs-link-color-rgb: 120, 190, 245; --bs-link-hover-color-rgb: 170, 215, 250; }
.col-md-9 a, .bs-sidebar a.nav-link { color: rgb(var(--bs-link-color-rgb)); }
.col-md-9 table { display: block; overflow-x: auto; }
.col-md-9 td code { white-space: nowrap; }
"""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def stage(to: pathlib.Path) -> list[str]:
    """Copies the pages and their pictures, and returns what is wrong with their links."""
    pages = sorted({p for pattern in PAGES for p in ROOT.glob(pattern)})
    faults = []
    for page in pages:

        def link(found: re.Match[str], page: pathlib.Path = page) -> str:
            path = found[3].partition("#")[0]
            if not path or re.match(r"[a-z]+:", path):
                return found[0]
            file = (page.parent / path).resolve()
            if not file.exists():
                faults.append(f"{page.relative_to(ROOT)}: there is no {path}")
            if file in pages:
                return found[0]
            if file.suffix in PICTURES and file.is_file():
                copy(file, to / file.relative_to(ROOT))
                return found[0]
            return found[2]

        target = to / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = outside_code(page.read_text(), link)
        target.write_text(re.sub(r"^```(\w+) \w+$", r"```\1", text, flags=re.M))  # "sh test": MkDocs knows one word
    return faults


def outside_code(text: str, link) -> str:
    """Applies link to what is not in a block of code."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))


def copy(file: pathlib.Path, to: pathlib.Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("build/docs"), help="folder for the site, site/ below it")
    work = parser.parse_args().to.absolute()
    for part in ("pages", "site"):
        shutil.rmtree(work / part, ignore_errors=True)
    faults = stage(work / "pages")
    if faults:
        sys.exit("\n".join(faults))
    (work / "pages" / "shoal.css").write_text(STYLE)
    config = {
        "site_name": "Shoal",
        "extra_css": ["shoal.css"],
        "docs_dir": str(work / "pages"),
        "site_dir": str(work / "site"),
        "use_directory_urls": False,
        "theme": {"name": "mkdocs", "color_mode": "auto", "user_color_mode_toggle": True, "nav_style": "dark"},
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", {"toc": {"permalink": True}}],
        "validation": {"nav": {"omitted_files": "ignore"}, "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"}},
        "nav": [
            {"Start": "README.md"},
            {"Documents": "docs/README.md"},
            {"Operating": "docs/operating.md"},
            {"Batching": "docs/tutorial-batching.md"},
            {"Python": "docs/python.md"},
            {"Measuring": "docs/perf.md"},
            {"From Triton": "docs/from-triton.md"},
            {"Changes": "CHANGELOG.md"},
        ],
    }
    (work / "mkdocs.yml").write_text(json.dumps(config))  # JSON is YAML
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(work / "mkdocs.yml")])
    if done.returncode:
        sys.exit("a link or a page is wrong: see above")
    print(f"wrote {work / 'site' / 'index.html'}: {len(list((work / 'site').rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
