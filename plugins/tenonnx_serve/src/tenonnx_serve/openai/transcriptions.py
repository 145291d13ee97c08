"""Sounds as OpenAI's clients send them, and their transcripts."""

from __future__ import annotations

import asyncio
import email.message
import email.parser
import email.policy
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tenonnx_generate import Audios
from tenonnx_generate.errors import NotInstalled, Unsupported
from tenonnx_generate.transcribing import Transcriber
from tenonnx_generate.word_times import Word
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.generations import Generations
from tenonnx_serve.openai.language_model import LanguageModel
from tenonnx_serve.rest import DisconnectWatch

# Parts of a form: OpenAI's have a dozen.
MOST_PARTS = 64

# Bytes of a part's head.
LONGEST_HEAD = 4096


class TranscriptionForm(Struct, kw_only=True):  # type: ignore[misc, call-arg]
    """The fields of a form, which are text, besides the file."""

    model: str
    language: Annotated[str, Meta(pattern=r"^[a-z]{2,3}$")] | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: Annotated[float, Meta(ge=0, le=1)] = 0.0
    stream: bool = False
    timestamp_granularities: list[Literal["segment", "word"]] = []
    user: str | None = None
    file: bytes = b""

    @property
    def has_words(self) -> bool:
        """Whether the times of words are asked for."""
        return "word" in self.timestamp_granularities


@dataclass(frozen=True)
class Transcript:
    """The transcript of a sound.

    Attributes:
        texts: The text of each piece.
        language: Its language.
        seconds: How long the sound is.
        piece: How long a piece is.
        words: The words with their times, if they were asked for.
    """

    texts: list[str]
    language: str
    seconds: float
    piece: int
    words: list[Word] | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.texts).strip()

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The pieces with their numbers and times."""
        return [
            {
                "id": i,
                "start": float(i * self.piece),
                "end": min((i + 1) * float(self.piece), self.seconds),
                "text": text,
            }
            for i, text in enumerate(self.texts)
        ]

    def subtitles(self, form: str) -> str:
        """Return it as ``srt`` or ``vtt``: a block of lines for each piece."""
        point, lines = ("," if form == "srt" else "."), ["WEBVTT\n"] if form == "vtt" else []
        for each in self.segments:
            times = (_clock(each[name], point) for name in ("start", "end"))
            number = f"{each['id'] + 1}\n" if form == "srt" else ""
            text = each["text"].strip().replace("-->", "->")
            lines.append(f"{number}{' --> '.join(times)}\n{text}\n")
        return "\n".join(lines)

    def as_json(self, form: str) -> dict[str, Any]:
        """Return it in OpenAI's form."""
        if form == "json":
            return {"text": self.text}
        told: dict[str, Any] = {
            "task": "transcribe",
            "language": self.language,
            "duration": self.seconds,
            "text": self.text,
            "segments": self.segments,
        }
        if self.words is not None:
            told["words"] = [
                {"word": word.text.strip(), "start": word.start, "end": word.end}
                for word in self.words
            ]
        return told


