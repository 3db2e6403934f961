package script

import "time"

// disturb makes some scripts ones in which ranks break off, or get errors, several times in a row,
// or differ.
func (r *chance) disturb(s *Script) {
	if s.Shuffle == "given" {
		return
	}
	c := s.clone()
	switch r.IntN(16) {
	case 0, 1:
		r.stray(&c)
	case 2:
		r.blip(&c)
	case 3:
		r.replace(&c)
	case 4:
		r.differ(&c)
	}
	if c.valid() {
		*s = c
	}
}

// plain has a job run once, on a number of nodes, with nothing odd about it.
func (r *chance) plain(s *Script, l Launch) {
	s.Launches, s.Breaks = []Launch{l}, nil
	s.Events = nil
	s.Missing = nil
	s.Stale = nil
	s.Undecodable = nil
	s.Members = nil
	s.Differs = ""
	s.Beside = ""
	s.Again = 0
	s.Lies = false
	s.Twice = false
	s.Invalid = false
	s.Verify = false
	s.Apart = false
	s.Plans = ""
	s.Takes = 0
	s.Subset = 0
	s.DropLast = false
	s.Samples = r.between(24, 60)
	s.OnError = "raise"
	s.Epochs = 3
	s.Batch = r.between(l.WorldSize(), max(s.Samples/4, l.WorldSize()))
}

// breakOff adds breaks anywhere.
func (r *chance) breakOff(s *Script, count int) {
	steps := max(s.Samples/s.Batch, 1)
	for range count {
		s.Breaks = append(s.Breaks, Break{After: r.IntN(s.Epochs * steps)})
	}
}

// stray has samples missing here and there. Ranks step over the batches that lack them, at once or
// at different times, and break off before others that are known to fail. Some nodes hear of that
// later than others.
func (r *chance) stray(s *Script) {
	r.plain(s, Launch{Nodes: pick(r, 1, 2, 3, 4), Ranks: pick(r, 1, 1, 2)})
	for range r.between(2, 8) {
		s.Missing = append(s.Missing, r.IntN(s.Samples))
	}
	s.Again = 12
	s.Over = true
	s.Singly = r.percent(60)
	s.Prefetch, s.Step = pick(r, 1, 2, 8), Duration(time.Duration(r.between(5, 200))*time.Millisecond)
	r.breakOff(s, r.IntN(5))
	s.Renews = !s.Singly && s.Launches[0].Ranks > 1 && r.percent(60)
	if nodes := s.Launches[0].Nodes; nodes > 1 && r.percent(60) {
		for range r.between(1, 3) {
			s.Events = append(s.Events, Event{
				Kind: Delay, For: Duration(time.Hour), Node: r.IntN(nodes), To: r.IntN(60),
				Amount: r.between(1, ShortDelay),
			})
		}
	}
}

// blip has reads fail for a while. Ranks begin again, some batches back, until they succeed; the
// network may fail as well when one of them has got the error.
func (r *chance) blip(s *Script) {
	l := Launch{Nodes: pick(r, 1, 2, 3, 4), Ranks: pick(r, 1, 1, 2)}
	r.plain(s, l)
	s.Memory = 0
	s.Disk = 0
	s.Timeout = Duration(time.Second)
	s.Epochs = 6
	s.Again, s.Rewind = 10, r.IntN(4)
	s.Singly = s.Rewind == 0 && r.percent(50)
	s.Prefetch = pick(r, 1, 2, 8)
	s.Step = Duration(time.Duration(r.between(20, 200)) * time.Millisecond)
	at := r.about(10*time.Millisecond, 2*time.Second)
	s.Events = []Event{{
		Kind: pick(r, SampleFail, SourceFail), At: at, For: r.about(time.Second, 5*time.Second),
		Node: r.IntN(l.Nodes), To: r.IntN(s.Samples), Amount: 100,
	}}
	if l.Nodes > 1 && r.percent(50) {
		s.Events = append(s.Events, Event{
			Kind: pick(r, Cut, CutWay), Node: r.IntN(l.Nodes), To: r.IntN(60),
			At:  at + s.Timeout - Duration(r.between(0, 500))*Duration(time.Millisecond),
			For: r.about(100*time.Millisecond, 2*time.Second),
		})
	}
}

// differ has a rank of one node differ from others, which have begun already.
func (r *chance) differ(s *Script) {
	l := Launch{Nodes: 1, Ranks: pick(r, 2, 3, 4)}
	r.plain(s, l)
	s.Step = Duration(20 * time.Millisecond)
	s.Differs = pick(r, TheBatch, TheSeed, TheEpochs, TheTail)
	s.Launches[0].Late = make([]Duration, l.Ranks)
	s.Launches[0].Late[l.Ranks-1] = r.about(time.Millisecond, 500*time.Millisecond)
}

// replace has another process take the place of a rank that others of its node go on without.
func (r *chance) replace(s *Script) {
	r.plain(s, Launch{Nodes: pick(r, 1, 1, 2), Ranks: pick(r, 2, 2, 3, 4)})
	r.breakOff(s, r.between(1, 2))
	for i := range s.Breaks {
		s.Breaks[i].Anew, s.Breaks[i].Skip = true, r.percent(30)
	}
}
