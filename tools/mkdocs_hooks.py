"""mkdocs' hooks for documents that are written to be read in the repository.

README.md is the site's first page, and the other documents at the top have pages too. A link to
something else leads to the repository, if ``extra.repository`` says where that is, and is text
otherwise; ``repo_url`` would have each page ask its host for figures. Badges are left out: they are
images of other hosts. The first line of a block of code may tell tests something: a file's name
becomes the block's title and the rest is dropped.
``setup.py`` has the README's links made absolute, for package indexes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FENCE = re.compile(r"^```(?P<info>[^\n]*)(?P<code>\n.*?^```)$", re.MULTILINE | re.DOTALL)
BADGES = re.compile(r"^(\[!\[[^\]]*\]\(https://\S+\)\]\(\S+\)\n)+\n", re.MULTILINE)
SHORT = re.compile(r"<code>[^<\n]{1,30}</code>[,.;:)]*")
IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<target>[^)\s:]+)\)")
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
# Documents outside `docs`, and their pages.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents that are not in ``docs``."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Drop badges, and rewrite links outside of blocks of code and the first lines of blocks."""
    del files
    uri = page.file.src_uri
    place = next((name for name, made in PAGES.items() if made == uri), f"docs/{uri}")
    repository = config.extra.get("repository", "").rstrip("/")

    def linked(found: re.Match[str]) -> str:
        return site_link(found["text"], found["target"], place, repository)

    markdown = BADGES.sub("", markdown)
    if place in PAGES:  # whose pictures are in the repository, as what is linked is
        markdown = IMAGE.sub(r"[\g<text>](\g<target>)", markdown)
    return rewritten(markdown, linked, site_info)


def on_page_content(html: str, **_: object) -> str:
    """Keep short code and the punctuation behind it in one line, which needs ``site.css``."""
    return SHORT.sub(r'<span class="whole">\g<0></span>', html)


def absolute_links(markdown: str, repository: str) -> str:
    """Return a document at the repository's top as a package index can show it."""

    def linked(found: re.Match[str]) -> str:
        text, target = found["text"], found["target"]
        here = "://" not in target and not target.startswith(("mailto:", "#"))
        return f"[{text}]({repository}/blob/HEAD/{target})" if here else found[0]

    pictured = IMAGE.sub(rf"![\g<text>]({repository}/raw/HEAD/\g<target>)", markdown)
    return rewritten(pictured, linked, lambda info: info.partition(" ")[0])


def rewritten(
    markdown: str, linked: Callable[[re.Match[str]], str], opening: Callable[[str], str]
) -> str:
    """Return a document with other links outside of blocks of code, and other openings of these.

    Args:
        markdown: The document.
        linked: Returns what stands for a link.
        opening: Returns what stands behind a block's backticks.
    """
    pieces, end = [], 0
    for block in FENCE.finditer(markdown):
        pieces.append(LINK.sub(linked, markdown[end : block.start()]))
        pieces += [f"```{opening(block['info'])}", block["code"]]
        end = block.end()
    return "".join([*pieces, LINK.sub(linked, markdown[end:])])


def site_link(text: str, target: str, place: str, repository: str) -> str:
    """Return a link of a document at ``place`` in the repository, as its page has it."""
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return f"[{text}]({target})"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    shown = path.startswith("docs/") and not path.endswith(".toml")  # as in exclude_docs
    if path in PAGES or shown:
        to, of = (PAGES.get(name) or posixpath.relpath(name, "docs") for name in (path, place))
        return f"[{text}]({posixpath.relpath(to, posixpath.dirname(of) or '.')}{hash_sign}{anchor})"
    return f"[{text}]({repository}/blob/HEAD/{path}{hash_sign}{anchor})" if repository else text


def site_info(info: str) -> str:
    """Return the first line of a block of code as mkdocs reads it."""
    language, *words = info.split() or [""]
    titles = [f' title="{word[5:]}"' for word in words if word.startswith("file=")]
    return "".join(["text" if language == "output" else language, *titles])
