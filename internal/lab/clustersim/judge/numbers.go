package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

const (
	// soon is how long a rank waits for a batch at most if nothing goes wrong: the network and the
	// source then take no time.
	soon = time.Millisecond
	// looks is how much longer if the daemon looks now and then whether memory was returned.
	looks = 10 * time.Millisecond
	// aside is how long, at most, if caches fail or hang and the source answers: a read of a class
	// that does not respond is given up after a quarter of source_timeout.
	aside = 2 * time.Second
	// calms is how long the effects of a fault last after its end.
	calms = 10 * time.Second
)

// caches are the kinds of faults that concern nothing but caches.
var caches = []script.Kind{
	script.DiskFail, script.DiskFull, script.DiskHang, script.Rot, script.Pressure,
}

// prompt judges how long a rank waited for a batch, unless a fault concerned the source or a
// process meanwhile or shortly before, or the network where ranks need it to know the order.
func (c *court) prompt(e Event) {
	most, apart := soon, caches
	if c.script.Notes() {
		most += looks
	}
	if !c.script.Calm() {
		most = aside
	}
	if c.script.Shuffle != "given" && c.script.Plans == "" && c.script.Has(network...) {
		// A request is given up after a quarter of source_timeout, and then the node is: some may
		// be made one after another.
		most, apart = 2*c.script.Timeout.D(), slices.Concat(caches, network)
	}
	// Another job on the node has its reads among the rank's.
	beside := c.script.Takes > 0 && c.script.Beside != ""
	if e.Wait <= most || c.script.Plans != "" || len(c.script.Members) > 0 || beside {
		return
	}
	if c.script.Takes > 0 {
		if longest := c.longest(e.Launch); c.script.Calm() && e.Wait > longest {
			c.wrong(e, "the rank waited for a batch for more than %v", longest)
		}
		return
	}
	if slices.ContainsFunc(c.script.Events, func(f script.Event) bool {
		return f.Launch == e.Launch && f.Kind != script.Vanish && !slices.Contains(apart, f.Kind) &&
			f.At.D() < e.At &&
			(f.Kind == script.Die || f.At.D()+f.For.D()+calms > e.At-e.Wait)
	}) {
		return
	}
	c.wrong(e, "the rank waited for a batch although the source is not slow")
}

// longest returns how long a rank waits for a batch at most if nothing goes wrong and reads take
// time: until a node has read the batch, and what it had begun before.
func (c *court) longest(launch int) time.Duration {
	s, l := c.script, c.script.Launches[launch]
	part := s.Batch          // one node may have to read all of it for the others
	if s.Scheme == "whole" { // of which each rank reads all, if no cache holds it
		part = s.Batch * l.Ranks
	}
	threads := cmp.Or(s.Threads, 4)
	if s.InTurn() {
		threads = 1
	}
	turns := (part+threads-1)/threads + 2
	// What was read is read again. A copy from before a crash is compared with its file, which takes
	// as long as a read, and then read from there if it is damaged.
	if s.Verify || len(s.Undecodable) > 0 || c.crashed(launch) {
		turns *= 2
	}
	return time.Duration(turns) * s.Takes.D()
}

// crashed reports whether nodes have lost power before a launch.
func (c *court) crashed(launch int) bool {
	return slices.ContainsFunc(c.script.Launches[:launch], func(l script.Launch) bool {
		return l.Crash
	})
}

// hidden judges how long a rank waited in all, where each step takes longer than the reads for it,
// and the staging buffer has room for the next batch beside those that the process holds:
// for the first batch of a stream, or of an epoch whose order was not known, and for no other one.
func (c *court) hidden(e Event, events []Event) {
	s := c.script
	longest := c.longest(e.Launch)
	if !s.Calm() || s.Plans != "" || s.Takes == 0 || s.Prefetch == 1 || !s.ReadsAhead() ||
		s.Step.D() < longest || s.Verify || len(s.Undecodable) > 0 || s.Beside != "" ||
		s.Shares() || s.Apart || s.Mix > 0 || // whose short batches may leave the ring in pieces
		(s.Hold+2)*s.Batch*s.LargestDelivered() > s.Staging {
		return
	}
	var waited time.Duration
	first := 0
	for _, o := range events {
		switch {
		case o.Rank != e.Rank:
		case o.Kind == Began:
			first++
		case o.Kind == Got:
			waited += o.Wait
			if o.Step == 0 && s.Shuffle == "given" {
				first++
			}
		}
	}
	if most := time.Duration(first) * longest; waited > most {
		c.wrong(e, "the rank waited for %v in all, although steps take longer than reads", waited)
	}
}

// lasting returns the batches that count: of a rank those of its last process.
func lasting(events []Event) (list []Event) {
	opened := map[int]int{} // where, by rank
	for i, e := range events {
		if e.Kind == Opened {
			opened[e.Rank] = i
		}
	}
	for i, e := range events {
		if e.Kind == Got && i >= opened[e.Rank] {
			list = append(list, e)
		}
	}
	return list
}

// stated judges what the job reports of the batches that a rank got in an epoch.
func (c *court) stated(e Event, events []Event) {
	batches, samples := 0, 0
	for _, got := range lasting(events) {
		if got.Kind == Got && got.Rank == e.Rank && got.Epoch == e.Epoch {
			batches++
			samples += len(got.IDs)
		}
	}
	if e.Batches != batches || e.Samples != samples {
		c.wrong(e, "the job states other numbers than the %d batches with %d samples that the rank "+
			"got", batches, samples)
	}
}

