package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// Amount is a number of samples and their bytes.
type Amount struct{ Samples, Bytes int }

func (a *Amount) add(b Amount) {
	a.Samples += b.Samples
	a.Bytes += b.Bytes
}

// Account is what a node reports of the job, after the last batch of all ranks.
type Account struct {
	Passes []Pass
	Held   []Holding
	Source Amount            // that the job read from the source
	Tiers  map[string]Amount // that all jobs on the dataset read, by where from
	Within map[string]Amount // the same, while ranks were in an epoch
	Seen   Amount            // that the node read since the launch, as counted by the source
	Direct Amount            // read from the source although a cache has it, or is to have it
	Failed int               // requests to other nodes
	// Positions are the samples of an epoch before it is padded or cut, and Needed the bytes of the
	// samples in it.
	Positions, Needed int
	// Reading is set while a read goes on, which the source may have counted already.
	Reading bool
	// Planning is set if it has no plan yet.
	Planning bool
	Odd      []string // what is only so after faults
	Sum      *Sum     // nil: another rank asks
}

// Sum is what a node reports of the job over all nodes.
type Sum struct {
	Nodes, Ranks, Batches int
	Source                Amount
	Reads                 map[string]Amount // by where samples were read from
	Waited                time.Duration
	Bound, Capacity       int    // bytes: the least from the source, and of all caches
	Seen                  Amount // that all nodes read since the launch, as counted by the source
}

// Pass is what a node reports that one of its ranks got of an epoch.
type Pass struct {
	Rank, Epoch, Batches int
	Samples              int
	Reads                map[string]Amount // by where they were read from
	Waited               time.Duration
}

// Holding is what a node reports of one of its caches, in bytes.
type Holding struct {
	Name                    string
	Capacity, Used, AtStart int
}

// got returns what a rank's last process has taken of an epoch.
func got(events []Event, rank, epoch int) (p Pass, ids []int) {
	for _, e := range lasting(events) {
		if e.Kind == Got && e.Rank == rank && e.Epoch == epoch {
			p.Batches++
			p.Samples += len(e.IDs)
			p.Waited += e.Wait
			ids = append(ids, e.IDs...)
		}
	}
	return p, ids
}

// accounted judges what a node reports, which is exact where nothing goes wrong.
func (c *court) accounted(e Event, events []Event) {
	a := e.Account
	for _, p := range a.Passes {
		if p.Rank == e.Rank || !c.script.Apart { // others may not have come to the end
			c.pass(e, p, events)
		}
	}
	c.settled(e)
	if c.script.Loses() {
		return
	}
	if c.script.Shuffle != "given" {
		needed := 0
		for id := range c.script.Samples {
			if chosen := c.script.Chosen(); chosen == nil || slices.Contains(chosen, id) {
				needed += c.script.Size(id)
			}
		}
		if a.Positions != c.script.Positions() || a.Needed != needed {
			c.wrong(e, "the job is said to need %d samples, %d bytes; it needs %d, %d", a.Positions,
				a.Needed, c.script.Positions(), needed)
		}
	}
	c.tiers(e)
	if a.Planning && e.At > 0 { // a job that takes no time may end before it has a plan
		c.wrong(e, "although nothing goes wrong, the job has no plan when it ends")
	}
	for _, odd := range a.Odd {
		c.wrong(e, "although nothing goes wrong: %s", odd)
	}
	if a.Sum != nil {
		c.sum(e, a.Sum, events)
	}
	s := c.script
	if a.Failed > 0 && s.Policy == "" && s.SourceSlow && s.Plans == "" && s.Takes == 0 &&
		s.Largest >= 1000 && len(s.Launches) == 1 {
		c.wrong(e, "%d requests to other nodes failed", a.Failed)
	}
	var read Amount
	for _, amount := range a.Tiers {
		read.add(amount)
	}
	if s.SourceSlow && s.Plans == "" && s.Takes == 0 && s.Largest >= 1000 &&
		1000*a.Direct.Bytes > read.Bytes {
		c.wrong(e, "%v were read from the source although caches have them", a.Direct)
	}
	// Which of two jobs reads is chance, no job reads to verify, and the report has what the last
	// process of a rank read.
	if s.Shares() || s.Verify || a.Reading || s.Replaces() {
		return
	}
	if a.Source != a.Seen {
		c.wrong(e, "the node says that it read %v from the source, which saw %v", a.Source, a.Seen)
	}
	if len(c.script.Launches) == 1 && a.Tiers[fromSource] != a.Seen {
		c.wrong(e, "the node counts %v from the source, which saw %v", a.Tiers[fromSource], a.Seen)
	}
}