def _clock(seconds: float, point: str) -> str:
    """Return a time as subtitles have it: hours, minutes, seconds, and thousandths."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{point}{thousandths:03}"


def _ignore(_: str) -> None:
    """Do what a transcript that is wanted as a whole does with its parts."""


def transcribed(
    model: LanguageModel, asked: TranscriptionForm, tell: Callable[[str], None] = _ignore
) -> Transcript:
    """Return the transcript of a sound; ``tell`` is called with each part of the text before.

    Raises:
        Wrong: It is in a container that this server does not read, or there are no times of words.
        TenonnxError: It is no sound that can be read, or the model has not the language.
    """
    try:
        (clip,) = Audios.open_bytes(asked.file)
    except NotInstalled as error:
        raise Wrong(f"this server reads WAV files of whole numbers: {error}", "file") from None
    search = {"do_sample": asked.temperature > 0, "temperature": asked.temperature}
    made = Transcriber(
        model.model,
        search,
        language=asked.language or "",
        before=asked.prompt or "",
        processor=model.processor,
    )
    texts, words = list[str](), list[Word]()
    if asked.has_words:
        try:
            made.check_words()
        except Unsupported as error:
            raise Wrong(str(error), "timestamp_granularities", "unsupported_parameter") from None
    for number in range(made.count(clip)):
        parts = []
        for part in made.piece(clip, number, model.context):
            parts.append(part)
            tell(part)
        texts.append("".join(parts))
        if asked.has_words:
            words += made.words(clip, number)
    told = words if asked.has_words else None
    return Transcript(texts, made.language, clip.seconds, made.seconds, told)


async def chunks(
    served: Generations, asked: TranscriptionForm, seconds: float, watch: DisconnectWatch
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield what a stream tells of a transcript: its parts as they come, then the whole.

    Args:
        served: The model that makes it.
        asked: What is asked for.
        seconds: How long it may take.
        watch: Ended with the stream.
    """
    loop, parts = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def tell(part: str) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    work = served.worked(lambda: transcribed(served.model, asked, tell), seconds)
    making, begun = asyncio.ensure_future(work), False
    making.add_done_callback(lambda _: parts.put_nowait(None))
    try:
        while (part := await parts.get()) is not None:
            part = part if begun else part.lstrip()
            if part:
                begun = True
                yield {"type": "transcript.text.delta", "delta": part}
        yield {"type": "transcript.text.done", "text": (await making).text}
    finally:
        watch.end()
        making.cancel()


def parsed(body: bytes, content_type: bytes, ignores_unknown: bool = False) -> TranscriptionForm:
    """Return a form of the type multipart/form-data; fields like ``name[]`` are lists.

    Raises:
        Wrong: It is none, has too many parts, or a field that cannot be.
    """
    head = _head(b"content-type: " + content_type)
    boundary = head.get_boundary()
    if head.get_content_type() != "multipart/form-data" or not boundary:
        raise Wrong("the body is no multipart/form-data with a boundary")
    fields: dict[str, Any] = {}
    for name, content in _parts(body, b"--" + boundary.encode("latin-1", "replace")):
        plain = name.removesuffix("[]")
        if plain not in TranscriptionForm.__struct_fields__ and not ignores_unknown:
            raise Wrong(f"unknown field {plain!r:.60}", name[:60])
        if plain != name:
            fields.setdefault(plain, []).append(_text(name, content))
            continue
        if name in fields:
            raise Wrong(f"the form has {name!r:.60} twice", name)
        fields[name] = content if name == "file" else _text(name, content)
    if not fields.get("file"):
        raise Wrong("the form has no file, or an empty one", "file")
    try:
        found: TranscriptionForm = msgspec.convert(fields, TranscriptionForm, strict=False)
    except msgspec.ValidationError as error:
        raise Wrong(str(error)) from None
    if found.stream and found.response_format not in ("json", "text"):
        raise Wrong(f"a stream is of text: response_format is {found.response_format}", "stream")
    if found.has_words and found.response_format != "verbose_json":
        raise Wrong("times of words are in verbose_json alone", "timestamp_granularities")
    return found


def _parts(body: bytes, mark: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of a form's parts."""
    pieces = (b"\r\n" + body).split(b"\r\n" + mark, MOST_PARTS + 1)
    if len(pieces) > MOST_PARTS + 1:
        raise Wrong(f"the form has more than {MOST_PARTS} parts")
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Wrong("the form has no end: it was cut off, or its boundary is another one")
    for piece in pieces[1:-1]:
        end = piece.find(b"\r\n\r\n", 0, LONGEST_HEAD)
        if end < 0 or not piece.startswith(b"\r\n"):
            raise Wrong("a part of the form has no head")
        name = _head(piece[2:end]).get_param("name", None, "content-disposition")
        if not isinstance(name, str) or not name:
            raise Wrong("a part of the form has no name")
        yield name, piece[end + 4 :]


def _head(content: bytes) -> email.message.Message:
    text = content.decode("latin-1")
    return email.parser.Parser(policy=email.policy.compat32).parsestr(text, headersonly=True)


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Wrong(f"{name!r:.60} is not UTF-8", name) from None
