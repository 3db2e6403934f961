// Package flights has each sample read once, however many fetches need it at the same time.
//
// A Table has the reads of one dataset that are in progress, and those that were given up because
// they hang. It does no reads, and does not decide which hang. Its methods are safe for concurrent
// use. No lock is held while a follower waits, or bytes are copied.
package flights

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLeader reports that a flight brought nothing for reasons of its leader alone.
var ErrLeader = errors.New("the reader that led this fetch was cancelled")

// Table is the flights of a dataset's samples. R describes on whose behalf a sample is read, and F
// where it was found.
type Table[R, F any] struct {
	shards [64]shard[R, F]
	hung   struct { // guards the following
		sync.Mutex
		flights map[*Flight[R, F]]struct{} // given up and not yet returned
	}
	hanging atomic.Int32 // len(hung.flights)
}

type shard[R, F any] struct {
	sync.Mutex // guards byID, and state, since, inside, hastened and followers of its flights
	byID       map[int32]*Flight[R, F]
}

// New returns a table without flights.
func New[R, F any]() *Table[R, F] {
	t := &Table[R, F]{}
	for i := range t.shards {
		t.shards[i].byID = make(map[int32]*Flight[R, F])
	}
	t.hung.flights = make(map[*Flight[R, F]]struct{})
	return t
}

func (t *Table[R, F]) shard(id int32) *shard[R, F] { return &t.shards[int(id)%len(t.shards)] }

// Fetch is a fetch that joins a flight.
type Fetch[R any] struct {
	ID int
	By R
	// Buffer is what the fetch reads the sample into; nil: it goes elsewhere.
	Buffer []byte
	Urgent bool // something waits for it
	Remote bool // it is on behalf of another node
	Asks   bool // it will ask another node
}

// Join makes the fetch the leader of the sample's flight, or a follower of the one in progress. A
// follower with a buffer gets a copy, reported by copied, if the leader reads into a buffer too. A
// read for another node must not wait for a flight that asks another node, because two nodes that
// temporarily disagree about the sample's owner would wait for each other: it gets no copy, and its
// caller must not wait.
func (t *Table[R, F]) Join(f Fetch[R]) (fl *Flight[R, F], leads, copied bool) {
	s := t.shard(int32(f.ID))
	s.Lock()
	defer s.Unlock()
	if fl, ok := s.byID[int32(f.ID)]; ok {
		if fl.Wanted != nil && !fl.hastened && f.Urgent {
			fl.hastened = true
			close(fl.Wanted)
		}
		if fl.copies && f.Buffer != nil && (!f.Remote || !fl.Asks) {
			fl.followers = append(fl.followers, f.Buffer)
			return fl, false, true
		}
		return fl, false, false
	}
	fl = &Flight[R, F]{
		ID:     int32(f.ID),
		By:     f.By,
		Asks:   f.Asks,
		done:   make(chan struct{}),
		since:  time.Now(),
		copies: f.Buffer != nil,
	}
	if !f.Urgent {
		fl.Wanted = make(chan struct{})
	}
	s.byID[int32(f.ID)] = fl
	return fl, true, false
}

// Queue records that the leader begins to wait for its turn to read the source. It reports false if
// the flight was given up: then its turn must not come.
func (t *Table[R, F]) Queue(fl *Flight[R, F]) bool {
	s := t.shard(fl.ID)
	s.Lock()
	defer s.Unlock()
	if fl.state == flying {
		fl.since = time.Time{}
	}
	return fl.state == flying
}

// Enter records that the leader begins to read the source, which has its time limit from then on.
// inside is set if a gate has admitted it.
func (t *Table[R, F]) Enter(fl *Flight[R, F], inside bool) {
	s := t.shard(fl.ID)
	s.Lock()
	defer s.Unlock()
	if fl.state == flying {
		fl.since, fl.inside = time.Now(), inside
	}
}

// Land ends a flight for its leader, which has found the sample, now in data, or err: no fetch can
// join any more, and followers get their copies. It reports whether the flight landed; if not, it
// was given up, and all fetches that waited have its error.
func (t *Table[R, F]) Land(fl *Flight[R, F], data []byte, found F, err error) bool {
	s := t.shard(fl.ID)
	s.Lock()
	if fl.state == givenUp {
		s.Unlock()
		<-fl.done
		fl.to(returned)
		t.hung.Lock()
		defer t.hung.Unlock()
		delete(t.hung.flights, fl)
		t.hanging.Store(int32(len(t.hung.flights)))
		return false
	}
	fl.to(landing)
	delete(s.byID, fl.ID)
	s.Unlock()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = ErrLeader
	}
	if err == nil {
		for _, buffer := range fl.followers {
			copy(buffer, data)
		}
	}
	fl.found, fl.err = found, err
	fl.to(landed)
	close(fl.done)
	return true
}

// GiveUp takes the flights that began before the given time, and do not wait for their turn, away
// from their leaders. Tell must follow for each.
func (t *Table[R, F]) GiveUp(before time.Time) (late []*Flight[R, F]) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for id, fl := range s.byID {
			if !fl.since.IsZero() && fl.since.Before(before) {
				fl.to(givenUp)
				delete(s.byID, id)
				late = append(late, fl)
			}
		}
		s.Unlock()
	}
	t.hung.Lock()
	defer t.hung.Unlock()
	for _, fl := range late {
		t.hung.flights[fl] = struct{}{}
	}
	t.hanging.Store(int32(len(t.hung.flights)))
	return late
}

// Hung returns how many flights were given up whose reads have not returned.
func (t *Table[R, F]) Hung() int { return int(t.hanging.Load()) }

// Oldest returns the flight that began first, of those whose reads are in progress or hang and do
// not wait for their turn, and when it began; nil: there is none.
func (t *Table[R, F]) Oldest() (oldest *Flight[R, F], since time.Time) {
	look := func(fl *Flight[R, F]) {
		if !fl.since.IsZero() && (oldest == nil || fl.since.Before(since)) {
			oldest, since = fl, fl.since
		}
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		for _, fl := range s.byID {
			look(fl)
		}
		s.Unlock()
	}
	t.hung.Lock()
	defer t.hung.Unlock()
	for fl := range t.hung.flights {
		look(fl)
	}
	return oldest, since
}
