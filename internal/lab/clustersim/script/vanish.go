package script

import "time"

// Sound reports whether no faults happen but that files are missing for a while, for which nothing
// is waited, and because of which no rank fails.
func (s *Script) Sound() bool {
	for _, e := range s.Events {
		if e.Kind != Vanish {
			return false
		}
	}
	return true
}

// Complete reports whether the files of all samples are there all the time.
func (s *Script) Complete() bool { return len(s.Missing) == 0 && !s.Has(Vanish) }

// unusable returns how many samples cannot be used, or cannot be for a while, at most.
func (s *Script) unusable() (count int) {
	count = len(s.Missing) + len(s.Undecodable)
	for _, e := range s.Events {
		if e.Kind == Vanish {
			count++
		}
	}
	return count
}

// vanish has files be missing for a while in some of the scripts that leave out or substitute
// samples, and makes few others ones in which they are.
func (r *chance) vanish(s *Script) {
	c := s.clone()
	switch {
	case s.OnError != "raise" && r.percent(50):
		r.lapse(&c, r.between(1, 3))
	case s.OnError == "raise" && r.IntN(12) == 0:
		r.restore(&c)
	}
	if c.valid() {
		*s = c
	}
}

// lapse has so many files be missing for a while, mostly of samples that are read again afterwards.
func (r *chance) lapse(s *Script, count int) {
	if s.Prefetch == 0 {
		s.Prefetch = pick(r, 1, 2)
	}
	epoch := time.Duration(s.Positions()/s.Batch+1) * (s.Step.D() + time.Millisecond)
	for range count {
		s.Events = append(s.Events, Event{
			Kind: Vanish, Launch: r.IntN(len(s.Launches)),
			At:  Duration(r.Int64N(int64(s.Epochs) * int64(epoch) / 3)).round(),
			For: r.about(epoch/4, 3*epoch/2), To: r.IntN(s.Samples),
		})
	}
}

// restore has files be missing for a while in a job of some epochs, each of which takes seconds.
// What ranks of several nodes get of a sample afterwards shows which nodes know that it was left
// out. The network may keep them from hearing, for a part of the job.
func (r *chance) restore(s *Script) {
	nodes := pick(r, 1, 2, 2, 2, 3, 3, 4)
	r.clean(s, Launch{Nodes: nodes, Ranks: pick(r, 1, 1, 2)})
	if s.Shuffle == "given" || r.percent(50) {
		s.Shuffle = "torch"
	}
	if r.percent(70) {
		s.Scheme = pick(r, "strided", "uniform") // by which only some nodes need a sample
	}
	world := s.Launches[0].WorldSize()
	s.OnError, s.Epochs = pick(r, "skip", "substitute"), r.between(5, 10)
	s.Batch = r.between(max(world, s.Samples/10), max(world, s.Samples/4))
	s.Prefetch, s.Hold = pick(r, 1, 1, 2, 4), pick(r, 0, 0, 1)
	s.Step = Duration(r.between(100, 600)) * Duration(time.Millisecond)
	s.Apart = r.percent(20)
	if r.percent(60) { // so that each batch needs the source
		s.Memory, s.Disk = 0, 0
	}
	if r.percent(20) {
		s.Missing = []int{r.IntN(s.Samples)}
	}
	if nodes > 1 && r.percent(40) {
		s.Step = Duration(r.between(1000, 5000)) * Duration(time.Millisecond)
		s.Epochs = 10
	}
	steps := s.Epochs * s.Samples / s.Batch
	if r.percent(25) {
		l := s.Launches[0]
		l.Kill, l.Crash = r.between(1, steps/2), r.percent(30)
		l.Restart = !l.Crash && r.percent(70)
		s.Launches = append([]Launch{l}, s.Launches...)
	}
	r.lapse(s, r.between(2, 4))
	if s.Step >= Duration(time.Second) {
		r.deafen(s, nodes)
	}
	if r.percent(15) {
		s.Events = append(s.Events, Event{
			Kind: SourceSlow, Launch: r.IntN(len(s.Launches)), For: r.about(time.Second, 10*time.Second),
			Node: r.IntN(nodes), Amount: r.between(1, 500),
		})
	}
}

// deafen has the network keep nodes from each other's news, mostly when the first file is missing.
func (r *chance) deafen(s *Script, nodes int) {
	first := s.Events[0]
	for range r.between(1, 2) {
		e := Event{
			Kind:   pick(r, Cut, Cut, CutWay, Partition, Delay, Rate, Loss, Reset),
			Launch: first.Launch, At: first.At, For: r.about(5*time.Second, 40*time.Second),
			Node: r.IntN(nodes), To: r.IntN(60), Amount: r.between(1, 100),
		}
		if r.percent(30) { // so short that no node is given up
			e.For = r.about(100*time.Millisecond, 2*time.Second)
		}
		if ahead := min(e.At, Duration(2*time.Second)); r.percent(70) {
			e.At -= Duration(r.Int64N(int64(ahead) + 1)).round()
		}
		if e.Kind == Reset {
			e.For = 0
		}
		s.Events = append(s.Events, e)
	}
}
