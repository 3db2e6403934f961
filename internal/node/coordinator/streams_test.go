package coordinator

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/report"
)

// streams is a fake of a number of streams that a node finds, or follows.
type streams struct {
	mu      sync.Mutex
	number  int
	version int
	news    chan struct{}
	heard   []int
}

func (s *streams) get() (found report.Streams, version int, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return report.Streams{Number: s.number, Takes: takes}, s.version, s.news
}

func (s *streams) find(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number = number
	s.version++
	if s.news != nil {
		close(s.news)
	}
	s.news = make(chan struct{})
}

func (s *streams) follow(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, number)
}

// FoundStreams implements Samples.
func (f *fakeSamples) FoundStreams() (report.Streams, int, <-chan struct{}) {
	return f.found.get()
}

// ExpectStreams implements Samples.
func (f *fakeSamples) ExpectStreams() { f.found.follow(0) }

// FollowStreams implements Samples.
func (f *fakeSamples) FollowStreams(found report.Streams) {
	if found.Takes == takes {
		f.found.follow(found.Number)
	}
}

// takes is how long a read takes, in seconds.
const takes = 0.003

// TestAllNodesReadWithTheStreamsOfNode0 checks that the other nodes do not look for a number of
// their own, and receive each that node 0 finds; that one that has no samples yet receives the
// latest when it has; and that what another node finds is not followed.
func TestAllNodesReadWithTheStreamsOfNode0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		nodes := formed(t, 3, on(networktest.New()))
		var all [3]*fakeSamples
		serve := func(n int) {
			all[n] = &fakeSamples{}
			nodes[n].Serve(all[n], func(context.Context) (bool, error) { return false, nil },
				func(int64) {})
		}
		heard := func(n int, want ...int) {
			t.Helper()
			<-time.After(time.Minute)
			s := &all[n].found
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := slices.Compact(slices.Clone(s.heard)); !slices.Equal(got, want) {
				t.Errorf("node %d follows %d, want %d", n, got, want)
			}
		}
		serve(0)
		serve(1)
		all[0].found.find(24)
		heard(1, 0, 24)
		all[0].found.find(36)
		heard(1, 0, 24, 36)
		serve(2)
		heard(2, 0, 36)
		all[0].found.find(54)
		heard(1, 0, 24, 36, 54)
		heard(2, 0, 36, 54)
		all[1].found.find(99)
		heard(0)
		heard(2, 0, 36, 54)
	})
}

// TestWrongStreamsAreRefused checks that a number that cannot be one is not followed.
func TestWrongStreamsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until a probe in progress has ended
		nodes := formed(t, 2, on(networktest.New()))
		for _, c := range []struct {
			node int
			text string
			want bool
		}{
			{1, `streams {"number":0}`, false},
			{1, `streams {"number":-4}`, false},
			{1, "streams x", false},
			{1, "streams", false},
			{1, "streams 4", false},
			{1, `streams {"number":4,"takes_s":-1}`, false},
			{1, `streams {"number":4,"takes_s":0.003}`, false}, // it has no samples yet
			{0, `streams {"number":4,"takes_s":0.003}`, false},
		} {
			if got := nodes[c.node].hear([]byte(c.text)); got != c.want {
				t.Errorf("node %d hears %q: %v", c.node, c.text, got)
			}
		}
		f := &fakeSamples{}
		nodes[1].Serve(f, func(context.Context) (bool, error) { return false, nil }, func(int64) {})
		for text, want := range map[string]bool{
			`streams {"number":0}`: false, `streams {"number":4,"takes_s":0.003}`: true,
		} {
			if got := nodes[1].hear([]byte(text)); got != want {
				t.Errorf("a node with samples hears %q: %v", text, got)
			}
		}
		if want := []int{0, 4}; !slices.Equal(f.found.heard, want) {
			t.Errorf("it follows %d, want %d", f.found.heard, want)
		}
	})
}
