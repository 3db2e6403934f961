package report

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Hangs is how often a storage class did not respond to reads, over all jobs on the dataset:
// meanwhile samples were read from the source.
type Hangs struct {
	Reads   int     `json:"reads"`       // that were given up; a class that is slow has these too
	Times   int     `json:"times"`       // that it did not respond for 2 s or more
	Seconds float64 `json:"seconds"`     // sum of these times
	Age     float64 `json:"age_seconds"` // since the end of the last; 0: it still does not respond
}

// add adds those of another node's class.
func (h *Hangs) add(o *Hangs) {
	if o.Times > 0 && (h.Times == 0 || o.Age < h.Age) {
		h.Age = o.Age
	}
	h.Reads += o.Reads
	h.Times += o.Times
	h.Seconds += o.Seconds
}

// DoesNotRespond reports that the class's directory does not respond to reads, or did not, in a
// sentence without a full stop; it is empty if there is nothing to report.
func (c *Class) DoesNotRespond() string {
	switch path := human.Name(c.Path); {
	case c.Silent >= 1:
		return fmt.Sprintf("The cache directory %s has not responded for %.0f s: samples are read "+
			"from the source", path, c.Silent)
	case c.Hangs != nil && c.Hangs.Times > 0:
		return fmt.Sprintf("The cache directory %s did not respond %s, for %.1f s in all, the last "+
			"time until %.0f s ago: %s of it were given up, and samples were read from the source",
			path, plural(c.Hangs.Times, "time"), c.Hangs.Seconds, c.Hangs.Age,
			plural(c.Hangs.Reads, "read"))
	}
	return ""
}

// DoesNotReturn reports that a write to the class's directory has not returned, in a sentence
// without a full stop; it is empty if there is nothing to report.
func (c *Class) DoesNotReturn() string {
	if c.Writing == 0 {
		return ""
	}
	return fmt.Sprintf("A write to the cache directory %s has not returned for %.0f s: samples that "+
		"were to be kept there may not be, and are then read from the source again",
		human.Name(c.Path), c.Writing)
}

// notResponding states which classes do not respond, or in which writes took long, in sentences
// that begin with a space.
func notResponding(classes []Class) (text string) {
	for i := range classes {
		c := &classes[i]
		wrote := c.DoesNotReturn()
		if wrote == "" && c.LongestWrite > 0 {
			wrote = fmt.Sprintf("A write to the cache directory %s took %.1f s: samples that were to be "+
				"kept there meanwhile may have been read from the source again", human.Name(c.Path),
				c.LongestWrite)
		}
		for _, said := range []string{c.DoesNotRespond(), wrote} {
			if said != "" {
				text += " " + said + "."
			}
		}
	}
	return text
}