// audited judges the audit of an epoch that all ranks came to the end of, after certain events.
func (c *court) audited(e Event, epochs []*epoch, events []Event) {
	deserted := false
	for rank := range epochs[e.Epoch].ranks {
		if e.Epoch > 0 && c.deserts(e.Launch, rank) {
			deserted = true
			continue
		}
		batches := 0 // since the rank last began, if it was at or before a batch of the epoch
		for _, g := range events {
			switch {
			case g.Rank != rank:
			case g.Kind == Began && g.Epoch <= e.Epoch:
				batches = 0
			case g.Kind == Got && g.Epoch == e.Epoch:
				batches++
			}
		}
		if batches < e.Batches {
			c.wrong(e, "the audit does not wait for rank %d, which has %d batches", rank, batches)
		}
	}
	if c.script.Lies && e.Epoch == c.script.Epochs-1 {
		if e.Text == "" {
			c.wrong(e, "the audit is complete although a rank got other samples")
		}
		return
	}
	lacks := fmt.Sprintf(" Missing:[%d] ", c.script.Launches[e.Launch].WorldSize()-1)
	switch {
	case deserted && !strings.Contains(e.Text, lacks):
		c.wrong(e, "the audit does not name the rank that has ended, and no other")
	case !deserted && e.Text != "":
		c.wrong(e, "the audit is not complete")
	}
	last := epochs[e.Epoch]
	due := 0
	for step := last.steps() - e.Batches; step < last.steps(); step++ {
		for rank := range last.ranks {
			if !deserted || !c.deserts(e.Launch, rank) {
				ids, _ := last.batch(rank, step)
				due += len(ids)
			}
		}
	}
	if c.script.Has(script.Vanish) {
		due = delivered(e, last.steps()-e.Batches, events)
	}
	if e.Samples != due {
		c.wrong(e, "the audit has other numbers than the %d samples of %d batches", due, e.Batches)
	}
}

// reviewed judges the audit of an epoch after an error, which needs no rank any more: which ranks
// have not come to its end. Nothing may be known of ranks of another node, which may have left the
// job before it was asked, if the audit gives the node as a reason.
func (c *court) reviewed(e Event, steps int, events []Event) {
	l := c.script.Launches[e.Launch]
	ended := map[int]bool{}
	for _, o := range events {
		switch {
		case o.Kind == Refused:
			return
		case o.Kind == Began && o.Epoch <= e.Epoch:
			ended[o.Rank] = false
		case o.Kind == Got && o.Epoch == e.Epoch && o.Step == steps-1:
			ended[o.Rank] = true
		}
	}
	if c.script.Has(network...) || c.differs(e.Launch) || scattered(l) {
		return
	}
	due := []int{}
	for rank := range l.WorldSize() {
		if !ended[rank] {
			due = append(due, rank)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(e.IDs), func(rank int) bool {
		unknown := strings.Contains(e.Why, fmt.Sprintf("node %d ", rank/l.Ranks))
		return ended[rank] && unknown
	})
	if e.Text != "" || !slices.Equal(missing, due) {
		c.wrong(e, "the ranks %v have not come to the end of the epoch", due)
	}
}

// differs reports whether a rank opens the job in a launch with another setting than the others.
func (c *court) differs(launch int) bool { return launch == 0 && c.script.Differs != "" }

// refused judges a launch with a rank that differs: it and the others do not both get batches.
func (c *court) refused(number int, events []Event) {
	if !c.differs(number) {
		return
	}
	l := c.script.Launches[number]
	if c.script.Apart && slices.ContainsFunc(l.Late, func(d script.Duration) bool { return d > 0 }) {
		return // the others may have had all batches when it opens the job
	}
	switch c.script.Differs {
	case script.ThePart, script.TheEpoch, script.ThePause:
		c.disagreed(number, l, events)
		return
	case script.TheEnd:
		c.deserted(l, events)
		return
	}
	odd := l.WorldSize() - 1 // with another secret, all ranks of its node
	var got [2]*Event
	for _, e := range events {
		switch {
		case e.Kind != Got:
		case e.Rank == odd:
			got[1] = &e
		case c.script.Differs != script.TheSecret || e.Rank/l.Ranks != odd/l.Ranks:
			got[0] = &e
		}
	}
	if got[0] != nil && got[1] != nil {
		c.wrong(*got[1], "ranks with another %s get batches of one job", c.script.Differs)
	}
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Refused }) {
		c.wrong(Event{Launch: number, Rank: odd}, "a rank with another %s is not refused",
			c.script.Differs)
	}
}

// disagreed judges a launch in which the last rank gives another order than the others after the
// first epoch, or late: no rank gets batches of it, and all get an error if the launch is not ended
// before.
func (c *court) disagreed(number int, l script.Launch, events []Event) {
	why := "the ranks disagree about the sampler: "
	if c.script.Differs == script.ThePause {
		why = "the nodes cannot exchange the order that the ranks' samplers draw: "
	}
	failed := map[int]bool{}
	var since time.Duration // when a rank had its last batch
	for _, e := range events {
		switch {
		case e.Kind == Got && e.Epoch > 0:
			c.wrong(e, "a batch of an epoch about which ranks disagree")
		case e.Kind == Got:
			since = e.At
		case e.Kind != Failed:
		case !strings.Contains(e.Text, why):
			c.wrong(e, "an error that does not say why no order is known")
		case e.At > since+c.script.Step.D()+script.Pauses+news:
			c.wrong(e, "the rank waits for an epoch that others have given up")
		default:
			failed[e.Rank] = true
		}
	}
	if l.Kill == 0 && len(failed) < l.WorldSize() {
		c.wrong(Event{Launch: number}, "ranks that disagree about an epoch do not all get an error")
	}
}
