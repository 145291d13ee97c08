"""``tenonnx generate``: a language model continues a text, or answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tenonnx.cli import arguments
from tenonnx.cli.memory import private_bytes
from tenonnx.cli.opening import parse_provider
from tenonnx.cli.output import emit_json, note, size
from tenonnx_generate.errors import Refused
from tenonnx_generate.files import CONFIG_LIMIT, read_text
from tenonnx_generate.options import MOST_DRAFTED

HELP = """Continues a text with a language model, or chats with it.

FOLDER has the files that onnxruntime-genai reads: genai_config.json, model.onnx and tokenizer.json.
Without --prompt and --chat the text is read from standard input. A model of speech, such as
Whisper, transcribes the sound of --audio, in pieces of 30 seconds. The text is printed token by
token. At the end, speed and memory are printed on standard error.

\b
Examples:
  tenonnx generate folder --prompt "The with statement"
  tenonnx generate folder --chat --system "You answer in one sentence."
  tenonnx generate folder --prompt "Who?" --json-schema schema.json
  tenonnx generate whisper --audio speech.wav --language en
  tenonnx generate gemma --image cat.jpg --prompt "What is this?"
  tenonnx generate folder --prompt "The" --beams 4
  tenonnx generate folder --prompt "The" --draft small-folder
  tenonnx generate folder --prompt "The" --provider cuda:enable_cuda_graph=1
  tenonnx generate folder -n 200 --temperature 0.8 --top-p 0.95 --seed 7 < text.txt
"""


def generate(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The model's folder.", show_default=False)
    ],
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="The text to continue.")] = "",
    audio: Annotated[str, typer.Option(metavar="FILE", help="A sound to transcribe, as WAV.")] = "",
    image: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="An image that --prompt is about; may be repeated."),
    ] = arguments.NO_VALUES,
    language: Annotated[
        str, typer.Option(metavar="CODE", help="Language of the sound; default: the likeliest.")
    ] = "",
    chat: Annotated[
        bool, typer.Option("--chat", help="Answer each line of standard input.")
    ] = False,
    system: Annotated[
        str, typer.Option(metavar="TEXT", help="A message to the model before a chat.")
    ] = "",
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Print each token as it comes.")
    ] = True,
    most: Annotated[
        int, typer.Option("--tokens", "-n", help="Tokens to generate at most.", min=1)
    ] = 256,
    max_length: Annotated[
        int,
        typer.Option(help="Tokens of prompt and answers together; 0: the model's context.", min=0),
    ] = 0,
    temperature: Annotated[
        float, typer.Option(help="Randomness of the choice; 0 takes the likeliest token.", min=0)
    ] = 0.0,
    top_k: Annotated[
        int, typer.Option(help="Draw from the N likeliest tokens; 0: from all.", min=0)
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(help="Draw from the likeliest tokens whose chances add up to this.", min=0),
    ] = 1.0,
    stop: Annotated[
        list[str], typer.Option(metavar="TEXT", help="End before this text; may be repeated.")
    ] = arguments.NO_VALUES,
    json_schema: Annotated[
        str, typer.Option(metavar="FILE|JSON", help="Write JSON that fits this schema.")
    ] = "",
    adapter: Annotated[
        str, typer.Option(metavar="[NAME=]FILE", help="Run with the adapter of this file.")
    ] = "",
    beams: Annotated[
        int,
        typer.Option(help="Follow N texts at once, and print the likeliest.", min=1),
    ] = 1,
    draft: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="A smaller model that proposes tokens; this one checks them."
        ),
    ] = "",
    draft_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens that it proposes at once (3).", min=1, max=MOST_DRAFTED),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of random choices; -1: another one each time.")
    ] = -1,
    providers: Annotated[
        list[str], arguments.provider_option("Default: the folder's.")
    ] = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Generate text."""
    from tenonnx_generate.config import Config
    from tenonnx_generate.model import Model
    from tenonnx_generate.transcribing import Transcriber
    from tenonnx_generate.writing import Writer

    search = {
        "do_sample": temperature > 0,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "random_seed": seed,
        "num_beams": beams,
        **({"max_length": max_length} if max_length else {}),
    }
    if chat and (prompt or as_json):
        raise Refused("--chat takes neither --prompt nor --json", hint="it reads standard input")
    _check_media(image, audio, language, bool(chat or draft), bool(json_schema or adapter))
    start = time.perf_counter()
    config = Config(folder)
    if providers:
        config.set_providers(map(parse_provider, providers))
    model = Model(config)
    writer = (
        Transcriber(model, search, stop, prompt, language)
        if audio
        else Writer(model, search, stop, _schema(json_schema), adapter, draft, draft_tokens, image)
    )
    loaded = time.perf_counter() - start
    if chat:
        _chat(writer, system, most, stream)
    else:
        pieces = writer.continued(audio or prompt or sys.stdin.read(), most)
        text = _printed(pieces, stream and not as_json, silent=as_json)
        if as_json:
            emit_json({"text": text, **_facts(writer, loaded)})
        if json_schema and not _is_json(text):
            note(f"the JSON is not complete after {writer.written} tokens: allow more with -n")
    note(_sentence(_facts(writer, loaded)))


def _check_media(
    images: list[str], audio: str, language: str, chats_or_drafts: bool, shapes: bool
) -> None:
    """Refuse options that do not go with a sound or with images."""
    if language and not audio:
        raise Refused("--language is that of a sound", hint="--audio FILE names one")
    if audio and (chats_or_drafts or shapes or images):
        raise Refused("--audio takes no --chat, --json-schema, --adapter, --draft or --image")
    if images and chats_or_drafts:
        raise Refused("--image takes no --chat or --draft")


def _schema(given: str) -> str:
    """Return a schema that is given itself, or the name of its file."""
    is_file = bool(given) and not given.lstrip().startswith("{")
    return read_text(Path(given), CONFIG_LIMIT) if is_file else given


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _chat(writer: Any, system: str, most: int, stream: bool) -> None:
    messages = [{"role": "system", "content": system}] if system else []
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        messages.append({"role": "user", "content": line.rstrip("\n")})
        text = _printed(writer.answered(messages, most), stream, silent=False)
        messages.append({"role": "assistant", "content": text})


def _printed(pieces: Iterator[str], stream: bool, silent: bool) -> str:
    said = []
    for piece in pieces:
        said.append(piece)
        if stream:
            print(piece, end="", flush=True)
    text = "".join(said)
    if not silent:
        print("" if stream else text)
    return text


def _facts(writer: Any, loaded: float) -> dict[str, Any]:
    return {
        "load_seconds": loaded,
        "prompt_tokens": writer.read,
        "reused_tokens": writer.reused,
        "prompt_seconds": writer.reading,
        "tokens": writer.written,
        "tokens_per_second": writer.rate,
        "draft_acceptance": writer.acceptance,
        "private_bytes": private_bytes(),
    }


def _sentence(facts: dict[str, Any]) -> str:
    private = facts["private_bytes"]
    memory = "" if private is None else f"; {size(private)} of private memory"
    again = f" ({facts['reused_tokens']} more were there)" if facts["reused_tokens"] else ""
    rate = facts["draft_acceptance"]
    accepted = "" if rate is None else f", {100 * rate:.0f} % of drafted tokens accepted"
    return (
        f"loaded in {facts['load_seconds']:.2f} s, {facts['prompt_tokens']} tokens read in "
        f"{facts['prompt_seconds']:.2f} s{again}, {facts['tokens']} generated, "
        f"{facts['tokens_per_second']:.1f} tokens/s{accepted}{memory}"
    )
