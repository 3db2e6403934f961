package script

import (
	"math/rand/v2"
	"slices"
)

// fewest is how many epochs Generate draws at least. A job with fewer may end before it has a plan,
// or while launches after it have batches due.
const fewest = 3

// Simpler returns scripts that are a step simpler than s, those with the largest steps first. Each
// is complete in itself, and none shares memory with s.
func (s Script) Simpler() (list []Script) {
	try := func(change func(*Script)) {
		c := s.clone()
		change(&c)
		c.dropLate()
		if c.String() != s.String() && c.valid() {
			list = append(list, c)
		}
	}
	for i := range s.Launches {
		if len(s.Launches) > 1 {
			try(func(c *Script) { c.dropLaunch(i) })
		}
	}
	for i := range s.Events {
		try(func(c *Script) { c.Events = slices.Delete(c.Events, i, i+1) })
	}
	for i := range s.Missing {
		try(func(c *Script) { c.Missing = slices.Delete(c.Missing, i, i+1) })
	}
	for i := range s.Stale {
		try(func(c *Script) { c.Stale = slices.Delete(c.Stale, i, i+1) })
	}
	for i := range s.Undecodable {
		try(func(c *Script) { c.Undecodable = slices.Delete(c.Undecodable, i, i+1) })
	}
	for i := range s.Members {
		try(func(c *Script) { c.Members = slices.Delete(c.Members, i, i+1) })
		try(func(c *Script) { c.Members[i].Late, c.Members[i].Rest = 0, 0 })
		try(func(c *Script) { c.Members[i].Leave = 0 })
	}
	for i := range s.Breaks {
		try(func(c *Script) { c.Breaks = slices.Delete(c.Breaks, i, i+1) })
		try(func(c *Script) {
			c.Breaks[i].Skip = false
			c.Breaks[i].Past = false
			c.Breaks[i].Back = 0
		})
		try(func(c *Script) { c.Breaks[i].Past = false })
		try(func(c *Script) { c.Breaks[i].Anew = false })
	}
	for i, l := range s.Launches {
		try(func(c *Script) { c.Launches[i].Nodes = 1 })
		try(func(c *Script) { c.Launches[i].Nodes = max(l.Nodes/2, 1) })
		try(func(c *Script) { c.Launches[i].Nodes = max(l.Nodes-1, 1) })
		try(func(c *Script) { c.Launches[i].Ranks = 1 })
		try(func(c *Script) { c.Launches[i].Late = nil })
		try(func(c *Script) { c.Launches[i].Crash = false })
		try(func(c *Script) { c.Launches[i].Restart = false })
		try(func(c *Script) { c.Launches[i].Kill = min(l.Kill, 1) })
		try(func(c *Script) { c.Launches[i].Kill /= 2 })
		for k := range l.Late {
			try(func(c *Script) { c.Launches[i].Late[k] = 0 })
		}
	}
	try(func(c *Script) { c.Samples = max(c.Samples/2, 1) })
	try(func(c *Script) { c.Samples = max(c.Samples-1, 1) })
	try(func(c *Script) { c.Epochs = min(c.Epochs, fewest) })
	try(func(c *Script) { c.Epochs = max(c.Epochs-1, min(c.Epochs, fewest)) })
	try(func(c *Script) { c.Largest = 1 })
	try(func(c *Script) { c.Subset = 0 })
	try(func(c *Script) { c.Mix = 0 })
	try(func(c *Script) { c.Mix = max(c.Mix/2, min(c.Mix, 1)) })
	try(func(c *Script) { c.Uneven = false })
	try(func(c *Script) { c.TLS = false })
	try(func(c *Script) { c.Lies = false })
	try(func(c *Script) { c.Invalid = false })
	try(func(c *Script) { c.Twice = false })
	try(func(c *Script) { c.Differs = "" })
	try(func(c *Script) { c.Beside = "" })
	try(func(c *Script) { c.Plans = "" })
	try(func(c *Script) { c.Takes = 0 })
	try(func(c *Script) { c.Transforms = false })
	try(func(c *Script) { c.Verify = false })
	try(func(c *Script) { c.SourceSlow = false })
	try(func(c *Script) { c.Disk = 0 })
	try(func(c *Script) { c.Memory = 0 })
	try(func(c *Script) { c.Apart = false })
	try(func(c *Script) {
		c.Again = 0
		c.Singly = false
		c.Over = false
		c.Rewind = 0
	})
	try(func(c *Script) { c.Renews = false })
	try(func(c *Script) { c.Singly = false })
	try(func(c *Script) { c.Rewind = 0 })
	try(func(c *Script) { c.Hold, c.Keeps = 0, false })
	try(func(c *Script) { c.Keeps = false })
	try(func(c *Script) { c.DropLast = false })
	try(func(c *Script) { c.Shuffle = "none" })
	try(func(c *Script) { c.Scheme = "strided" })
	try(func(c *Script) { c.Tail = "pad" })
	try(func(c *Script) { c.Prefetch = 0 })
	try(func(c *Script) { c.Threads = 0 })
	try(func(c *Script) { c.Staging = 64 << 10 })
	try(func(c *Script) { c.Step = 0 })
	for i, e := range s.Events {
		try(func(c *Script) { c.Events[i].For = (e.For / 2).round() })
		try(func(c *Script) { c.Events[i].At = 0 })
		try(func(c *Script) { c.Events[i].At = (e.At / 2).round() })
		try(func(c *Script) { c.Events[i].Amount = e.Amount / 2 })
	}
	return list
}

// clone returns a copy that shares no memory.
func (s Script) clone() Script {
	s.Missing, s.Events = slices.Clone(s.Missing), slices.Clone(s.Events)
	s.Undecodable, s.Breaks = slices.Clone(s.Undecodable), slices.Clone(s.Breaks)
	s.Stale, s.Members = slices.Clone(s.Stale), slices.Clone(s.Members)
	s.Launches = slices.Clone(s.Launches)
	for i := range s.Launches {
		s.Launches[i].Late = slices.Clone(s.Launches[i].Late)
	}
	return s
}

// dropLate removes the times at which ranks start that are not there.
func (s *Script) dropLate() {
	for i, l := range s.Launches {
		s.Launches[i].Late = l.Late[:min(len(l.Late), l.WorldSize())]
	}
}

// Simplified returns the script after so many steps, each one of Simpler by chance.
func (s Script) Simplified(steps int) Script {
	r := rand.New(rand.NewPCG(s.Seed, 0))
	for range steps {
		list := s.Simpler()
		if len(list) == 0 {
			break
		}
		s = list[r.IntN(len(list))]
	}
	return s
}

// dropLaunch removes a launch with its events.
func (s *Script) dropLaunch(i int) {
	s.Launches = slices.Delete(s.Launches, i, i+1)
	s.Launches[len(s.Launches)-1].Kill = 0
	s.Events = slices.DeleteFunc(s.Events, func(e Event) bool { return e.Launch == i })
	for k := range s.Events {
		if s.Events[k].Launch > i {
			s.Events[k].Launch--
		}
	}
}
