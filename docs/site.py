"""A hook of MkDocs: the site has README, the results of benchmarks and other pages from outside docs/ too.

The pages are written for a reader of the repository. Here their links lead to where the files are in the site.
"""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "docs/README.md": "guides.md"}
"""Pages with another place in the site, by their place in the repository."""
OUTSIDE = ("[A-Z]*.md", "LICENSE", "Dockerfile", "examples/**/*", "benchmarks/results/*.md")
"""What the site has besides README and docs/."""
WIDTH = 84
"""Columns of a command on a screen of 1,280 pixels, its indentation included."""
DIRECTORIES = {"docs/slurm": "docs/clusters.md", "benchmarks": "docs/measured.md"}
"""A site has no listings: where a link to a directory leads instead."""


def on_files(files, config):
    """Adds the files from outside docs/."""
    files.remove(files.get_file_from_path("README.md"))
    outside = {path for pattern in OUTSIDE for path in ROOT.glob(pattern) if path.is_file() and path.suffix != ".pyc"}
    for path in sorted({*outside, *(ROOT / page for page in PAGES)}):
        files.append(File.generated(config, _in_site(path.relative_to(ROOT).as_posix()), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Leads the links of a page to their places in the site."""
    own = pathlib.Path(page.file.abs_src_path).relative_to(ROOT)
    depth = page.file.src_uri.count("/")

    def moved(match):
        path, mark, anchor = match[2].partition("#")
        if not path or "://" in path:
            return match[0]
        target = (ROOT / own.parent / path).resolve().relative_to(ROOT).as_posix()
        return f"{match[1]}{'../' * depth}{_in_site(DIRECTORIES.get(target, target))}{mark}{anchor}{match[3]}"

    markdown = re.sub(r'(\]\(|<img src=")([^)"\s]+)([)"])', moved, markdown)
    return re.sub(r"^ {4,6}(?:\S.*)?\b(?:python|docker) .*(?:(?<=\\)\n.*)*", _folded, markdown, flags=re.MULTILINE)


def _folded(match):
    """A command that goes on below where the page ends at the right, before a flag: a browser breaks it anywhere."""
    first, *rest = re.split(r"\s+\\\n\s*|(?<!--)\s+(?=--\w)", match[0])
    lines, margin = [first], " " * (len(first) - len(first.lstrip()) + 4)
    for part in rest:
        if len(lines[-1]) + len(part) < WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(f"{margin}{part}")
    return " \\\n".join(lines)


def _in_site(path):
    return PAGES.get(path, path.removeprefix("docs/"))