// tiers judges that what a rank read from the source is among what its node read while ranks were
// in an epoch.
func (c *court) tiers(e Event) {
	read := 0
	for _, p := range e.Account.Passes {
		read += p.Reads[fromSource].Samples
	}
	if within := e.Account.Within[fromSource]; read > 0 && within.Samples == 0 {
		c.wrong(e, "ranks have read %d samples from the source, and the node none in any epoch", read)
	}
}

// inherited judges that of the nodes that are left when one dies, one reads each sample, if all
// have room for all samples, but for those that they were waiting for.
func (c *court) inherited(reads map[int][]int, history []Event) {
	s := c.script
	if !s.Loses() || s.Policy != "" || !s.SourceSlow || s.Memory < 2*s.Bytes() ||
		s.Plans != "" || s.Verify || len(s.Launches) > 1 || len(s.Events) > 1 || s.Shares() {
		return
	}
	again := 0
	for id := range s.Samples {
		n := 0
		for node, by := range reads {
			if node != s.Events[0].Node%s.Launches[0].Nodes {
				n += by[id]
			}
		}
		again += max(n-1, 0)
	}
	if again > mostAsked {
		c.wrong(history[len(history)-1], "nodes that are left read %d samples again", again)
	}
}

// settled judges that the last epoch is read from caches that have room for all samples, although
// nodes plan late, or some have died, if ranks do not read so far ahead that it began before.
func (c *court) settled(e Event) {
	s := c.script
	l := s.Launches[e.Launch]
	steps := newEpoch(s, l.WorldSize(), c.order(0)).steps()
	memory, disk := s.Caches(1)
	if s.Policy != "" || s.Plans != "" && s.Plans != script.Meanwhile ||
		!s.SourceSlow || s.Verify || s.Takes > 0 || s.Shares() || s.Differs != "" ||
		len(s.Launches) > 1 || s.Tail == "drop" || s.DropLast || s.Largest < 1000 ||
		len(s.Breaks)+len(s.Undecodable)+s.Mix > 0 || s.Beside != "" || s.Prefetch == 0 ||
		s.Prefetch+2 > steps*(s.Epochs-2)/2 ||
		max(memory, disk) < s.Bytes()/l.Nodes+4*s.Largest {
		return
	}
	for _, p := range e.Account.Passes {
		if p.Epoch == s.Epochs-1 && 1000*p.Reads[fromSource].Bytes > s.Bytes() {
			c.wrong(e, "rank %d read %v of the last epoch from the source although caches have room",
				p.Rank, p.Reads[fromSource])
		}
	}
}

// held judges that nodes whose caches have room for the dataset hold each sample at the end. Jobs
// that take no time may end before the last copies are written.
func (c *court) held(events []Event) {
	s := c.script
	sum := 0
	nodes := 0
	var last Event
	for _, e := range events {
		if e.Account == nil {
			continue
		}
		nodes++
		last = e
		for _, h := range e.Account.Held {
			sum += h.Used
		}
	}
	if nodes == 0 || nodes < s.Launches[last.Launch].Nodes || s.Policy != "" || s.Plans != "" ||
		!s.SourceSlow || s.Takes > 0 || s.Largest < 1000 || s.Subset+s.Mix > 0 || s.Tail == "drop" ||
		s.DropLast || s.Shares() || len(s.Breaks) > 0 || s.Step == 0 || !s.Roomy() {
		return
	}
	if sum < s.Bytes() {
		c.wrong(last, "all caches hold %d bytes of %d", sum, s.Bytes())
	}
}

const (
	fromSource = "source"
	// defaultPrefetch is how many batches are read ahead at most if the script does not say.
	defaultPrefetch = 64
	// mostAsked is how many samples nodes have asked another one for when it dies, at most: they read
	// them at once, as the next owners do.
	mostAsked = 6
)

// pass compares what is said of an epoch with what the rank took.
func (c *court) pass(e Event, p Pass, events []Event) {
	have, ids := got(events, p.Rank, p.Epoch)
	if p.Batches != have.Batches || p.Samples != have.Samples {
		c.wrong(e, "rank %d is said to have %d batches, %d samples of epoch %d; it took %d, %d",
			p.Rank, p.Batches, p.Samples, p.Epoch, have.Batches, have.Samples)
	}
	var read, due Amount
	for _, amount := range p.Reads {
		read.add(amount)
	}
	for _, id := range ids {
		due.add(Amount{1, c.script.Size(id)})
	}
	if read != due {
		c.wrong(e, "rank %d is said to have read %v for epoch %d, from %v; it took %v", p.Rank, read,
			p.Epoch, p.Reads, due)
	}
	if d := p.Waited - have.Waited; d.Abs() > time.Microsecond {
		c.wrong(e, "rank %d is said to have waited %v in epoch %d; it waited %v", p.Rank, p.Waited,
			p.Epoch, have.Waited)
	}
}

