"""All bugs, each with its sentence."""

from dataclasses import dataclass

from tests.mutations import activation, conversations, conversations_of_instances, observing, periodic_tasks, routing
from tests.mutations.bug import Bug, Bugs, MisfitError
from tests.mutations.sentences import Sentence, sentences

BUGS: dict[str, Bugs] = {
    "activation": activation.BUGS,
    "routing": routing.BUGS,
    "periodic tasks": periodic_tasks.BUGS,
    "conversations": conversations.BUGS | conversations_of_instances.BUGS,
    "observing": observing.BUGS,
}


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, and the sentence that it contradicts."""

    list_name: str
    sentence: Sentence
    bug: Bug


def all_planted() -> list[Planted]:
    """Returns all bugs, in the order of the lists.

    Raises:
        MisfitError: A bug's sentence is not exactly one of its list.
    """
    found = []
    for name, bugs in BUGS.items():
        listed = sentences(name)
        for beginning, of_sentence in bugs.items():
            matching = [each for each in listed if each.text.startswith(beginning)]
            if len(matching) != 1:
                raise MisfitError(f"{len(matching)} sentences of the list {name}, instead of one, begin: {beginning}")
            found += [Planted(name, matching[0], bug) for bug in of_sentence]
    return found
