"""``Encoder``: the graph that runs once, before the decoder, and what the decoder gets of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx import InferenceSession, NodeArg, SessionOptions
from tenonnx_generate.config import CONFIG_FILE, Config
from tenonnx_generate.description import TEXT_ENCODERS, Description
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.fields import names_of, number_of, providers_of, section_of, text_of
from tenonnx_generate.files import inside
from tenonnx_generate.tensor import FLOAT_NAMES, IDS, float_type

NDArray = np.ndarray[Any, np.dtype[Any]]

AUDIO, TOKENS, MASK = "audio_features", "input_ids", "attention_mask"

ENCODER_INPUTS = {AUDIO: AUDIO, TOKENS: TOKENS, MASK: MASK}
OUTPUTS = {
    "encoder_hidden_states": "encoder_hidden_states",
    "cross_present_key_names": "present_key_cross_%d",
    "cross_present_value_names": "present_value_cross_%d",
}
# Names of the decoder's inputs that come from the encoder; ``%d`` is the layer.
FED = {
    "encoder_hidden_states": "encoder_hidden_states",
    "encoder_attention_mask": "encoder_attention_mask",
    "cross_past_key_names": "past_key_cross_%d",
    "cross_past_value_names": "past_value_cross_%d",
}

# Tokens of a text that an encoder takes, at most.
MOST_SOURCE = 1 << 20


@dataclass(frozen=True)
class EncoderDescription:
    """An encoder as its folder describes it.

    Attributes:
        path: The graph's file.
        inputs: Names of its inputs by what they are.
        outputs: Names of its outputs by what they are.
        fed: Names of the decoder's inputs that it feeds.
        providers: What ``InferenceSession`` takes.
        session: ``session_options`` as they stand.
        start: The token that a text begins with; ``None`` where callers say it.
    """

    path: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    fed: dict[str, str]
    providers: list[tuple[str, dict[str, str]]]
    session: dict[str, Any]
    start: int | None


def describe_encoder(config: Config, about: Description) -> EncoderDescription:
    """Return what a configuration says of its encoder.

    Raises:
        Refused: Something of it cannot be.
        Missing: The graph's file is not there.
    """
    model = section_of(config.document, "model")
    if "encoder" not in model:
        raise Refused(
            f"{CONFIG_FILE} is of the type {about.type!r} and has no section 'encoder'",
            hint="a folder of an older layout is made anew by onnxruntime_genai.models.builder",
        )
    encoder = section_of(model, "encoder")
    own = section_of(encoder, "session_options", {})
    # What the decoder's say, such as threads and providers of a caller's, is for both.
    session = about.session | {key: value for key, value in own.items() if value}
    start = None
    if about.type in TEXT_ENCODERS:
        start = number_of(model, "decoder_start_token_id", 0, about.vocabulary - 1, about.bos)
    return EncoderDescription(
        path=inside(config.folder, text_of(encoder, "filename", "encoder.onnx")),
        inputs=names_of(section_of(encoder, "inputs", {}), ENCODER_INPUTS),
        outputs=names_of(section_of(encoder, "outputs", {}), OUTPUTS),
        fed=names_of(section_of(section_of(model, "decoder"), "inputs", {}), FED),
        providers=providers_of(session),
        session=session,
        start=start,
    )


class Encoder:
    """An encoder's session, and the inputs of a decoder that its outputs are.

    Args:
        about: What the folder says.
        options: The session's.
        decoder: The inputs of the decoder's graph by name.
        layers: How many layers the decoder has at most.

    Attributes:
        about: What the folder says.
        feeds: The decoder's inputs that come from here: the output of each, or the mask of the
            text.

    Raises:
        Refused: The graphs do not fit each other, or the configuration.
        Unsupported: The encoder takes something that nobody gives.
    """

    def __init__(
        self,
        about: EncoderDescription,
        options: SessionOptions,
        decoder: Mapping[str, NodeArg],
        layers: int,
    ) -> None:
        self.about = about
        self.session = InferenceSession(about.path, options, providers=about.providers)
        self._inputs = {arg.name: arg for arg in self.session.get_inputs()}
        self.audio = self._inputs.get(about.inputs[AUDIO])
        """The input that takes features of sounds, if there is one."""
        self._check_inputs()
        outputs = {arg.name: arg for arg in self.session.get_outputs()}
        self.feeds = dict(self._found_feeds(decoder, outputs, layers))
        if not set(self.feeds.values()) & outputs.keys():
            raise Refused(
                f"the decoder takes nothing of the encoder: it has no input "
                f"{about.fed['cross_past_key_names']!r} or {about.fed['encoder_hidden_states']!r}"
            )

    def run(self, given: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Return the decoder's inputs that come from here.

        Args:
            given: The graph's inputs by what they are; the features of sounds, or tokens
                [rows, tokens] and their mask.

        Raises:
            Refused: The graph makes another number of rows than it was given.
        """
        named = {self.about.inputs[role]: array for role, array in given.items()}
        feed = {name: array for name, array in named.items() if name in self._inputs}
        masked = self.about.inputs[MASK]
        asked = sorted({output for output in self.feeds.values() if output != masked})
        found: dict[str, Any] = dict(zip(asked, self.session.run(asked, feed), strict=True))
        found[masked] = named.get(masked)
        rows = len(next(iter(given.values())))
        made = {name: np.asarray(found[output]) for name, output in self.feeds.items()}
        for name, array in made.items():
            if array.shape[:1] != (rows,):
                raise Refused(
                    f"the encoder makes {self.feeds[name]!r} of shape {list(array.shape)}; "
                    f"expected {rows} rows, as its inputs have"
                )
        return made

    def features(self, array: NDArray) -> NDArray:
        """Return features of sounds as the graph takes them.

        Raises:
            Refused: They have another shape, or are no numbers.
        """
        assert self.audio is not None
        shape = self.audio.shape
        fits = array.ndim == len(shape) and all(
            size == expected or not isinstance(expected, int)
            for size, expected in zip(array.shape, shape, strict=False)
        )
        if not fits or not array.size or array.dtype.kind != "f":
            raise Refused(
                f"{self.audio.name} is {array.dtype}{list(array.shape)}; the encoder takes "
                f"{self.audio.type}{list(shape)}"
            )
        return np.ascontiguousarray(array, float_type(self.audio.type))

    def tokens(self, rows: list[NDArray], pad: int) -> dict[str, NDArray]:
        """Return the texts of some rows as the graph takes them: ids, padded, and their mask.

        Raises:
            Refused: One is too long.
        """
        longest = max(map(len, rows))
        if longest > MOST_SOURCE:
            raise Refused(f"a text has {longest} tokens; at most {MOST_SOURCE} are read")
        ids = np.full((len(rows), longest), pad)
        mask = np.zeros((len(rows), longest))
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        types = {role: self._inputs.get(name) for role, name in self.about.inputs.items()}
        given = {TOKENS: ids, MASK: mask}
        masked = types[MASK]
        if masked is None and longest != min(map(len, rows)):
            raise Refused("the encoder takes no mask: texts of a batch must be equally long")
        return {
            role: array.astype(np.int64 if arg is None else IDS[arg.type])
            for role, array in given.items()
            for arg in [types[role]]
        }

    def _check_inputs(self) -> None:
        names = self.about.inputs
        if self.audio is None and names[TOKENS] not in self._inputs:
            raise Refused(
                f"the encoder has no input {names[AUDIO]!r} and no {names[TOKENS]!r}; it has "
                f"{', '.join(map(repr, self._inputs))}"
            )
        ids, floats = (IDS.keys(), 2), (FLOAT_NAMES.keys(), 3)
        expected = {names[TOKENS]: ids, names[MASK]: ids, names[AUDIO]: floats}
        for name, arg in self._inputs.items():
            if name not in expected:
                raise Unsupported(f"the encoder asks for the input {name!r}, which nobody gives")
            types, rank = expected[name]
            if arg.type not in types or len(arg.shape) != rank:
                raise Unsupported(
                    f"input {name!r} of the encoder is {arg.type}{arg.shape}; expected {rank} "
                    f"axes of {' or '.join(types)}"
                )

    def _found_feeds(
        self, decoder: Mapping[str, NodeArg], outputs: Mapping[str, NodeArg], layers: int
    ) -> Iterator[tuple[str, str]]:
        fed, made = self.about.fed, self.about.outputs
        pairs = [(fed["encoder_hidden_states"], made["encoder_hidden_states"])]
        for layer in range(layers):
            pairs += [
                (
                    fed[f"cross_past_{kind}_names"].replace("%d", str(layer)),
                    made[f"cross_present_{kind}_names"].replace("%d", str(layer)),
                )
                for kind in ("key", "value")
            ]
        for taken, given in pairs:
            if taken in decoder:
                if given not in outputs:
                    raise Refused(
                        f"the decoder has the input {taken!r} and the encoder no output {given!r}"
                    )
                _check_fit(decoder[taken], outputs[given])
                yield taken, given
        if (masked := fed["encoder_attention_mask"]) in decoder:
            if self.audio is not None:
                raise Unsupported(f"the decoder asks for {masked!r}, which sounds have not")
            yield masked, self.about.inputs[MASK]


def _check_fit(taken: NodeArg, given: NodeArg) -> None:
    """Compare types, ranks and the sizes that both graphs name."""
    same = len(taken.shape) == len(given.shape) and all(
        one == other or not isinstance(one, int) or not isinstance(other, int)
        for one, other in zip(taken.shape, given.shape, strict=True)
    )
    if taken.type != given.type or not same:
        raise Refused(
            f"the decoder's input {taken.name!r} is {taken.type}{list(taken.shape)}, but "
            f"{given.name!r} of the encoder is {given.type}{list(given.shape)}"
        )
