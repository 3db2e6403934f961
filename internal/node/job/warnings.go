package job

import (
	"fmt"
	"time"
)

// warned is the state of Rank.Warnings: what a rank's process has been warned of.
type warned struct {
	faults  int             // the number of unusable samples at which the next warning is due
	classes map[string]bool // storage classes with what is wrong with them
	checked time.Time       // when the classes were checked
}

// checkEvery is the interval between checks of the storage classes, which take their locks.
const checkEvery = time.Second

// Warnings returns sentences on what has gone wrong since the last call without ending the stream:
// samples that are left out or replaced, for the first time, and each time that they are ten times
// as many; and storage classes that keep no more samples, or in which a write hangs, once each.
// last is set if the stream has ended. Only the goroutine that calls Run may call it.
func (r *Rank) Warnings(last bool) (out []string) {
	text, next := r.job.p.Unusable.Warning(r.warned.faults)
	if r.warned.faults = next; text != "" {
		out = append(out, text)
	}
	if now := time.Now(); last || now.Sub(r.warned.checked) > checkEvery {
		r.warned.checked = now
		for _, c := range r.job.p.Dataset.Reports() {
			if c.Stopped != "" && r.first("stopped", c.Name) {
				out = append(out, fmt.Sprintf("storage class %s keeps no more samples, and later epochs "+
					"read those that it lacks from the source: %s", c.Name, c.Stopped))
			}
			if c.Writing > 0 && r.first("writing", c.Name) {
				out = append(out, c.DoesNotReturn())
			}
		}
	}
	return out
}

// first reports whether this has not been said of a storage class.
func (r *Rank) first(what, class string) bool {
	if r.warned.classes == nil {
		r.warned.classes = make(map[string]bool)
	}
	key := what + " " + class
	said := r.warned.classes[key]
	r.warned.classes[key] = true
	return !said
}
