package script

import (
	"math"
	"math/rand/v2"
	"time"
)

// Generate draws a script.
func Generate(seed uint64) Script {
	r := &chance{rand.New(rand.NewPCG(seed, 0))}
	s := Script{
		Seed: seed, Samples: r.between(4, 60), Largest: pick(r, 1, 100, 1000, 5000),
		Epochs: fewest, Batch: r.between(1, 24), DropLast: r.percent(25),
		Shuffle: pick(r, "torch", "torch", "none", "feistel"),
		Scheme:  pick(r, "strided", "strided", "uniform", "whole"),
		Tail:    pick(r, "pad", "pad", "keep", "drop"),
		Policy:  pick(r, append(always(), "", "", "")...),
		OnError: "raise", Transforms: r.percent(20), Verify: r.percent(10), SourceSlow: r.percent(40),
		Staging: pick(r, 64<<10, 64<<10, 256<<10), Prefetch: pick(r, 0, 0, 1, 2, 8),
		Threads: pick(r, 0, 0, 1, 4), Timeout: Duration(5 * time.Second),
		Step: Duration(time.Duration(r.between(0, 200)) * time.Millisecond),
		Hold: pick(r, 0, 0, 1, 3), Apart: r.percent(20),
	}
	s.Launches = r.launches(&s)
	for _, l := range s.Launches {
		s.Samples = max(s.Samples, l.WorldSize())
	}
	if !s.valid() {
		s.DropLast = false
	}
	share := s.Bytes() / s.Launches[0].Nodes
	s.Memory = pick(r, 0, share/2, share+2*s.Largest, 2*s.Bytes())
	if r.percent(40) {
		s.Disk = 1 + pick(r, share/2, share+2*s.Largest, 2*s.Bytes())
	}
	s.Epochs = fewest
	switch {
	case r.percent(35): // without faults
		s.Events = nil
	case r.percent(18):
		s.OnError = pick(r, "raise", "raise", "skip", "substitute")
		for range r.between(1, 4) {
			if id := r.IntN(s.Samples); len(s.Missing) < s.Samples-1 {
				s.Missing = append(s.Missing, id)
			}
		}
		s.Again = r.IntN(4)
	default:
		s.Again = pick(r, 0, 1, 2)
		s.Events = r.events(&s)
	}
	(&chance{rand.New(rand.NewPCG(seed, 1))}).vary(&s)
	(&chance{rand.New(rand.NewPCG(seed, 2))}).refine(&s)
	(&chance{rand.New(rand.NewPCG(seed, 3))}).disturb(&s)
	(&chance{rand.New(rand.NewPCG(seed, 4))}).garble(&s)
	(&chance{rand.New(rand.NewPCG(seed, 5))}).add(&s)
	(&chance{rand.New(rand.NewPCG(seed, 6))}).vanish(&s)
	(&chance{rand.New(rand.NewPCG(seed, 7))}).preload(&s)
	(&chance{rand.New(rand.NewPCG(seed, 8))}).order(&s)
	(&chance{rand.New(rand.NewPCG(seed, 9))}).mix(&s)
	return s
}

// preload has few jobs keep the dataset in memory, filled before training or by reads for it.
func (r *chance) preload(s *Script) {
	c := s.clone()
	if c.Policy = pick(r, inMemory()...); r.percent(8) && c.valid() {
		*s = c
	}
}

// refine makes few scripts ones of which it is known exactly what is due.
func (r *chance) refine(s *Script) {
	if !s.Calm() || s.Differs+Setting(s.Beside) != "" || len(s.Members)+len(s.Undecodable) > 0 ||
		s.Shuffle == "given" {
		return
	}
	c := s.clone()
	switch r.IntN(14) {
	case 0:
		r.lose(&c)
	case 1:
		r.tighten(&c)
	case 2:
		r.fail(&c)
	case 3:
		r.last(&c)
	}
	if c.valid() {
		*s = c
	}
}

