package cache

import (
	"iter"
	"time"

	"github.com/hdmlp/hdmlp/internal/report"
)

// Streams returns how many samples may be read from the source at the same time now.
func (c *Cache) Streams() int {
	if c.gate == nil {
		return c.pool.Most()
	}
	return c.gate.Limit()
}

// StreamChanges returns how many samples might be read from the source at the same time since the
// cache was made, with the times of changes; none if their number is fixed.
func (c *Cache) StreamChanges() iter.Seq2[time.Time, int] {
	return c.gate.Changes()
}

// FoundStreams returns the number of reads from the source at the same time that this cache has
// found to be best, its version, and a channel that is closed when there is a later one. The
// version is 0 until there is one, and if the number is fixed.
func (c *Cache) FoundStreams() (is report.Streams, version int, news <-chan struct{}) {
	if c.gate == nil {
		return report.Streams{Number: c.pool.Most()}, 0, nil
	}
	number, takes, version, news := c.gate.Found()
	return report.Streams{Number: number, Takes: takes.Seconds()}, version, news
}

// ExpectStreams has the cache wait for some time for what another node finds (FollowStreams).
func (c *Cache) ExpectStreams() {
	if c.gate != nil {
		c.gate.Expect()
	}
}

// FollowStreams makes the number that another node's cache has found this one's for some time,
// within its limits. It does not if the number is fixed, or reads take much longer or shorter here.
func (c *Cache) FollowStreams(found report.Streams) {
	if c.gate != nil {
		c.gate.Follow(found.Number, time.Duration(found.Takes*float64(time.Second)))
	}
}
