package lockstep

// past is what a rank's process has had since its last error, in a round. Loops run alike, so this
// shows whether a rank has gone on from a batch that another one could not have, and did not ask
// for more before the stop reached it; or has yet to come to that batch, because the other one is
// ahead of it, perhaps in a later iteration, which may have gone back. Where the two are does not
// show it.
type past struct {
	round int
	spans []span // ordered by when they were had
}

// span is the batches of a stretch of runs that were taken.
type span struct {
	iteration  int
	since, end int
}

// had reports whether the process has gone on from the batch of a stop, or may have: a process that
// has just taken the place of another, or is the rank's first, is where those that it replaces
// were.
func (x *past) had(p Stop) bool {
	if x == nil {
		return true
	}
	for _, s := range x.spans {
		if x.round == p.Round && s.iteration >= p.Iteration && s.since <= p.At && p.At < s.end {
			return true
		}
	}
	return false
}

// next returns the iteration of a run that begins at a batch: another one than before, unless the
// loop is there. That is so as well if it asks for a batch again.
func (x *past) next(at int) int {
	if x == nil || len(x.spans) == 0 {
		return 0
	}
	last := x.spans[len(x.spans)-1]
	if last.end == at {
		return last.iteration
	}
	return last.iteration + 1
}

// past records what the process of run r had in it. s.mu must be held.
func (s *Stops) past(r *Run) {
	x := s.pasts[r.rank]
	if x == nil || x.round != r.round {
		x = &past{round: r.round}
		s.pasts[r.rank] = x
	}
	had := span{r.iteration, r.since, r.taken}
	if last := len(x.spans) - 1; last >= 0 && x.spans[last].iteration == r.iteration {
		had.since = min(had.since, x.spans[last].since)
		x.spans[last] = had
	} else {
		x.spans = append(x.spans, had)
	}
}
