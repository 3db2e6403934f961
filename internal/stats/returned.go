package stats

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/printable"
	"github.com/hdmlp/hdmlp/internal/size"
)

// add adds what another class, or another node's, gave back.
func (c *Class) add(o Class) {
	c.Capacity += o.Capacity
	c.Used += o.Used
	c.Held.Add(o.Held)
	if c.Path == "" || o.Silent > c.Silent {
		c.Path, c.Silent = o.Path, o.Silent
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
	sum.Segments += o.Returned.Segments
	sum.Viewed += o.Returned.Viewed
	sum.Paused = sum.Paused || o.Returned.Paused
	c.Returned = &sum
}

// String says what was given back, when and why, in a sentence without a name or full stop; it is
// empty if there is nothing to say.
func (r *Returned) String() string {
	switch {
	case r == nil:
		return ""
	case r.Segments == 0:
		return "keeps nothing more for now, because memory is short"
	}
	text := fmt.Sprintf("gave back %s, last %.0f s ago: %s", size.Format(r.Bytes), r.Age, r.Why)
	if r.Viewed > 0 {
		text += fmt.Sprintf("; %s of it are still in use, because the process keeps samples in it",
			size.Format(r.Viewed))
	}
	if r.Paused {
		text += "; it keeps nothing more until memory is free again"
	}
	return text
}

// gaveBack states what the classes gave back, in sentences that begin with a space.
func gaveBack(classes []Class) (text string) {
	for _, c := range classes {
		if said := c.Returned.String(); said != "" {
			text += fmt.Sprintf(" Storage class %s %s.", c.Name, said)
		}
	}
	return text
}

// DoesNotRespond says that the class's directory does not respond, in a sentence without a full
// stop; it is empty if it does, or has not for less than a second.
func (c *Class) DoesNotRespond() string {
	if c.Silent < 1 {
		return ""
	}
	return fmt.Sprintf("The cache directory %s has not responded for %.0f s: samples are read from "+
		"the source", printable.Name(c.Path), c.Silent)
}

// notResponding states which classes do not respond, in sentences that begin with a space.
func notResponding(classes []Class) (text string) {
	for i := range classes {
		if said := classes[i].DoesNotRespond(); said != "" {
			text += " " + said + "."
		}
	}
	return text
}