// lose has a node die while caches that have room for the dataset are filled.
func (r *chance) lose(s *Script) {
	l := Launch{Nodes: 4, Ranks: 1}
	s.Launches = []Launch{l}
	s.Breaks = nil
	s.Lies = false
	s.Twice = false
	s.Invalid = false
	s.Samples = max(s.Samples, 12)
	s.Epochs = 8
	s.Prefetch = 2
	s.Apart = true
	s.Batch = r.between(s.Samples/6, s.Samples/3)
	s.DropLast = false
	s.Subset = 0
	s.Tail, s.Scheme = pick(r, "pad", "keep"), pick(r, "strided", "uniform")
	s.Policy = ""
	s.Plans = ""
	s.SourceSlow = true
	s.Verify = false
	s.Takes, s.Threads = Duration(20*time.Millisecond), 1
	s.Largest = max(s.Largest, 1000)
	s.Uneven = false
	s.Disk = 0
	s.Memory = 2 * s.Bytes()
	s.Step = Duration(time.Duration(r.between(20, 200)) * time.Millisecond)
	at := time.Duration(r.between(1, s.Samples/l.Nodes)) * s.Takes.D()
	s.Events = []Event{{
		Kind: Die, At: Duration(at), For: Dead, Node: r.IntN(l.Nodes),
	}}
}

// last has a job last longer than its audits are kept.
func (r *chance) last(s *Script) {
	s.Epochs = 20
	s.Plans = ""
	s.Takes = 0
	s.Step = 0
	s.Apart = false
	s.Batch, s.DropLast = max(s.Batch, (s.Samples+1)/2), false
	if r.percent(50) { // more batches than the ring has room for, by which the process returns them
		s.Launches, s.Breaks = []Launch{{Nodes: 1, Ranks: 1}}, nil
		s.Samples = max(s.Samples, 50)
		s.Batch = 1
		s.Subset = 0
		s.Staging = 64 << 10
	}
}

// fail has the plan of a node fail while batches already flow.
func (r *chance) fail(s *Script) {
	s.Plans = Failing
	s.Policy = ""
	s.Breaks = nil
	s.Lies = false
	s.Twice = false
	s.Invalid = false
	s.Takes = 0
	s.Verify = false
	s.Step = max(s.Step, thinks)
	s.Again = r.IntN(3)
	s.Epochs = fails
	s.Prefetch = r.between(1, 2)
}

// tighten has the staging buffer limit how far a rank reads ahead.
func (r *chance) tighten(s *Script) {
	s.Takes = Duration(time.Millisecond)
	s.Memory = 0
	s.Disk = 0
	s.Plans = ""
	s.Prefetch = 0
	s.Verify = false
	s.Apart = false
	s.Hold = r.IntN(2)
	s.Staging, s.Step = 64<<10, Duration(200*time.Millisecond)
	s.Batch = r.between(2, 8)
	s.Largest = s.Staging / (s.Batch * (s.Hold + 3))
	if s.Transforms {
		s.Largest /= 4
	}
}

// mix has few scripts take samples from two datasets.
func (r *chance) mix(s *Script) {
	if !r.percent(10) || s.Subset > 0 || len(s.Members) > 0 || s.Orders() {
		return
	}
	c := s.clone()
	c.Mix = r.between(max(s.Samples/2, 2), 2*s.Samples)
	if c.Shuffle == "torch" {
		c.Shuffle = pick(r, "feistel", "none")
	}
	if c.valid() {
		*s = c
	}
}

