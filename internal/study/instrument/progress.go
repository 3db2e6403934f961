package instrument

import (
	"fmt"
	"time"
)

// patience is how long nothing is said of a command of which no Python process has reported, and
// quiet how long nothing is said of a rank that sends nothing, as one that trains does each second
// (SENT_EVERY in session.py).
const (
	patience = 20 * time.Second
	quiet    = time.Minute
)

// progress returns what a rank's message reports of the progress; "": nothing.
func progress(m message, rank *Rank) string {
	switch {
	case m.Event == "loader":
		return "the job as it is: " + rank.Loader.Text
	case m.Event == "phase" && m.Name == "training":
		return "training with batches that are ready"
	case m.Event == "phase" && m.Workers != nil && *m.Workers == 0:
		return "preparation, by the process itself"
	case m.Event == "phase" && m.Workers != nil:
		if *m.Workers == 1 {
			return "preparation, by 1 worker"
		}
		return fmt.Sprintf("preparation, by %d workers", *m.Workers)
	case m.Event == "phase":
		return "reading samples into memory"
	}
	return ""
}

// silence returns what to say, once, of a leader that has sent nothing for long; "": nothing.
func (r *run) silence(now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil || r.missed || now.Sub(r.heard) < quiet {
		return ""
	}
	r.missed = true
	l := r.leader.Loader
	return fmt.Sprintf("rank %d, process %d, has sent nothing for a minute: %q takes long, or the "+
		"script hangs there; py-spy dump --pid %d shows where", l.Rank, l.PID, r.doing, l.PID)
}
