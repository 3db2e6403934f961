package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// news is how long an error may take to reach the other ranks over a sound network.
const news = 2 * time.Second

// network and source are the kinds of faults that concern them.
var (
	network = []script.Kind{
		script.Cut, script.CutWay, script.Partition, script.Delay, script.Rate, script.Loss,
		script.Flip, script.Reset, script.Die,
	}
	source = []script.Kind{
		script.SourceFail, script.SourceHang, script.SampleFail, script.Change,
	}
	opening = slices.Concat(network, []script.Kind{
		script.DiskFail, script.DiskFull, script.DiskHang, script.Pressure, script.Rot,
		script.SourceFail, script.SourceHang,
	})
)

// Judge returns what is wrong with a history, given the order of the epochs and how often each
// node read each sample from the source.
func Judge(s *script.Script, order Order, history []Event,
	reads map[int][]int,
) []string {
	c := &court{script: s, order: order}
	for launch, over := 0, false; launch < len(s.Launches) && !over; launch++ {
		over = c.launch(launch, slices.DeleteFunc(slices.Clone(history), func(e Event) bool {
			return e.Launch != launch
		}))
	}
	c.count(reads, history)
	return c.errors
}

// court judges one history.
type court struct {
	script *script.Script
	order  Order
	errors []string
}

func (c *court) wrong(e Event, format string, args ...any) {
	c.errors = append(c.errors, fmt.Sprintf(format, args...)+"\n\t"+e.String())
}

// faults reports whether a fault of some kind has begun in a launch before a time.
func (c *court) faults(launch int, kinds []script.Kind, before time.Duration) bool {
	return slices.ContainsFunc(c.script.Events, func(e script.Event) bool {
		past := e.Launch < launch && e.Kind == script.Change
		return slices.Contains(kinds, e.Kind) &&
			(past || e.Launch == launch && e.At.D() <= before)
	})
}

// stream is what a rank got between two beginnings.
type stream struct {
	rank  int
	began time.Duration
	next  int // the batch after the last one that it got
	got   []Event
	end   Event // the last event; of kind Began or Got if nothing followed
}

// launch judges the events of a launch. It reports whether the job is over: all ranks have had all
// batches.
func (c *court) launch(number int, events []Event) (over bool) {
	l := c.script.Launches[number]
	epochs := make([]*epoch, c.script.Epochs)
	ordered, err := c.script.Ordered(l)
	if err != nil {
		c.wrong(Event{Launch: number}, "the order cannot be made: %v", err)
		return true
	}
	for e := range epochs {
		epochs[e] = newEpoch(c.script, l.WorldSize(), c.order(e))
		if ordered != nil {
			c.reorder(epochs[e], ordered, Event{Launch: number, Epoch: e})
		}
	}
	steps := epochs[0].steps()
	rounds := map[int][]*stream{} // by how often a rank has begun
	latest := map[int]*stream{}
	count := map[int]int{}
	failed := false
	said := newDecisions(c, number)
	for i, e := range events {
		at := latest[e.Rank]
		position := e.Epoch*steps + e.Step
		switch e.Kind {
		case Broken, Wrong:
			c.wrong(e, "a rank or node is broken")
			continue
		case Stated:
			c.stated(e, events)
			continue
		case Explained:
			want := epochs[e.Epoch].share(e.Rank, e.Step)
			if !c.differs(number) && !slices.Equal(want, e.IDs) {
				c.wrong(e, "the job explains other samples than %v", want)
			}
			continue
		case Audited:
			c.audited(e, epochs, until(events, i))
			continue
		case Reviewed:
			c.reviewed(e, steps, events)
			continue
		case Refused:
			failed = true
			if !c.faults(number, opening, e.At) && !c.late(l) && !c.differs(number) &&
				!c.hung(number) && !c.unplanned(e) {
				c.wrong(e, "a rank was refused without a fault")
			}
			continue
		case Accounted:
			c.accounted(e, events)
			continue
		case Opened:
			continue
		case Began:
			at = &stream{rank: e.Rank, began: e.At, next: position}
			latest[e.Rank] = at
			said.began(e)
			rounds[count[e.Rank]] = append(rounds[count[e.Rank]], at)
			count[e.Rank]++
		case Got:
			odd := c.differs(number) && e.Rank == l.WorldSize()-1 // it may have opened the job
			if position != at.next && !odd {
				c.wrong(e, "batch %d instead of %d", position, at.next)
			}
			c.prompt(e)
			switch want, readable := epochs[e.Epoch].batch(e.Rank, e.Step); {
			case !readable:
				c.wrong(e, "a batch with a sample that is missing")
			case odd:
			case c.script.Has(script.Vanish):
				said.got(e, epochs[e.Epoch])
			case !slices.Equal(want, e.IDs):
				c.wrong(e, "the wrong samples; it should be %v", want)
			}
			at.next, at.got = position+1, append(at.got, e)
		case Failed:
			failed = true
			c.explained(e, l)
			c.quoted(e, l, events)
			c.unplanned(e)
		case Stuck:
			failed = true
			if !c.silent(number, e.At) && !c.differs(number) && !scattered(l) {
				c.wrong(e, "no error although another rank has failed")
			}
		case Ended:
			c.hidden(e, events)
			if e.Rank/l.Ranks == c.script.Unplanned() && len(at.got) > 8 && len(l.Late) == 0 {
				c.wrong(e, "the rank's node has no plan, and the rank comes to the end")
			}
			if at.next != steps*c.script.Epochs {
				c.wrong(e, "the stream ended before its last batch, %d", steps*c.script.Epochs-1)
			}
		}
		if at != nil {
			at.end = e
		}
	}
	for _, streams := range rounds {
		if !scattered(l) {
			c.together(number, steps, epochs, streams)
		}
	}
	c.finished(number, l, latest, failed)
	c.held(events)
	c.refused(number, events)
	for rank := range l.WorldSize() {
		if latest[rank] == nil || latest[rank].end.Kind != Ended {
			return false
		}
	}
	return true
}

