"""Own prompts for language models, made from word lists by a seed: tasks, formats and questions.

A prompt names the group that its fold keeps together: a story with its scramble, a topic in all
formats, a question under all instructions. A question has one right answer and three wrong ones,
which the model is not shown: it answers in words, and has no letter or place to prefer.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from intarsia.errors import StudyError
from intarsia.files import stream
from intarsia.studies.lens.text_kinds import scrambled

ANSWERS = 4  # of a question

T = TypeVar("T")


@dataclass(frozen=True)
class Prompt:
    """What a model is asked, what is to be told from its profile, and what it belongs to."""

    text: str
    label: str
    group: str
    wording: str = ""
    answers: tuple[str, ...] = ()  # of a question, the right one first


TASKS: dict[str, tuple[str, str]] = {
    "generative": (
        "Write the next sentence of this text.",
        "Go on with the text in your own words.",
    ),
    "syntactic": (
        "How many words does this text have?",
        "Which is the first verb of the text?",
    ),
    "semantic": (
        "Who is this text about?",
        "What do we learn from the text?",
    ),
}
"""Two questions for each kind of task."""


def task_prompts(stories: int, seed: int) -> list[Prompt]:
    """Every story and its scramble under every question, which stands before or behind the text."""
    result = []
    for place, story in enumerate(made_stories(stories, seed)):
        forms = {"story": story, "scramble": scrambled(story, seed)}
        for task, questions in TASKS.items():
            for question in questions:
                for text in forms.values():
                    for whole in (f"{question}\n\n{text}", f"{text}\n\n{question}"):
                        result.append(Prompt(whole, task, f"story {place}", question))
    return result


FORMATS: dict[str, tuple[str, str]] = {
    "poem": ("Write a poem about {}.", "Give me some verses on {}."),
    "science": (
        "Write a paragraph of a scientific article about {}.",
        "Give me part of a research report on {}.",
    ),
    "chat": (
        "Write a chat log of two friends who talk about {}.",
        "Give me a dialogue in messages on {}.",
    ),
}
"""Two wordings for each format."""


def format_prompts(topics: int, seed: int) -> list[Prompt]:
    """Every topic in every format, in one wording by turns."""
    chosen = drawn([f"{a} {b}" for a in QUALITIES for b in TOPICS], topics, "topics", seed)
    return [
        Prompt(wordings[place % 2].format(topic), name, topic, wordings[place % 2])
        for place, topic in enumerate(chosen)
        for name, wordings in FORMATS.items()
    ]


INSTRUCTIONS: dict[str, str] = {
    "base": "",
    "humble": "Answer the question. You may not know the answer; then say the likeliest.\n\n",
    "instruct": "You are an expert in all subjects. Answer the question.\n\n",
}
"""What stands before a question."""
ANSWER = "Answer:"  # the end of every question; alone, what answers are calibrated by


def question_prompts(questions: int, instruction: str, seed: int) -> list[Prompt]:
    """Questions of several kinds by turns; the kind is the label, the group the question."""
    generator = random.Random(stream("questions", seed))
    kinds = list(QUESTIONS)
    result: list[Prompt] = []
    seen: set[str] = set()
    while len(result) < questions:
        kind = kinds[len(result) % len(kinds)]
        for _ in range(TRIES):
            question, right, wrong = QUESTIONS[kind](generator)
            if question not in seen:
                break
        else:
            raise StudyError(
                f"there are too few questions of the kind {kind!r} for {questions}: ask for fewer"
            )
        seen.add(question)
        answers = (right, *generator.sample(wrong, ANSWERS - 1))
        text = f"{INSTRUCTIONS[instruction]}Question: {question}\n{ANSWER}"
        result.append(Prompt(text, kind, f"question {len(result)}", instruction, answers))
    return result


TRIES = 200  # draws until a question is new


def _sum(generator: random.Random) -> tuple[str, str, list[str]]:
    a, b = generator.randint(11, 99), generator.randint(11, 99)
    return f"What is {a} + {b}?", str(a + b), _near(a + b)


def _difference(generator: random.Random) -> tuple[str, str, list[str]]:
    b, rest = generator.randint(11, 60), generator.randint(11, 60)
    return f"What is {b + rest} - {b}?", str(rest), _near(rest)


def _product(generator: random.Random) -> tuple[str, str, list[str]]:
    a, b = generator.randint(3, 19), generator.randint(3, 19)
    near = {a * (b + 1), a * (b - 1), (a + 1) * b, (a - 1) * b, a * b + 10, a * b - 2} - {a * b}
    return f"What is {a} times {b}?", str(a * b), list(map(str, sorted(near)))


def _near(number: int) -> list[str]:
    """Wrong answers to a sum: off by one or two, or by ten."""
    return [str(number + step) for step in (-10, -2, -1, 1, 2, 10)]


def _capital(generator: random.Random) -> tuple[str, str, list[str]]:
    country = generator.choice(sorted(CAPITALS))
    others = sorted(set(CAPITALS.values()) - {CAPITALS[country]})
    return f"What is the capital of {country}?", CAPITALS[country], others


def _continent(generator: random.Random) -> tuple[str, str, list[str]]:
    continent = generator.choice(sorted(CONTINENTS))
    country = generator.choice(CONTINENTS[continent])
    others = [name for name in CONTINENTS if name != continent]
    return f"On which continent is {country}?", continent, others


def _largest(generator: random.Random) -> tuple[str, str, list[str]]:
    numbers = generator.sample(range(10, 1000), 4)
    names = list(map(str, numbers))
    right = str(max(numbers))
    joined = ", ".join(names)
    others = [name for name in names if name != right]
    return f"Which of {joined} is the largest number?", right, others


def _opposite(generator: random.Random) -> tuple[str, str, list[str]]:
    word = generator.choice(sorted(OPPOSITES))
    others = sorted(set(OPPOSITES.values()) - {OPPOSITES[word]})
    return f"Which word is the opposite of '{word}'?", OPPOSITES[word], others


def _alphabet(generator: random.Random) -> tuple[str, str, list[str]]:
    words = generator.sample(sorted({*OPPOSITES, *OPPOSITES.values()}), ANSWERS)
    right, joined = min(words), ", ".join(words)
    others = [word for word in words if word != right]
    return f"Which of {joined} is the first in the alphabet?", right, others


Maker = Callable[[random.Random], tuple[str, str, list[str]]]

QUESTIONS: dict[str, Maker] = {
    "sum": _sum,
    "difference": _difference,
    "product": _product,
    "largest": _largest,
    "capital": _capital,
    "continent": _continent,
    "opposite": _opposite,
    "alphabet": _alphabet,
}
"""Kinds of questions: each draws a question, its answer and wrong ones."""


def made_stories(count: int, seed: int) -> list[str]:
    """Short stories of four or five sentences, no two of the same child, animal and place."""
    heroes = [(n, a, p) for n in NAMES for a in ANIMALS for p in PLACES]
    result = []
    for place, (name, animal, where) in enumerate(drawn(heroes, count, "stories", seed)):
        generator = random.Random(stream("story", seed, place))
        thing, feeling = generator.choice(POSSESSIONS), generator.choice(FEELINGS)
        begin, event, help_, end = (
            generator.choice(own) for own in (BEGINNINGS, EVENTS, HELP, ENDINGS)
        )
        words = {"name": name, "animal": animal, "where": where, "thing": thing, "feel": feeling}
        result.append(" ".join(part.format(**words) for part in (begin, event, help_, end)))
    return result


def drawn(items: list[T], count: int, purpose: str, seed: int) -> list[T]:
    """So many of the items, each once."""
    if count > len(items):
        raise StudyError(f"there are {len(items)} {purpose}: expected {count} or more, take fewer")
    return random.Random(stream(purpose, seed)).sample(items, count)


NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Henry", "Ida", "Jack")
ANIMALS = ("dog", "cat", "rabbit", "duck", "goat", "bird", "pony", "frog", "mouse", "squirrel")
PLACES = ("garden", "forest", "park", "village", "meadow", "harbour", "farm", "school yard")
POSSESSIONS = ("red ball", "blue kite", "wooden boat", "golden key", "little drum", "warm hat")
FEELINGS = ("sad", "worried", "angry", "surprised", "afraid")
BEGINNINGS = (
    "One sunny day {name} went to the {where} with a {thing}.",
    "{name} lived near a {where} and had a {thing}.",
    "In the morning {name} took a {thing} and walked to the {where}.",
)
EVENTS = (
    "The wind was strong and the {thing} was gone, so {name} was {feel}.",
    "A {animal} came, took the {thing} and ran away. {name} was {feel}.",
    "Suddenly the {thing} fell into the water, and {name} felt {feel}.",
)
HELP = (
    'A small {animal} saw it and said, "I will help you."',
    "Then {name} met a {animal} who knew what to do.",
    "A friendly {animal} looked for it behind the old tree.",
)
ENDINGS = (
    "They found the {thing} together and became good friends.",
    "At last {name} shared the {thing} with the {animal}, and both were happy.",
    "In the evening {name} went home and thanked the {animal}.",
)
QUALITIES = ("old", "new", "lost", "quiet", "bright", "cold")
TOPICS = (
    "rivers", "bridges", "stars", "gardens", "trains", "clocks", "storms", "forests", "letters",
    "machines", "birds", "mountains", "islands", "markets", "songs", "windows", "harbours", "bees",
)  # fmt: skip
CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
    "China": "Beijing", "Russia": "Moscow", "Egypt": "Cairo", "Greece": "Athens",
    "Portugal": "Lisbon", "Austria": "Vienna", "Poland": "Warsaw", "Hungary": "Budapest",
    "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen",
    "Ireland": "Dublin", "Belgium": "Brussels", "Canada": "Ottawa", "Cuba": "Havana",
    "Peru": "Lima", "Chile": "Santiago", "Argentina": "Buenos Aires", "Kenya": "Nairobi",
    "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Iran": "Tehran",
    "Iraq": "Baghdad", "Turkey": "Ankara", "Ukraine": "Kyiv", "Romania": "Bucharest",
    "Bulgaria": "Sofia", "Croatia": "Zagreb", "Serbia": "Belgrade", "Nepal": "Kathmandu",
    "Indonesia": "Jakarta", "Australia": "Canberra", "Iceland": "Reykjavik", "Ghana": "Accra",
    "Ethiopia": "Addis Ababa", "Ecuador": "Quito", "Venezuela": "Caracas", "Uruguay": "Montevideo",
    "Jordan": "Amman", "Lebanon": "Beirut", "Syria": "Damascus", "Qatar": "Doha", "Oman": "Muscat",
    "Latvia": "Riga", "Estonia": "Tallinn", "Lithuania": "Vilnius", "Slovakia": "Bratislava",
    "Slovenia": "Ljubljana", "Albania": "Tirana", "Tunisia": "Tunis", "Algeria": "Algiers",
    "Morocco": "Rabat", "Senegal": "Dakar", "Uganda": "Kampala", "Rwanda": "Kigali",
    "Zambia": "Lusaka", "Mongolia": "Ulaanbaatar", "Laos": "Vientiane", "Cambodia": "Phnom Penh",
}  # fmt: skip
CONTINENTS = {
    "Europe": (
        "France", "Italy", "Spain", "Germany", "Greece", "Portugal", "Austria", "Poland",
        "Hungary", "Norway", "Sweden", "Finland", "Denmark", "Ireland", "Belgium", "Ukraine",
        "Romania", "Bulgaria", "Croatia", "Serbia", "Iceland", "Latvia", "Estonia", "Albania",
    ),
    "Asia": (
        "Japan", "China", "India", "Thailand", "Vietnam", "Iran", "Iraq", "Nepal", "Jordan",
        "Lebanon", "Syria", "Qatar", "Oman", "Mongolia", "Laos", "Cambodia", "Pakistan", "Yemen",
    ),
    "Africa": (
        "Egypt", "Kenya", "Ghana", "Ethiopia", "Tunisia", "Algeria", "Morocco", "Senegal",
        "Uganda", "Rwanda", "Zambia", "Nigeria", "Angola", "Mali", "Chad", "Sudan", "Libya",
    ),
    "South America": (
        "Peru", "Chile", "Argentina", "Ecuador", "Venezuela", "Uruguay", "Brazil", "Bolivia",
        "Colombia", "Paraguay", "Guyana", "Suriname",
    ),
    "North America": (
        "Canada", "Cuba", "Mexico", "Guatemala", "Honduras", "Panama", "Jamaica", "Haiti",
        "Costa Rica", "Nicaragua", "Belize", "El Salvador",
    ),
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "early": "late", "light": "dark", "hard": "soft",
    "high": "low", "rich": "poor", "young": "old", "full": "empty", "open": "closed",
    "happy": "sad", "strong": "weak", "loud": "quiet", "wet": "dry", "clean": "dirty",
    "easy": "difficult", "near": "far", "thick": "thin", "right": "wrong", "true": "false",
    "begin": "end", "buy": "sell", "win": "lose", "love": "hate", "push": "pull", "up": "down",
    "day": "night", "summer": "winter", "front": "back", "inside": "outside", "always": "never",
    "first": "last", "give": "take", "cheap": "expensive", "wide": "narrow", "deep": "shallow",
    "smooth": "rough", "sharp": "blunt", "brave": "cowardly", "polite": "rude", "safe": "dangerous",
    "north": "south", "east": "west", "public": "private", "ancient": "modern", "arrive": "depart",
    "remember": "forget", "ask": "answer", "rise": "fall", "sweet": "bitter", "tall": "short",
    "friend": "enemy", "success": "failure", "peace": "war", "life": "death", "heavy": "weightless",
    "accept": "refuse", "attack": "defend", "increase": "decrease", "maximum": "minimum",
}  # fmt: skip