// vary draws what few scripts have.
func (r *chance) vary(s *Script) {
	if n := s.Samples / 2; r.percent(12) && n >= 4 {
		was := s.Subset
		if s.Subset = r.between(n, s.Samples); !s.valid() {
			s.Subset = was
		}
	}
	s.Uneven = r.percent(20)
	s.TLS = r.percent(4)
	s.Twice = r.percent(10)
	if r.percent(15) {
		s.Beside = pick(r, Same, Other)
	}
	if r.percent(25) && !s.Has(network...) {
		r.give(s)
	}
	if r.IntN(8) == 0 {
		s.Plans = Meanwhile
	}
	for i := range s.Launches[:len(s.Launches)-1] {
		s.Launches[i].Restart = !s.Launches[i].Crash && r.percent(50)
	}
	steps := max(s.Positions()/s.Batch, 1)
	for range pick(r, 0, 0, 1, 1, 2) {
		if s.Apart { // a rank could break off before an error that the others get
			break
		}
		b := Break{After: r.IntN(s.Epochs * steps), Skip: r.percent(30)}
		if !b.Skip && r.percent(50) && s.Shuffle != "given" && len(s.Events)+len(s.Missing) == 0 {
			b.Back = r.between(1, steps)
		}
		s.Breaks = append(s.Breaks, b)
	}
	if len(s.Events) > 0 || len(s.Missing) > 0 {
		return
	}
	if r.percent(35) {
		r.suffice(s)
	} else if s.Plans == "" && r.percent(50) {
		s.Takes = Duration(pick(r, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond))
	}
	s.Lies, s.Invalid = r.percent(10), r.percent(15)
	if r.percent(15) {
		s.Verify = true
		for range r.between(1, 3) {
			s.Stale = append(s.Stale, r.IntN(s.Samples))
		}
		return
	}
	switch {
	case r.percent(10):
		s.OnError = pick(r, "skip", "substitute")
		for range r.between(1, 2) {
			s.Undecodable = append(s.Undecodable, r.IntN(s.Samples))
		}
	case r.share(s):
	case r.percent(15):
		s.Differs = pick(r, TheBatch, TheSeed, TheEpochs, ThePolicy, TheTail, TheSecret, TheData)
		if s.Shuffle == "given" && r.percent(50) {
			s.Differs = pick(r, ThePart, TheEpoch)
		}
		if !s.valid() {
			s.Differs = ""
		}
	}
}

// suffice has the nodes' caches hold the dataset, and the source be slow, so that it is known what
// is read from there.
func (r *chance) suffice(s *Script) {
	s.SourceSlow = true
	s.Policy = ""
	s.Verify = false
	s.Uneven = false
	if s.Plans != Meanwhile {
		s.Plans, s.Takes = "", 0
	}
	s.Largest = max(s.Largest, 1000)
	least := s.Launches[0].Nodes
	for _, l := range s.Launches {
		least = min(least, l.Nodes)
	}
	room := s.Bytes()/least + 4*s.Largest
	s.Memory, s.Disk = room, 0
	if r.percent(40) {
		s.Memory, s.Disk = pick(r, 0, room/2), room
	}
}

// share draws jobs that share what they prepare, and reports whether there are any.
func (r *chance) share(s *Script) bool {
	if !s.Transforms || s.CachesNothing() || s.Shuffle != "torch" && s.Shuffle != "none" ||
		s.Subset > 0 || s.OnError != "raise" || len(s.Launches) > 1 {
		return false
	}
	for range r.between(2, 4) {
		m := Member{
			Batch: r.between(1, s.Samples), Late: r.about(time.Millisecond, 2*time.Second),
			Step: r.about(time.Millisecond, 200*time.Millisecond),
		}
		if r.percent(50) {
			m.Late = 0
		}
		if r.percent(25) {
			m.Rest = r.between(1, 3)
		}
		if r.percent(25) {
			m.Leave = r.between(1, 5)
		}
		s.Members = append(s.Members, m)
	}
	return true
}

// network are the faults after which ranks that give orders may have to read by themselves.
var network = []Kind{Cut, CutWay, Partition, Delay, Rate, Loss, Flip, Reset, Pause, Die}

