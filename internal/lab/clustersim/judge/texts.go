package judge

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

var (
	ofSample = regexp.MustCompile(`sample (\d+) \(/`)
	ofRank   = regexp.MustCompile(`^rank (\d+)(?: on node (\d+) \(.+?\))? stopped: `)
)

// quoted judges an error that is quoted as another rank's: that rank must have got it. The text for
// others may add what to do.
func (c *court) quoted(e Event, l script.Launch, events []Event) {
	m := ofRank.FindStringSubmatch(e.Text)
	if m == nil {
		return
	}
	rank, _ := strconv.Atoi(m[1])
	ended := false // the other's process got no error, because it was ended
	again := false // it broke off before its error, and then got that of a third rank
	for _, o := range events {
		if o.Rank != rank {
			continue
		}
		if o.Kind == Failed && strings.HasPrefix(e.Text[len(m[0]):], o.Text) {
			return
		}
		ended = ended || o.Kind == Left
		again = again || o.Kind == Failed && len(c.script.Breaks) > 0
	}
	if !ended && !again && rank != e.Rank && rank < l.WorldSize() {
		c.wrong(e, "an error of another rank that it did not get")
	}
}

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

// unplanned reports whether a plan cannot be made, and judges that an error says so.
func (c *court) unplanned(e Event) bool {
	if c.script.Unplanned() < 0 {
		return false
	}
	if !strings.Contains(e.Text, "the plan needs more memory than there is") {
		c.wrong(e, "an error that does not say that the plan cannot be made")
	}
	return true
}
