package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Lacks returns how many bytes of its capacity the class cannot hold now, because memory is short:
// it keeps nothing more.
func (c *Class) Lacks() int64 {
	if c.Returned == nil || !c.Returned.Paused {
		return 0
	}
	return max(c.Capacity-c.Used, 0)
}

// Returned is memory that a class gave back because the machine or the job's control group was
// short of it.
type Returned struct {
	Bytes int64 `json:"bytes"` // given back since the class was opened for the dataset
	// Now is the part that was given back since memory became short; 0 if it no longer is.
	Now      int64 `json:"now_bytes"`
	Segments int   `json:"segments"` // given back
	// Viewed is the part that is not free yet, because training processes keep samples in it.
	Viewed int64   `json:"viewed_bytes"`
	Age    float64 `json:"age_seconds"` // since a segment was last given back
	Why    string  `json:"why"`         // the last reason
	// Paused means that memory is still short: the class keeps nothing more.
	Paused bool `json:"paused"`
}

// add adds what another class, or another node's, gave back.
func (c *Class) add(o Class) {
	c.Capacity += o.Capacity
	c.Used += o.Used
	c.Held.Add(o.Held)
	c.Stopped = cmp.Or(c.Stopped, o.Stopped)
	if c.Path == "" || cmp.Or(cmp.Compare(o.Silent, c.Silent), cmp.Compare(o.Writing, c.Writing),
		cmp.Compare(o.LongestWrite, c.LongestWrite)) > 0 { // of what is said first
		c.Path = o.Path
	}
	c.Silent, c.Writing = max(c.Silent, o.Silent), max(c.Writing, o.Writing)
	c.LongestWrite = max(c.LongestWrite, o.LongestWrite)
	if o.Hangs != nil {
		sum := *o.Hangs
		if c.Hangs != nil {
			sum.add(c.Hangs)
		}
		c.Hangs = &sum
	}
	if o.Forms != nil {
		sum := *o.Forms
		if c.Forms != nil {
			sum.add(c.Forms)
		}
		c.Forms = &sum
	}
	if o.Returned == nil {
		return
	}
	sum := Returned{Age: o.Returned.Age, Why: o.Returned.Why}
	if c.Returned != nil {
		sum = *c.Returned
		if o.Returned.Segments > 0 && (sum.Segments == 0 || o.Returned.Age < sum.Age) {
			sum.Age, sum.Why = o.Returned.Age, o.Returned.Why
		}
	}
	sum.Bytes += o.Returned.Bytes
	sum.Now += o.Returned.Now
	sum.Segments += o.Returned.Segments
	sum.Viewed += o.Returned.Viewed
	sum.Paused = sum.Paused || o.Returned.Paused
	c.Returned = &sum
}

// String describes what was given back, when and why, in a sentence without a name or full stop; it
// is empty if there is nothing to report.
func (r *Returned) String() string {
	if r == nil {
		return ""
	}
	var parts []string
	if r.Segments > 0 {
		since := ""
		if 0 < r.Now && r.Now < r.Bytes {
			since = fmt.Sprintf(", %s of it since memory became short again", human.Format(r.Now))
		}
		parts = append(parts, fmt.Sprintf("gave back %s%s, last %.0f s ago: %s",
			human.Format(r.Bytes), since, r.Age, r.Why))
	}
	if r.Viewed > 0 && r.Segments > 0 {
		parts = append(parts, fmt.Sprintf("%s of it are still in use, because the process keeps "+
			"samples in it", human.Format(r.Viewed)))
	}
	switch {
	case r.Paused && r.Segments > 0:
		parts = append(parts, "it keeps nothing more until memory is free again")
	case r.Paused:
		parts = append(parts, "keeps nothing more for now, because memory is short")
	}
	return strings.Join(parts, "; ")
}

// gaveBack states what the classes gave back, and why they keep nothing more, in sentences that
// begin with a space.
func gaveBack(classes []Class) (text string) {
	for _, c := range classes {
		if said := c.Returned.String(); said != "" {
			text += fmt.Sprintf(" Storage class %s %s.", c.Name, said)
		}
		if said := c.Forms.String(); said != "" {
			text += fmt.Sprintf(" Storage class %s %s.", c.Name, said)
		}
		if c.Stopped != "" {
			text += fmt.Sprintf(" Storage class %s keeps no more samples: %s.", c.Name, c.Stopped)
		}
	}
	return text
}
