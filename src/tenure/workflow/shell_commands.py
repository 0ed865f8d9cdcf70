"""The words of commands as they are read, and which values in them no reference could stand for."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.workflow.shell_frames import WITH_WORDS, Frame
from tenure.workflow.shell_places import Place
from tenure.workflow.shell_words import Numbers, Word, evaluated_in_command, evaluated_in_test


class Commands:
    """``places`` are those found so far; ``numbers`` the variables that are evaluated when set."""

    def __init__(self, places: list[Place], numbers: Iterable[str]) -> None:
        self.places = places
        self.numbers = Numbers(numbers)

    def put(self, value: int, frames: Iterable[Frame]) -> None:
        """It stands in a word of each of them."""
        for frame in frames:
            if frame.kind in WITH_WORDS:
                frame.word.values.append((len(frame.word.text), value))

    def end_word(self, frame: Frame) -> None:
        word, frame.word = frame.word, Word()
        if not word.begun:
            return
        if frame.redirects:
            frame.redirects = False
            return
        if frame.kind == "array":
            return
        if frame.leads and frame.kind != "test" and word.text in ("case", "esac"):
            if not word.quoted:
                frame.depth = max(0, frame.depth + (1 if word.text == "case" else -1))
        elif word.text == "{" and frame.words and frame.words[0].text == "function":
            frame.words, frame.leads = [], True
            return
        frame.words.append(word)
        frame.leads = frame.leads and (word.reserved or word.assigns is not None)

    def end(self, frame: Frame) -> None:
        if frame.kind not in WITH_WORDS:
            return
        self.end_word(frame)
        words, frame.words = frame.words, []
        frame.leads, frame.redirects = True, False
        if frame.kind == "test":
            self.refuse(evaluated_in_test(words))
        else:
            self.refuse(evaluated_in_command(words, self.numbers))

    def refuse(self, found: Iterable[tuple[int, Place]]) -> None:
        for value, place in found:
            if not self.places[value].unfit:
                self.places[value] = place