// until returns the events before one, and batches that were taken at the same time: a process
// reports that it has taken a batch before it is noted. A rank that begins anew takes others.
func until(events []Event, i int) []Event {
	list, anew := slices.Clone(events[:i]), map[int]bool{}
	for _, e := range events[i:] {
		switch {
		case e.At != events[i].At:
			return list
		case e.Kind == Began:
			anew[e.Rank] = true
		case e.Kind == Got && !anew[e.Rank]:
			list = append(list, e)
		}
	}
	return list
}

// silent reports whether the network may keep ranks in a launch from hearing of an error that was
// known before a time: for a minute after a short fault, and for good after a long one, during
// which nodes are given up.
func (c *court) silent(launch int, at time.Duration) bool {
	return slices.ContainsFunc(c.script.Events, func(e script.Event) bool {
		short := e.Kind == script.Delay && e.Amount <= script.ShortDelay
		return e.Launch == launch && slices.Contains(network, e.Kind) && !short && e.At.D() <= at &&
			(e.Kind == script.Die || e.For.D() > 2*time.Second || e.At.D()+e.For.D()+time.Minute > at)
	})
}

// hung reports whether reads that hung in an earlier launch may still have its node's files open: a
// daemon that ends would have closed them, and here its process goes on.
func (c *court) hung(launch int) bool {
	return slices.ContainsFunc(c.script.Events, func(e script.Event) bool {
		return e.Launch < launch && (e.Kind == script.SourceHang || e.Kind == script.DiskHang)
	})
}

// late reports whether a rank starts so late that the others may have given up.
func (c *court) late(l script.Launch) bool {
	return slices.ContainsFunc(l.Late, func(d script.Duration) bool {
		return d.D() > 20*time.Second
	})
}

// scattered reports whether ranks may begin after others have failed and left. On several nodes
// none begins before all have opened the job.
func scattered(l script.Launch) bool { return l.Nodes == 1 && len(l.Late) > 0 }

// together judges the streams of all ranks between two errors: they end before the same batch.
func (c *court) together(number, steps int, epochs []*epoch, streams []*stream) {
	first := slices.MinFunc(streams, func(a, b *stream) int { return a.failedAt() - b.failedAt() })
	if first.end.Kind != Failed {
		return
	}
	at := first.failedAt()
	known := first.end.At
	for _, s := range streams {
		if s.end.Kind == Failed && s.next == at {
			known = min(known, s.end.At)
		}
	}
	for _, s := range streams {
		if s.end.Kind == Failed && !c.excused(number, steps, epochs, s, at) {
			c.wrong(s.end, "an error without a cause")
		}
		for _, e := range s.got {
			position := e.Epoch*steps + e.Step
			if position < at || c.silent(number, e.At) ||
				e.At <= known+news && (c.script.Apart || position == at) {
				continue
			}
			c.wrong(e, "a batch after the error of rank %d at batch %d, which was known at %v",
				first.rank, at, known)
		}
	}
}

// failedAt returns the batch at which a stream failed; a large number if it did not.
func (s *stream) failedAt() int {
	if s.end.Kind != Failed {
		return 1 << 60
	}
	return s.next
}

// excused reports whether the script explains that a stream failed, the first one at a batch.
func (c *court) excused(number, steps int, epochs []*epoch, s *stream, at int) bool {
	if c.spoiled(number, s) || c.differs(number) || len(c.script.Stale) > 0 ||
		c.script.Unplanned() >= 0 {
		return true
	}
	if at/steps >= len(epochs) {
		return false
	}
	return epochs[at/steps].fails(at%steps) == at%steps && at%steps < steps
}

// spoiled reports whether the source explains that a stream failed: it failed in a launch since
// shortly before the stream began, or has changed. A node may hear late of an older error if the
// network failed.
func (c *court) spoiled(launch int, s *stream) bool {
	return slices.ContainsFunc(c.script.Events, func(e script.Event) bool {
		begun := e.Launch == launch && e.At.D() <= s.end.At
		switch {
		case !slices.Contains(source, e.Kind):
			return false
		case e.Kind == script.Change || c.script.Has(network...):
			return begun || e.Launch < launch
		}
		return begun && e.At.D()+e.For.D()+calms > s.began
	})
}

// finished judges whether the launch came as far as it should.
func (c *court) finished(number int, l script.Launch, latest map[int]*stream, failed bool) {
	if failed || l.Kill > 0 {
		return
	}
	died := slices.ContainsFunc(c.script.Events, func(e script.Event) bool {
		return e.Kind == script.Die && e.Launch == number
	})
	furthest := 0
	for _, s := range latest {
		furthest = max(furthest, s.next)
	}
	for rank := range l.WorldSize() {
		s := latest[rank]
		switch {
		case died && s != nil && c.script.Dies(number, rank/l.Ranks):
		case died && s == nil: // it may have died before the job was open everywhere
		case s == nil:
			c.wrong(Event{Launch: number, Rank: rank}, "the rank never began")
		case s.end.Kind == Ended, c.deserts(number, rank):
		case died && c.script.Apart:
			c.wrong(s.end, "the rank waits although only another node has died")
		case died && s.next < furthest:
			c.wrong(s.end, "the rank lacks a batch that others have, as a node has died")
		case !died:
			c.wrong(s.end, "the rank did not come to the end")
		}
	}
}