// sum compares what is said of all nodes with what all ranks took.
func (c *court) sum(e Event, s *Sum, events []Event) {
	l := c.script.Launches[e.Launch]
	batches := 0
	due := Amount{}
	read := Amount{}
	waited := time.Duration(0)
	for _, g := range lasting(events) {
		if g.Kind != Got {
			continue
		}
		batches++
		waited += g.Wait
		for _, id := range g.IDs {
			due.add(Amount{1, c.script.Size(id)})
		}
	}
	for _, amount := range s.Reads {
		read.add(amount)
	}
	if s.Nodes != l.Nodes || s.Ranks != l.WorldSize() || s.Batches != batches || read != due ||
		(s.Waited-waited).Abs() > time.Millisecond {
		c.wrong(e, "all nodes are said to be %+v; ranks took %d batches, %v, and waited %v", *s,
			batches, due, waited)
	}
	if !c.script.Shares() && !c.script.Verify && !c.script.Replaces() && s.Source != s.Seen {
		c.wrong(e, "all nodes are said to have read %v from the source, which saw %v", s.Source,
			s.Seen)
	}
}

// String returns the amount as text.
func (a Amount) String() string { return fmt.Sprintf("%d samples (%d bytes)", a.Samples, a.Bytes) }

// count judges what was read from the source, if the policy is to read once, samples are not so
// small that latencies decide, and nothing has gone wrong: each sample once, if the nodes' caches
// hold the dataset, and otherwise the bound, S + (E-1) max(0, S-D), where each cache may lack a
// sample for which its room is too short, unless several ranks read a sample that none holds.
// Caches that are full of what a job with other ranks read hold nothing else in its first epochs.
// Nodes that plan late read what they need until then. A thousandth of the bytes may be read to
// explore the source.
func (c *court) count(reads map[int][]int, history []Event) {
	s := c.script
	l := s.Launches[0]
	c.inherited(reads, history)
	if s.Policy != "" || s.Plans != "" || s.Takes > 0 || !s.SourceSlow || s.Verify ||
		s.Largest < 1000 ||
		!s.Calm() || len(s.Undecodable) > 0 || s.Beside != "" || s.Shares() || s.Differs != "" {
		return
	}
	room := s.Bytes()/l.Nodes + 4*s.Largest
	capacity := 0
	lost := false
	for n := range l.Nodes {
		memory, disk := s.Caches(n)
		capacity += max(memory-s.Largest, 0) + max(disk-s.Largest, 0)
	}
	memory, disk := s.Caches(1)
	for _, o := range s.Launches[:len(s.Launches)-1] {
		// What is being read when processes are killed is not yet in a class on the disk.
		lost = lost || o.Crash || o.Restart && (disk < room || o.Kill > 0)
	}
	again := slices.ContainsFunc(s.Launches, func(o script.Launch) bool {
		leavesOut := s.Tail == "drop" || s.DropLast // others than with as many ranks
		return o.Nodes != l.Nodes || leavesOut && o.Ranks != l.Ranks
	})
	if lost || again {
		return
	}
	once, sum := memory >= room || disk >= room, 0
	for id := range s.Samples {
		n := 0
		for _, by := range reads {
			n += by[id]
		}
		sum += n * s.Size(id)
		if once && n > 1 && 1000*s.Size(id) > s.Epochs*s.Bytes() {
			c.wrong(history[len(history)-1], "sample %d was read from the source %d times", id, n)
		}
	}
	if s.Mix > 0 && !once { // an epoch reads again what it has twice and no cache holds
		return
	}
	// What was read ahead where an iteration ends is read again by the next one.
	steps := newEpoch(s, l.WorldSize(), c.order(0)).steps()
	ahead := min((cmp.Or(s.Prefetch, defaultPrefetch)+steps-1)/steps, s.Epochs)
	passes := s.Epochs + (len(s.Launches)-1+len(s.Breaks))*ahead
	for _, b := range s.Breaks {
		passes += (b.Back + steps - 1) / steps
	}
	each := s.Bytes()
	if s.Tail == "pad" {
		each += l.WorldSize() * s.Largest
	}
	// No cache holds what pads the first epoch, either.
	first := s.Bytes() + min(each-s.Bytes(), max(each-capacity, 0))
	most := first + (passes-1)*max(each-capacity, 0)
	if s.Scheme != "whole" && sum > most+most/1000 {
		c.wrong(history[len(history)-1], "%d bytes were read from the source instead of %d", sum, most)
	}
}
