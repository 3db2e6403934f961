"""A feed, of a fake stream and source."""

import pytest
from hdmlp._loading.feed import Feed


class Closes:
    closed = broken = False

    def close(self):
        self.closed = True


class Interrupted(Closes):
    def close(self):
        raise KeyboardInterrupt


def test_an_interrupted_close_leaves_the_job():
    """Ctrl-C may end the wait for workers. The rank must be free for another loader then."""
    stream = Closes()
    feed = Feed(lambda: (stream, Interrupted()))
    feed.ready()
    with pytest.raises(KeyboardInterrupt):
        feed.close()
    assert stream.closed
    assert not feed.is_open
