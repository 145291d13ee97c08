"""What mkdocs is told about documents that are written to be read in the repository.

README.md is the site's first page. A link that leaves the documents goes to the repository if
``repo_url`` says where that is, and is text otherwise. Of what tests are told in the first line of
a block of code, a file's name becomes the block's title and the rest is dropped.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FENCE = re.compile(r"^```(?P<info>[^\n]*)(?P<code>\n.*?^```)$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
README = "README.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds README.md as the first page."""
    from mkdocs.structure.files import File

    readme = Path(config.config_file_path).parent / README
    files.append(File.generated(config, "index.md", abs_src_path=str(readme)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links, those in blocks of code excepted, and the first lines of blocks."""
    del files
    place = README if page.file.src_uri == "index.md" else f"docs/{page.file.src_uri}"
    repository = (config.repo_url or "").rstrip("/")

    def linked(found: re.Match[str]) -> str:
        return site_link(found["text"], found["target"], place, repository)

    pieces, end = [], 0
    for block in FENCE.finditer(markdown):
        opening = f"```{site_info(block['info'])}"
        pieces += [LINK.sub(linked, markdown[end : block.start()]), opening, block["code"]]
        end = block.end()
    return "".join([*pieces, LINK.sub(linked, markdown[end:])])


def site_link(text: str, target: str, place: str, repository: str) -> str:
    """Returns a link of a document at ``place`` in the repository, as its page has it."""
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return f"[{text}]({target})"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    if path == README or path.startswith("docs/"):
        pages = ["index.md" if name == README else name for name in (path, place)]
        to, of = (posixpath.relpath(name, "docs") if "/" in name else name for name in pages)
        return f"[{text}]({posixpath.relpath(to, posixpath.dirname(of) or '.')}{hash_sign}{anchor})"
    return f"[{text}]({repository}/blob/HEAD/{path}{hash_sign}{anchor})" if repository else text


def site_info(info: str) -> str:
    """Returns the first line of a block of code as mkdocs reads it."""
    language, *words = info.split() or [""]
    titles = [f' title="{word[5:]}"' for word in words if word.startswith("file=")]
    return "".join(["text" if language == "output" else language, *titles])
