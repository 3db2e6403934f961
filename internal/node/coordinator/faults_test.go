package coordinator

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/report"
)

// found is a fake of a node's record of unusable samples. It returns two at a time.
type found struct {
	mu    sync.Mutex
	own   []report.Fault
	more  chan struct{}
	heard map[int]int // by sample, how often
}

func (f *found) find(samples ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range samples {
		f.own = append(f.own, report.Fault{Sample: s, Reason: "broken"})
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *found) Own(after int) (list []report.Fault, upTo int, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	after = min(after, len(f.own))
	upTo = min(after+2, len(f.own))
	if more = f.more; upTo < len(f.own) {
		now := make(chan struct{})
		close(now)
		more = now
	}
	return slices.Clone(f.own[after:upTo]), upTo, more
}

func (f *found) Hear(list []report.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range list {
		f.heard[x.Sample]++
	}
}

// TestUnusableSamplesAreTold checks that all nodes learn what one has found, once each, and that
// one that was cut off does when it is back.
func TestUnusableSamplesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		network := networktest.New()
		var records [3]*found
		formed(t, 3, on(network), func(o *Options) {
			records[o.Node] = &found{more: make(chan struct{}), heard: map[int]int{}}
			o.Faults = records[o.Node]
		})
		know := func(node int, samples ...int) {
			t.Helper()
			<-time.After(time.Minute)
			records[node].mu.Lock()
			defer records[node].mu.Unlock()
			for _, s := range samples {
				if records[node].heard[s] == 0 {
					t.Errorf("node %d has not heard of sample %d: %v", node, s, records[node].heard)
				}
			}
			if len(records[node].heard) != len(samples) {
				t.Errorf("node %d has heard %v; want %v", node, records[node].heard, samples)
			}
		}
		records[1].find(3, 4, 5, 6, 7)
		know(0, 3, 4, 5, 6, 7)
		know(1)
		know(2, 3, 4, 5, 6, 7)
		for s, times := range records[2].heard {
			if times != 1 {
				t.Errorf("node 2 was told %d times of sample %d", times, s)
			}
		}
		network.Cut("10.0.0.3")
		network.Reset("10.0.0.1", "10.0.0.3")
		records[1].find(8)
		records[0].find(9, 10, 11)
		<-time.After(time.Second)
		network.Join("10.0.0.3")
		know(2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
		know(1, 9, 10, 11)
		network.Cut("10.0.0.3")
		<-time.After(time.Minute) // the nodes take each other for dead
		records[1].find(12)
		<-time.After(time.Minute)
		network.Join("10.0.0.3")
		know(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	})
}

// TestNodeThatIsBackIsToldWhatItMissed: a node that was gone when another one reported a sample,
// and is back while that one prepares to report the next sample, receives both.
func TestNodeThatIsBackIsToldWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		network, back := networktest.New(), make(chan struct{})
		var records [3]*found
		nodes := formed(t, 3, on(network), func(o *Options) {
			records[o.Node] = &found{more: make(chan struct{}), heard: map[int]int{}}
			if o.Faults = records[o.Node]; o.Node == 1 {
				o.Faults = &interrupted{found: records[1], after: 1, until: func() {
					network.Join("10.0.0.3")
					<-back
				}}
			}
		})
		network.Cut("10.0.0.3")
		<-time.After(time.Minute) // the nodes take each other for dead
		records[1].find(3)
		<-time.After(time.Minute)
		var once sync.Once
		nodes[1].Watch(func(node int, there bool) {
			if node == 2 && there {
				once.Do(func() { close(back) })
			}
		})
		records[1].find(4)
		<-time.After(time.Minute)
		records[2].mu.Lock()
		defer records[2].mu.Unlock()
		if heard := records[2].heard; heard[3] == 0 || heard[4] == 0 {
			t.Errorf("it has heard of %v, want 3 and 4", heard)
		}
	})
}

// interrupted is a record of unusable samples in which something happens once while it is asked for
// those after so many.
type interrupted struct {
	*found
	after int
	until func() // nil: it has happened
}

func (i *interrupted) Own(after int) (list []report.Fault, upTo int, more <-chan struct{}) {
	list, upTo, more = i.found.Own(after)
	if after == i.after && len(list) > 0 && i.until != nil {
		i.until()
		i.until = nil
	}
	return list, upTo, more
}

// TestInvalidListsOfUnusableSamplesAreRefused: so are lists for a job that leaves out none.
func TestInvalidListsOfUnusableSamplesAreRefused(t *testing.T) {
	o := options(t, 2, 0, "")
	for _, text := range []string{"x", `[{"sample": -1}]`, `[{"sample": 40}]`, `{}`} {
		record := &found{heard: map[int]int{}}
		o.Faults = record
		if newCoordinator(o).hear([]byte("faults "+text)) || len(record.heard) > 0 {
			t.Errorf("%s is accepted", text)
		}
	}
	o.Faults = nil
	if newCoordinator(o).hear([]byte(`faults [{"sample": 1}]`)) {
		t.Error("a job that leaves out no samples is told of some")
	}
}
