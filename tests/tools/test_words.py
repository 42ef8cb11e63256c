from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import CLEAN, TOP, files, found_in, main, vague_folders


def test_the_clean_folders_have_none_of_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main([]), capsys.readouterr().out) == (0, "")


def test_every_clean_folder_is_there_and_is_read() -> None:
    for name in CLEAN:
        assert list(files([TOP / name])), name


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("so many Octets", "bytes"),
        ("waits for ever", "forever, or without a limit"),
        ("the broker's own words", "error message"),
        ("Marks such as `heart-beats`", "heartbeats"),
        ("def test_a_pause_is_not_held_against_it():", "not protected"),
    ],
)
def test_a_word_is_found_in_any_case_with_its_line(text: str, instead: str) -> None:
    assert [(line, better) for line, _, better in found_in(f"\n{text}\n")] == [(2, instead)]


@pytest.mark.parametrize("text", ["the header `heart-beat`", "application/octet-stream", "forever", "headwords"])
def test_other_words_and_media_types_are_left_alone(text: str) -> None:
    assert list(found_in(text)) == []


def test_a_file_or_folder_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.md").write_text("under way\n")
    (tmp_path / "data.bin").write_text("octets\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{tmp_path}/page.md:1: 'under way': write in flight\n"


def test_a_folder_whose_docstrings_name_things_vaguely_is_found(tmp_path: Path) -> None:
    for folder, text in (("vague", "Return what somebody has asked for."), ("plain", "Return the frame.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").write_text(f'"""{text}"""\n')
    assert [(folder, density > most) for folder, density, most in vague_folders(tmp_path)] == [("vague", True)]
