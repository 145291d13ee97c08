"""Models of images: their processors, prompts, positions and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")

from folders import BOS, HEAD, KEY_HEADS, LAYERS, write_folder
from pictures import FIRST, IMAGE_TOKEN, SIDE, TOKENS, picture, processing, write_pictured
from tenonnx import InferenceSession
from tenonnx_generate import Engine, Generator, GeneratorParams, Images, Model
from tenonnx_generate.errors import Missing, Refused, Unsupported
from tenonnx_generate.image_transforms import Patches, Resize, read_processing

NDArray = np.ndarray[Any, np.dtype[Any]]

KINDS = ["gemma3", "qwen2_5_vl"]
PLACES = {"gemma3": "<start_of_image>", "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>"}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_pictured(tmp_path_factory.mktemp(request.param), request.param))


def inputs_of(model: Model, count: int = 2, text: str = "a{}b{}c") -> Any:
    processor = model.create_multimodal_processor()
    images = Images.open_bytes(picture(40, 20, 1), picture(20, 30, 2))
    if count == 1:
        images = Images.open_bytes(picture(40, 20, 1))
    return processor(text.format(*[PLACES[model.type]] * count), images=images)


def generator(model: Model, **options: Any) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(do_sample=False, **options)
    return Generator(model, params)


def followed(model: Model, given: Any) -> NDArray:
    """Return the logits after a prompt: each graph is run once, and features are put in here."""
    folder = Path(model.description.folder)
    vision, embedding, decoder = (
        InferenceSession(str(folder / f"{name}.onnx")) for name in ("vision", "embedding", "model")
    )
    pixels, grid = given["pixel_values"].as_numpy(), given.get("image_grid_thw")
    features, first = [], 0
    for row in range(len(pixels)) if grid is None else grid.as_numpy():
        if grid is None:
            feed = {"pixel_values": pixels[row : row + 1]}
        else:
            feed = {
                "pixel_values": pixels[first : first + np.prod(row)],
                "image_grid_thw": row[None],
            }
            first += np.prod(row)
        features.append(vision.run(None, feed)[0].reshape(-1, 64))
    tokens = given["input_ids"].as_numpy().astype(np.int64)
    none = np.zeros((0, 64) if grid is not None else (1, 0, 64), np.float32)
    plain = tokens.copy()
    plain[tokens == IMAGE_TOKEN] = 0
    embedded = embedding.run(None, {"input_ids": plain, "image_features": none})[0]
    embedded[tokens == IMAGE_TOKEN] = np.concatenate(features)
    feed = {"inputs_embeds": embedded, "attention_mask": np.ones_like(tokens)}
    feed["position_ids"] = positions(tokens[0], grid)
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            feed[f"past_key_values.{layer}.{kind}"] = np.zeros((1, KEY_HEADS, 0, HEAD), np.float32)
    logits: NDArray = decoder.run(["logits"], feed)[0][0, -1]
    return logits


def positions(tokens: NDArray, grid: Any) -> NDArray:
    """Return the positions of a prompt's tokens, one after the other, as Qwen's paper has them."""
    if grid is None:
        return np.arange(len(tokens))[None]
    found: list[tuple[int, int, int]] = []
    grids, following, place = iter(grid.as_numpy()), 0, 0
    while place < len(tokens):
        if tokens[place] != IMAGE_TOKEN:
            found.append((following,) * 3)
            following, place = following + 1, place + 1
            continue
        _, height, width = next(grids) // [1, 2, 2]
        found += [
            (following, following + y, following + x) for y in range(height) for x in range(width)
        ]
        following, place = following + max(height, width), place + height * width
    return np.array(found).T[:, None]


def test_a_prompt_with_images_is_run_as_the_graphs_by_hand(model: Model) -> None:
    given = inputs_of(model)
    tokens = given["input_ids"].as_numpy()[0]
    ours = generator(model)
    ours.set_inputs(given)
    np.testing.assert_allclose(ours.get_logits()[0, 0], followed(model, given), atol=2e-4)
    text = tokens.tolist()
    for _ in range(3):
        ours.generate_next_token()
        text.append(int(ours.get_next_tokens()[0]))
        whole = dict(given) | {"input_ids": type(given["input_ids"])(np.array([text]))}
        np.testing.assert_allclose(ours.get_logits()[0, 0], followed(model, whole), atol=2e-4)


@pytest.mark.parametrize(
    "options", [{"chunk_size": 7}, {"num_beams": 2}, {"past_present_share_buffer": False}]
)
def test_pieces_beams_and_growing_caches_give_the_same(model: Model, options: Any) -> None:
    given = inputs_of(model)
    texts = []
    for each in ({"num_beams": options.get("num_beams", 1)}, {"chunk_size": 500, **options}):
        made = generator(model, max_length=given["input_ids"].shape()[1] + 5, **each)
        made.set_inputs(given)
        while not made.is_done():
            made.generate_next_token()
        texts.append(made.get_sequence(0).tolist())
    assert texts[0] == texts[1]


def test_going_back_before_and_into_images(model: Model) -> None:
    given = inputs_of(model)
    tokens = given["input_ids"].as_numpy()[0]
    made = generator(model)
    made.set_inputs(given)
    expected = made.get_logits()
    first = int(np.flatnonzero(tokens == IMAGE_TOKEN)[0])
    for length in (first + 3, first - 1, len(tokens) - 1, 0):
        made.rewind_to(length)
        if 0 < length < first:
            made.generate_next_token()  # text, after no image
            made.rewind_to(length)
        made.append_tokens(tokens[length:])
        np.testing.assert_allclose(made.get_logits(), expected, atol=1e-4)


def test_other_images_follow(model: Model) -> None:
    one, both = inputs_of(model, 1, "a{}"), inputs_of(model)
    made = generator(model)
    made.set_inputs(both)
    made.rewind_to(0)
    made.set_inputs(one)
    alone = generator(model)
    alone.set_inputs(one)
    np.testing.assert_array_equal(made.get_logits(), alone.get_logits())


def test_texts_alone(model: Model) -> None:
    processor = model.create_multimodal_processor()
    given = processor("<s>abc")
    assert list(given) == ["input_ids"]
    assert given["input_ids"].as_numpy().tolist() == [[BOS, 97, 98, 99]]
    made = generator(model, batch_size=2)
    made.append_tokens(np.array([[BOS, 97], [BOS, 98]]))
    made.generate_next_token()
    alone = generator(model)
    alone.append_tokens([BOS, 98])
    alone.generate_next_token()
    assert made.get_next_tokens()[1] == alone.get_next_tokens()[0]


def test_places_have_as_many_tokens_as_images(model: Model) -> None:
    tokens = inputs_of(model)["input_ids"].as_numpy()[0]
    images = np.flatnonzero(tokens == IMAGE_TOKEN)
    if model.type == "gemma3":
        assert len(images) == 2 * TOKENS
        around = [10, 10, FIRST, IMAGE_TOKEN], [IMAGE_TOKEN, FIRST + 2, 10, 10]
        assert tokens[1:5].tolist() == around[0]
        assert tokens[TOKENS + 3 : TOKENS + 7].tolist() == around[1]
    else:
        # 40 x 20 and 20 x 30 pixels, 4 x 4 of which are a token, rounded to whole ones.
        assert len(images) == 10 * 5 + 5 * 8
        assert tokens[1:3].tolist() == [FIRST, IMAGE_TOKEN]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_prompts_without_a_place_for_each_image_are_refused(model: Model, count: int) -> None:
    processor = model.create_multimodal_processor()
    images = Images.open_bytes(picture(20, 20), picture(20, 20))
    with pytest.raises(Refused, match=f"{count} places for images, and there are 2"):
        processor(f"a{PLACES[model.type] * count}", images=images)
    if count:
        with pytest.raises(Refused, match=f"{count} places for images, and there are 0"):
            processor(PLACES[model.type] * count)


def test_tokens_of_images_without_images_are_refused(model: Model) -> None:
    made = generator(model)
    with pytest.raises(Refused, match="1 tokens for images, whose features are 0"):
        made.append_tokens([BOS, IMAGE_TOKEN])
    given = inputs_of(model, 1, "{}")
    tokens = given["input_ids"].as_numpy()[0]
    place = int(np.flatnonzero(tokens == IMAGE_TOKEN)[1])
    made.set_model_input("pixel_values", given["pixel_values"])
    if "image_grid_thw" in given:
        made.set_model_input("image_grid_thw", given["image_grid_thw"])
    with pytest.raises(Refused, match="do not follow each other"):
        made.append_tokens(np.insert(tokens, place, 98))
    made.append_tokens(tokens)  # nothing of the failed ones is left
    assert made.token_count() == len(tokens)


def test_inputs_that_do_not_fit_are_refused(model: Model) -> None:
    made = generator(model)
    with pytest.raises(Refused, match="takes no 'sounds'"):
        made.set_model_input("sounds", np.zeros(3))
    with pytest.raises(Refused, match="pixel_values are"):
        made.set_model_input("pixel_values", np.zeros(3, np.float32))
    with pytest.raises(Refused, match="batch_size is 2"):
        generator(model, batch_size=2).set_inputs(inputs_of(model, 1, "{}"))
    if model.type != "gemma3":
        given = inputs_of(model, 1, "{}")
        for grid in ([[1, 2, 2]], [[1, 0, 0]], [[1, -10, -20]], [[1, 200, 1]]):
            made.set_model_input("pixel_values", given["pixel_values"])
            made.set_model_input("image_grid_thw", np.array(grid))
            with pytest.raises(Refused, match="image_grid_thw is"):
                made.append_tokens(given["input_ids"])
        with pytest.raises(Refused, match=r"expected \[images, 3\]"):
            made.set_model_input("image_grid_thw", np.array([1, 2, 2]))


def test_engines_and_drafts_refuse_images(model: Model) -> None:
    with pytest.raises(Unsupported, match="an engine runs no model with an encoder"):
        Engine(model)
    params = GeneratorParams(model)
    params.set_speculative_options(ngram_size=3)
    with pytest.raises(Unsupported, match="has an encoder"):
        Generator(model, params)


def test_pixels_are_those_of_pillow_and_the_formula(tmp_path: Path) -> None:
    from PIL import Image

    model = Model(write_pictured(tmp_path / "gemma", "gemma3"))
    (tmp_path / "a.png").write_bytes(picture(40, 20, 1))
    given = model.create_multimodal_processor()(images=Images.open(tmp_path / "a.png"))
    with Image.open(tmp_path / "a.png") as image:
        resized = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)
    expected = ((resized / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(given["pixel_values"].as_numpy(), expected, atol=1e-6)


def test_patches_that_are_merged_follow_each_other() -> None:
    pixels = np.arange(8 * 12 * 3, dtype=np.float32).reshape(8, 12, 3)
    patches = Patches(2, 2, 2)
    assert patches.grid(pixels) == (1, 4, 6)
    found = patches(pixels).reshape(2, 3, 2, 2, 3, 2, 2, 2)
    for row, column, y, x, color, frame, top, left in np.ndindex(found.shape):
        expected = pixels[4 * row + 2 * y + top, 4 * column + 2 * x + left, color]
        assert found[row, column, y, x, color, frame, top, left] == expected
    with pytest.raises(Refused, match="no whole number of patches"):
        patches(pixels[:6])


@pytest.mark.parametrize(
    ("sides", "expected"),
    # By the formula of transformers' smart_resize, evaluated by hand.
    [
        ((100, 100), (112, 112)),
        ((14, 14), (56, 56)),
        ((1000, 500), (1008, 504)),
        ((10000, 5000), (5068, 2520)),
        ((28, 28 * 200), (28, 5600)),
    ],
)
def test_sides_become_multiples(sides: tuple[int, int], expected: tuple[int, int]) -> None:
    resize = Resize("BICUBIC", 1, 1, True, 28, 3136, 12845056)
    assert resize.fitted(*sides) == expected
    with pytest.raises(Refused, match="too narrow"):
        resize.fitted(28, 28 * 201)


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    [
        ([("Phi3ImageTransform", {})], Unsupported, "'Phi3ImageTransform', which does not run"),
        ([("Resize", {"width": 9})], Unsupported, "keeps the shape"),
        ([("Resize", {"width": 1 << 20, "keep_aspect_ratio": 0})], Refused, "width of Resize"),
        ([("Resize", {"interpolation": "BEST", "keep_aspect_ratio": 0})], Refused, "interpolation"),
        ([("Resize", {"smart_resize": 1, "max_pixels": 1 << 40})], Refused, "max_pixels"),
        ([("Normalize", {"std": [1, 0, 1]})], Refused, "a zero"),
        ([("Normalize", {"mean": [1, 2]})], Refused, "mean of Normalize"),
        ([("Normalize", {"mean": [1, 2, float("nan")]})], Refused, "mean of Normalize"),
        ([("Permute3D", {"dims": [0, 0, 1]})], Refused, "dims of Permute3D"),
        ([("PatchImage", {"patch_size": 0})], Refused, "patch_size"),
        ([], Refused, "no transforms"),
    ],
)
def test_what_a_processor_may_not_say(
    tmp_path: Path, operations: Any, error: type[Exception], message: str
) -> None:
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps(processing(operations)))
    with pytest.raises(error, match=message):
        read_processing(str(path))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_formats(form: str) -> None:
    (found,) = Images.open_bytes(picture(30, 20, 3, form))
    assert found.pixels().shape == (20, 30, 3)


def test_what_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenonnx_generate import picture_files

    with pytest.raises(Refused, match="image 1 is no image of"):
        Images.open_bytes(b"GIF8 but nothing else")
    with pytest.raises(Refused, match="image 1 is no image of"):
        Images.open_bytes(picture(9, 9, form="TIFF"))
    (cut,) = Images.open_bytes(picture(200, 200)[:300])
    with pytest.raises(Refused, match="image 1 cannot be decoded"):
        cut.pixels()
    with pytest.raises(Missing, match="does not exist"):
        Images.open(tmp_path / "none.png")
    with pytest.raises(Refused, match="there are no images"):
        Images.open_bytes()
    with pytest.raises(Refused, match="at most 64"):
        Images.open_bytes(*[picture(4, 4)] * 65)
    monkeypatch.setattr(picture_files, "MOST_PIXELS", 99)
    with pytest.raises(Refused, match="10 x 10 pixels; at most 99"):
        Images.open_bytes(picture(10, 10))


def test_photographs_are_turned_as_cameras_say() -> None:
    import io

    from PIL import Image

    image, file = Image.new("RGB", (20, 10), (200, 0, 0)), io.BytesIO()
    told = image.getexif()
    told[0x0112] = 6  # turned by a quarter
    image.save(file, "JPEG", exif=told)
    (found,) = Images.open_bytes(file.getvalue())
    assert found.pixels().shape == (20, 10, 3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"vision": {"pipeline": [{"a": {}}]}}, Unsupported, "several graphs"),
        ({"vision": {"filename": "../x"}}, Refused, "no file inside"),
        ({"vision": {"filename": "embedding.onnx"}}, Refused, "no input 'pixel_values'"),
        ({"embedding": {"filename": "model.onnx"}}, Refused, "no input 'input_ids'"),
        ({"embedding": None}, Refused, "embedding"),
        ({"image_token_id": 1 << 20}, Refused, "image_token_id"),
    ],
)
def test_folders_that_cannot_be(
    tmp_path: Path, change: Any, error: type[Exception], message: str
) -> None:
    folder = write_pictured(tmp_path / "folder", "qwen2_5_vl", **change)
    with pytest.raises(error, match=message):
        Model(folder)


def test_models_of_text_take_no_images(tmp_path: Path) -> None:
    model = Model(write_folder(tmp_path / "folder"))
    with pytest.raises(Unsupported, match="takes no sounds"):
        model.create_multimodal_processor()
    with pytest.raises(Refused, match="takes no 'pixel_values'"):
        generator(model).set_model_input("pixel_values", np.zeros(3))
    with pytest.raises(Unsupported, match="'phi3v', which has images in another form"):
        Model(write_folder(tmp_path / "other", model={"type": "phi3v"}))


def test_numbers_are_no_contents_of_images() -> None:
    with pytest.raises(TypeError, match="image: expected bytes, found int"):
        Images.open_bytes(1000)  # type: ignore[arg-type] # it would be so many zeros
