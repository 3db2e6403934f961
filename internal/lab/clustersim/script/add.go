package script

import (
	"slices"
	"time"
)

// add makes some scripts ones with what was added last, so that the others stay what they were.
func (r *chance) add(s *Script) {
	c := s.clone()
	if s.Shuffle == "given" {
		switch r.IntN(4) {
		case 0:
			r.strand(&c)
		case 1:
			r.pass(&c)
		}
	} else {
		switch r.IntN(32) {
		case 0, 1:
			r.collect(&c)
		case 2:
			r.keepUp(&c)
		case 3:
			r.pass(&c)
		case 4:
			r.goBack(&c)
		case 5:
			r.strand(&c)
		case 6:
			r.outlast(&c)
		}
	}
	if c.valid() {
		*s = c
	}
}

// strand has a rank end after the first epoch. If ranks give orders, of which others wait for its
// next part, it may give another part instead, or late.
func (r *chance) strand(s *Script) {
	l := Launch{Nodes: r.between(1, 4), Ranks: pick(r, 1, 2, 2)}
	r.clean(s, l)
	s.Differs, s.Apart = TheEnd, s.Shuffle != "given" && r.percent(50)
	if s.Shuffle == "given" {
		s.Batch = l.WorldSize() * r.between(1, 6)
		s.Differs = pick(r, TheEnd, ThePause, ThePart, TheEpoch)
	}
}

// outlast has a job last longer than its audits are kept.
func (r *chance) outlast(s *Script) {
	r.clean(s, Launch{Nodes: pick(r, 1, 2, 3), Ranks: pick(r, 1, 2)})
	s.Epochs, s.Step = 20, pick(r, 0, Duration(time.Millisecond))
	s.Batch = r.between(s.Samples/3, s.Samples/2)
	if r.percent(40) { // more batches than the ring has room for, by which the process returns them
		s.Launches[0] = Launch{Nodes: 1, Ranks: 1}
		s.Samples = max(s.Samples, 40)
		s.Batch = 1
		s.Memory = 0
		s.Disk = 0
	}
}

// goBack has processes go back from one epoch into the one before, of which they have ended a pass.
func (r *chance) goBack(s *Script) {
	r.clean(s, Launch{Nodes: pick(r, 1, 2, 3), Ranks: pick(r, 1, 2)})
	steps := s.Samples / s.Batch
	after := steps + r.IntN(steps)
	s.Breaks = []Break{{After: after, Back: after + 1 - r.between(1, steps-1)}}
}

// pass has processes give up an epoch before its first batch where they break off another one.
func (r *chance) pass(s *Script) {
	if len(s.Breaks) == 0 && !s.Apart && s.Differs == "" && s.Calm() && len(s.Members) == 0 {
		s.Breaks = []Break{{After: r.IntN(max(s.Positions()/s.Batch, 1))}}
	}
	if i := slices.IndexFunc(s.Breaks, func(b Break) bool { return b.Back == 0 && !b.Anew }); i >= 0 {
		s.Breaks[i].Skip, s.Breaks[i].Past = true, true
		s.Epochs = max(s.Epochs, 4)
	}
}

// collect has processes keep more batches than the staging buffer has room for.
func (r *chance) collect(s *Script) {
	r.clean(s, Launch{Nodes: pick(r, 1, 1, 2, 3), Ranks: pick(r, 1, 2)})
	s.Staging = 64 << 10
	s.Hold = r.between(2, 10)
	s.Keeps = true
	s.Batch = r.between(s.Launches[0].WorldSize(), s.Samples/3)
	s.Largest = s.Staging / s.Batch
	if s.Transforms {
		s.Largest /= 4
	}
	if r.percent(60) {
		s.Memory, s.Disk = 0, 0
	}
}

// keepUp has a rank read batches in nearly as much time as it takes for a step, with memory for one
// batch beside the one that it works on.
func (r *chance) keepUp(s *Script) {
	if s.Notes() { // which are found only now and then
		return
	}
	r.clean(s, Launch{Nodes: 1, Ranks: 1})
	s.Samples = 60
	s.Batch = 20
	s.Epochs = 16
	s.Policy = ""
	s.Memory = 0
	s.Disk = 0
	s.Hold = 0
	s.Transforms = true
	s.Prefetch, s.Staging = pick(r, 0, 2, 8), 64<<10
	s.Largest = s.Staging / (2 * s.Batch) / 4
	s.Takes, s.Threads = Duration(time.Millisecond), 1
	s.Step = Duration(s.Batch+2) * s.Takes
}

// clean has a job run once, as plain does, and end with the first error.
func (r *chance) clean(s *Script, l Launch) {
	r.plain(s, l)
	s.Singly = false
	s.Over = false
	s.Renews = false
	s.Rewind = 0
}
