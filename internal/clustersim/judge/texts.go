package judge

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/clustersim/script"
)

var (
	ofSample = regexp.MustCompile(`sample (\d+) \(/`)
	ofRank   = regexp.MustCompile(`^rank (\d+)(?: on node (\d+) \(.+?\))? stopped: `)
)

// explained judges the text of an error. Where samples are missing and nothing else goes wrong, it
// names a missing sample, and, on other ranks than that whose error it is, that rank and its node.
func (c *court) explained(e Event, l script.Launch) {
	if strings.Contains(e.Text, "context canceled") {
		c.wrong(e, "an error that says nothing")
	}
	s := c.script
	if len(s.Missing) == 0 || len(s.Events)+len(s.Stale) > 0 || s.Apart ||
		scattered(l) || c.differs(e.Launch) {
		return
	}
	rank := e.Rank
	if m := ofRank.FindStringSubmatch(e.Text); m != nil {
		rank, _ = strconv.Atoi(m[1])
		if l.Nodes > 1 && m[2] != strconv.Itoa(rank/l.Ranks) || rank == e.Rank {
			c.wrong(e, "an error with another rank's node, or the rank's own")
		}
	}
	m := ofSample.FindStringSubmatch(e.Text)
	if m == nil {
		c.wrong(e, "an error that names no sample")
		return
	}
	id, _ := strconv.Atoi(m[1])
	if !slices.Contains(s.Missing, id) || rank >= l.WorldSize() {
		c.wrong(e, "an error with a sample that is not missing, or with a rank that is not there")
	}
}
