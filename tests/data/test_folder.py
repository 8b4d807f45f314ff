"""load_folder, on real files: what is read, in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from autodo.data import load_folder
from autodo.errors import InputError


def write(path: Path, array: np.ndarray | None = None, **options: object) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    if array is None:
        seed = sum(path.as_posix().encode())
        array = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    Image.fromarray(array).save(path, **options)
    return array


def grey(size: tuple[int, int] = (6, 5)) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)


def test_round_trip_of_png_files(tmp_path: Path) -> None:
    names = ["cat/2.png", "cat/10.png", "dog/deep/er/1.PNG", "dog/0.png"]
    arrays = {name: write(tmp_path / name) for name in names}
    told: list[tuple[int, int]] = []
    data = load_folder(tmp_path, progress=lambda *done: told.append(done))
    assert data.class_names == ("cat", "dog")
    assert data.ids == ("cat/10.png", "cat/2.png", "dog/0.png", "dog/deep/er/1.PNG")
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.images.dtype == torch.uint8
    for name, image in zip(data.ids, data.images, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), arrays[name])
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    "suffix", ["png", "jpg", "jpeg", "bmp", "gif", "webp", "ppm", "pgm", "tif", "tiff"]
)
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "cat" / f"a.{suffix}")
    assert load_folder(str(tmp_path)).image_shape == (3, 6, 5)


def test_hidden_entries_and_other_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "cat" / "a.png")
    for name in (".git/b.png", "cat/.c.png", "cat/.thumbs/d.png"):
        write(tmp_path / name)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "README").write_text("x")
    assert load_folder(tmp_path).ids == ("cat/a.png",)


@pytest.mark.parametrize(
    ("mode", "channels"),
    [
        ("1", 1),
        ("L", 1),
        ("LA", 1),
        ("I;16", 1),
        ("P", 3),
        ("RGB", 3),
        ("RGBA", 3),
        ("CMYK", 3),
        ("YCbCr", 3),
    ],
)
def test_grey_stays_grey_and_colour_becomes_rgb(tmp_path: Path, mode: str, channels: int) -> None:
    (tmp_path / "cat").mkdir()
    suffix = {"CMYK": "tif", "YCbCr": "jpg"}.get(mode, "png")
    Image.new(mode, (5, 6)).save(tmp_path / "cat" / f"a.{suffix}")
    assert load_folder(tmp_path).image_shape == (channels, 6, 5)
    assert load_folder(tmp_path, channels=1).image_shape == (1, 6, 5)
    assert load_folder(tmp_path, channels=3).image_shape == (3, 6, 5)


def test_sixteen_bit_grey_keeps_its_shades(tmp_path: Path) -> None:
    shades = np.array([[0, 256, 32768, 65535]], dtype=np.uint16)
    write(tmp_path / "cat" / "a.png", shades)
    assert load_folder(tmp_path).images.flatten().tolist() == [0, 1, 128, 255]


def test_transparent_palettes_are_read_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "cat").mkdir()
    image = Image.fromarray(grey()).convert("P")
    image.save(tmp_path / "cat" / "a.png", transparency=bytes([0, 128]))
    assert load_folder(tmp_path).image_shape == (3, 6, 5)
    assert not recwarn.list


def test_orientation_of_a_camera_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees to see it upright
    array = write(tmp_path / "cat" / "a.png", grey(), exif=exif)
    assert np.array_equal(load_folder(tmp_path).images[0, 0].numpy(), np.rot90(array, k=-1))


@pytest.mark.parametrize(("size", "shape"), [(8, (3, 8, 8)), ((4, 7), (3, 4, 7))])
def test_image_size_resizes(tmp_path: Path, size: int | tuple[int, int], shape: tuple) -> None:
    write(tmp_path / "cat" / "a.png")
    write(tmp_path / "cat" / "b.png", np.zeros((9, 3, 3), dtype=np.uint8))
    assert load_folder(tmp_path, image_size=size).image_shape == shape


def test_labels_follow_the_class_names_of_train(tmp_path: Path) -> None:
    for name in ("cat", "dog", "fox"):
        write(tmp_path / name / "a.png")
    data = load_folder(tmp_path, name="trusted", class_names=["fox", "cat", "dog"])
    assert dict(zip(data.ids, data.labels.tolist(), strict=True)) == {
        "fox/a.png": 0,
        "cat/a.png": 1,
        "dog/a.png": 2,
    }


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load_folder(path, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_unknown_and_missing_classes_are_named(tmp_path: Path) -> None:
    for name in ("cat", "Dog"):
        write(tmp_path / name / "a.png")
    message = refusal(tmp_path, name="trusted", class_names=["cat", "dog", "fox"])
    assert "class folders of trusted" in message
    assert "without a folder: dog, fox" in message
    assert "not a known class: Dog" in message


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nowhere", name="trusted")
    assert f"the trusted folder '{tmp_path / 'nowhere'}' does not exist" in message


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_bytes(b"PK")
    assert f"'{tmp_path / 'data.zip'}' is a file" in refusal(tmp_path / "data.zip")


def test_an_empty_folder(tmp_path: Path) -> None:
    assert f"the train folder '{tmp_path}' is empty" in refusal(tmp_path)


def test_images_without_class_folders(tmp_path: Path) -> None:
    write(tmp_path / "a.png")
    write(tmp_path / "b.png")
    message = refusal(tmp_path)
    assert "has 2 images (a.png, b.png) but no class sub-folders" in message
    assert "one sub-folder per class" in message


def test_a_class_folder_without_images_is_named(tmp_path: Path) -> None:
    write(tmp_path / "cat" / "a.png")
    (tmp_path / "dog").mkdir()
    message = refusal(tmp_path)
    assert "no image in 1 class folder of train" in message
    assert str(tmp_path / "dog") in message


def test_linked_folders_inside_a_class_folder_are_passed_over_as_is_said(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(tmp_path / "elsewhere" / "a.png")
    (root / "cat").mkdir(parents=True)
    (root / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    assert "linked folders inside a class folder are passed over" in refusal(root)
    (root / "cat" / "b.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    (root / "dog").symlink_to(tmp_path / "elsewhere")
    (root / "dog" / "circle").symlink_to(root / "dog")
    assert load_folder(root).ids == ("cat/b.png", "dog/a.png")


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_truncated_and_corrupt_files_are_all_named_with_the_reason(
    tmp_path: Path, suffix: str
) -> None:
    write(tmp_path / "cat" / "a.png")
    cut = tmp_path / "cat" / f"cut.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    write(cut, noise)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (tmp_path / "cat" / "page.jpg").write_text("<html>404</html>")
    message = refusal(tmp_path, image_size=8)
    assert "2 image files of train" in message
    assert f"cat/cut.{suffix} (OSError: " in message
    assert "truncated" in message
    assert "cat/page.jpg (UnidentifiedImageError: cannot identify" in message


def test_mixed_sizes_are_counted_with_a_file_of_each(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / "cat" / f"{name}.png")
    write(tmp_path / "dog" / "odd.png", np.zeros((9, 4, 3), dtype=np.uint8))
    message = refusal(tmp_path)
    assert "2 sizes" in message
    assert "6x5: 3 images such as cat/a.png" in message
    assert "9x4: 1 image such as dog/odd.png" in message
    assert "--image-size" in message


def test_mixed_channels_are_counted_with_a_file_of_each(tmp_path: Path) -> None:
    write(tmp_path / "cat" / "a.png")
    write(tmp_path / "cat" / "b.png")
    write(tmp_path / "dog" / "grey.png", grey())
    message = refusal(tmp_path)
    assert "3: 2 images such as cat/a.png" in message
    assert "1: 1 image such as dog/grey.png" in message
    assert "--channels" in message
    assert load_folder(tmp_path, channels=1).image_shape == (1, 6, 5)


@pytest.mark.parametrize("pixels", [29, 10])  # Pillow warns above its limit, raises above twice it
def test_gigantic_images_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pixels: int
) -> None:
    write(tmp_path / "cat" / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
    message = refusal(tmp_path)
    assert "cat/a.png (DecompressionBomb" in message
    assert "30 pixels" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [({"image_size": 0}, "size of (0, 0)"), ({"channels": 2}, "2 channels")],
)
def test_senseless_options_are_refused(tmp_path: Path, options: dict, words: str) -> None:
    assert words in refusal(tmp_path, **options)
