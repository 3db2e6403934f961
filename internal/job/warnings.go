package job

import (
	"fmt"
	"time"
)

// news is what a rank's process was told of what goes wrong without ending its stream.
type news struct {
	faults  int             // of how many unusable samples it is told next
	stopped map[string]bool // storage classes that keep no more samples
	looked  time.Time       // when the classes were looked at
}

// lookAgain is how often storage classes are looked at: it takes locks, which batches need.
const lookAgain = time.Second

// News returns, as sentences, what has gone wrong since the last call and does not end the stream:
// samples that are left out or replaced, the first time, and again when they are ten times as many;
// and storage classes that keep no more samples, once each. last is set if the stream has ended.
// Only the goroutine that calls Run may call it.
func (r *Rank) News(last bool) (said []string) {
	text, again := r.job.p.Unusable.News(r.told.faults)
	if r.told.faults = again; text != "" {
		said = append(said, text)
	}
	if now := time.Now(); last || now.Sub(r.told.looked) > lookAgain {
		r.told.looked = now
		for _, c := range r.job.p.Dataset.Reports() {
			if c.Stopped == "" || r.told.stopped[c.Name] {
				continue
			}
			if r.told.stopped == nil {
				r.told.stopped = make(map[string]bool)
			}
			r.told.stopped[c.Name] = true
			said = append(said, fmt.Sprintf("storage class %s keeps no more samples, which are read "+
				"again in later epochs: %s", c.Name, c.Stopped))
		}
	}
	return said
}