// give has processes give their orders, if all launches can have as many nodes and ranks.
func (r *chance) give(s *Script) {
	c := s.clone()
	one := c.Launches[0]
	for i := range c.Launches {
		c.Launches[i].Nodes = one.Nodes
		c.Launches[i].Ranks = one.Ranks
		c.Launches[i].Late = nil
	}
	c.Shuffle = "given"
	c.Scheme = "strided"
	c.Tail = "pad"
	c.DropLast = false
	c.Subset = 0
	c.Batch = one.WorldSize() * r.between(1, 6)
	if c.valid() {
		*s = c
	}
}

// chance draws from a seed.
type chance struct{ *rand.Rand }

// percent is true in so many per cent of the cases.
func (r *chance) percent(share int) bool { return r.IntN(100) < share }

// between draws from least to most, both included.
func (r *chance) between(least, most int) int { return least + r.IntN(most-least+1) }

// about draws a time between the two, evenly on a logarithmic scale.
func (r *chance) about(least, most time.Duration) Duration {
	low, high := math.Log(float64(least)), math.Log(float64(most))
	return Duration(math.Exp(low + r.Float64()*(high-low))).round()
}

func (d Duration) round() Duration { return Duration(time.Duration(d).Round(time.Millisecond)) }

func pick[T any](r *chance, from ...T) T { return from[r.IntN(len(from))] }

// launches draws the launches of a job.
func (r *chance) launches(s *Script) (list []Launch) {
	for range pick(r, 1, 1, 1, 2, 3) {
		l := Launch{Nodes: pick(r, 4, 4, 4, 4, 2, 3, 1), Ranks: pick(r, 1, 1, 1, 2, 2, 4)}
		if r.percent(3) {
			l = Launch{Nodes: r.between(5, 16), Ranks: 1}
		}
		if r.percent(20) {
			for range l.WorldSize() {
				l.Late = append(l.Late, r.about(time.Millisecond, 5*time.Second))
			}
		}
		l.Kill = r.between(1, max(1, s.Epochs*s.Samples/s.Batch/2))
		l.Crash = r.percent(30)
		list = append(list, l)
	}
	list[len(list)-1].Kill, list[len(list)-1].Crash = 0, false
	return list
}

// events draws faults.
func (r *chance) events(s *Script) (list []Event) {
	long := time.Duration(s.Epochs*s.Samples/s.Batch+1) * (s.Step.D() + 20*time.Millisecond)
	for range r.between(1, 6) {
		e := Event{
			Kind: pick(r, general()...), Launch: r.IntN(len(s.Launches)),
			At:   Duration(r.Int64N(int64(long) + 1)).round(),
			For:  r.about(10*time.Millisecond, 30*time.Second),
			Node: r.IntN(16), To: r.IntN(60),
		}
		switch e.Kind {
		case SourceSlow:
			e.Amount = r.between(1, 500)
		case SourceFail:
			e.Amount = pick(r, 10, 50, 100)
		case Delay:
			e.Amount = r.between(1, 1000)
		case Rate:
			e.Amount = r.between(1, 1000)
		case Loss, DiskFail:
			e.Amount = pick(r, 10, 50, 100)
		case DiskHang:
			e.Amount = e.To % (AllHangs + 1)
		case Rot:
			e.Amount = r.between(1, 50)
		case Flip:
			e.Amount = pick(r, 1, 10, 50)
		case Pressure: // which nodes notice within a second
			e.At, e.For = (e.At / 4).round(), r.about(pressed.D(), 30*time.Second)
		case Die:
			e.For = Dead
		}
		switch e.Kind {
		case Reset, Rot, Change:
			e.For = 0
		case Cut, CutWay, Partition, Delay, Rate, Loss, Flip:
			if s.Launches[e.Launch].Nodes == 1 {
				continue
			}
		case DiskFail, DiskFull, DiskHang:
			if s.Disk == 0 {
				continue
			}
		}
		list = append(list, e)
	}
	return list
}
