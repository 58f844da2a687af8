"""The journal alone leads to what the controller knew: for every story, to the last line."""

from pathlib import Path

import pytest

from ottla.explain.cluster_state import ClusterState

STORIES = Path(__file__).parents[2] / "stories"
NAMES = sorted(p.stem for p in STORIES.glob("*.txt") if "\non brokers\n" not in p.read_text())


def picture_of(told):
    picture = ClusterState()
    for entry in told.entries():
        picture.take(entry)
    return picture


def known(context):
    return {
        str(tp): (
            assignment,
            context.leadership[tp].leader_and_isr if tp in context.leadership else None,
            context.partition_states[tp].value,
        )
        for tp in context.partitions()
        for assignment in [context.assignment(tp)]
    }


def pictured(picture):
    return {
        f"{name}-{number}": (
            part.assignment,
            part.leadership,
            part.state,
        )
        for name, topic in picture.topics.items()
        for number, part in topic.partitions.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_the_context_of_the_last_controller(told, name):
    story = told(name)
    assert len(story.contexts) <= 1
    picture = picture_of(story)
    for context in story.contexts:
        assert pictured(picture) == known(context)
        assert sorted(picture.brokers) == sorted(context.brokers)
        assert picture.shutting_down == context.shutting_down
        assert list(picture.deleting) == list(context.deleting)
        assert picture.epoch == context.epoch


def test_most_stories_end_with_a_controller_in_office(told):
    with_context = [name for name in NAMES if told(name).contexts]
    assert len(with_context) >= 15
