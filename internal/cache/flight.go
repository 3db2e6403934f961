package cache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/invariants"
)

// Peers are the other nodes of the job: the node that owns a sample reads it from the source once,
// keeps it, and gives it to the others. Methods are called from many goroutines.
type Peers interface {
	// Answers reports whether another node owns the sample, and is worth asking now.
	Answers(id int) bool
	// Fetch brings the sample from there into dst, which is its own until it returns, and returns
	// which node that was and the digest that the node took when it read the sample from the
	// source. After any error the sample is read from the source: the node may be slow, dead, or
	// lie.
	Fetch(ctx context.Context, id int, dst []byte) (node int, digest uint32, err error)
}

// Request says on whose behalf samples are fetched. It does not change once it is used, so that one
// serves a consumer's samples all.
type Request struct {
	Peers    Peers    // the other nodes that may be asked; nil: none
	Consumer Consumer // nil: they are read ahead of time, or for another node
	remote   bool     // for another node
}

// flight is one read of a sample, from when a fetch has found that no class holds it until all that
// want it are told. So none is read twice at a time. The fetch that begins it leads it; those that
// come later follow, which means that they wait.
//
//	          land            done is closed
//	flying ----------> landing ----------> landed
//	   |     giveUp                 land
//	   +----------> givenUp --------------------> returned
//
//	flying    In its shard's map, and others may join. The shard's mutex guards state and followers. The buffer that is
//	          read into is the leader's.
//	landing   Not in the map. followers, place and err are the leader's, which copies to the followers' buffers.
//	landed    The end. place and err do not change; they may be read once done is closed.
//	givenUp   Not in the map: the watchdog has taken it away from a leader whose read hangs. err is the watchdog's, which
//	          closes done; then it does not change. The leader's buffer may still be written to, the followers' are not.
//	returned  The end: the read has come back after all, and its leader, which has waited for done, knows what happened.
//
// id, since, by, remote and copies never change.
type flight struct {
	id     int32
	remote bool // the leader asks another node
	copies bool // the leader reads into a buffer of its own, and copies to the followers'
	state  flightState
	since  time.Time
	by     *Request
	done   chan struct{}
	place  Place
	err    error
	// followers are the buffers of those that want a copy of what the leader reads.
	followers [][]byte
}

type flightState uint8

const (
	flying flightState = iota
	landing
	landed
	givenUp
	returned
)

func (s flightState) String() string {
	return [...]string{"flying", "landing", "landed", "given up", "returned"}[s]
}

// follows reports whether a flight may come from a state to the next.
func (s flightState) follows(from flightState) bool {
	switch s {
	case landing, givenUp:
		return from == flying
	case landed:
		return from == landing
	case returned:
		return from == givenUp
	}
	return false
}

func (fl *flight) to(next flightState) {
	if invariants.Enabled {
		invariants.Check(next.follows(fl.state), "flight of sample %d: from %v to %v", fl.id,
			fl.state, next)
	}
	fl.state = next
}

// Why a flight brought nothing.
var (
	// errGivenUp: it failed for its leader's reasons alone.
	errGivenUp = errors.New("the read was cancelled by the request that began it")
	// ErrNoRoom: the class that the plan gave the sample has no room for it, and the fetch has no
	// buffer that could take it.
	ErrNoRoom = errors.New("no room for the sample in its storage class, and no buffer for it")
	// ErrAbandoned: the read hung, the watchdog gave it up and has told everyone that waited:
	// nothing may be done with the sample, nor with what waited for it.
	ErrAbandoned = errors.New("the read returned after it was given up")
)

// retry reports whether a flight failed for its leader's reasons alone.
func retry(err error) bool {
	return errors.Is(err, errGivenUp) || errors.Is(err, ErrNoRoom)
}

// flights are the flights under way.
type flights struct {
	shards [64]shard
}

type shard struct {
	sync.Mutex
	byID map[int32]*flight
}

func newFlights() *flights {
	f := &flights{}
	for i := range f.shards {
		f.shards[i].byID = make(map[int32]*flight)
	}
	return f
}

func (f *flights) shard(id int32) *shard { return &f.shards[int(id)%len(f.shards)] }

// join makes the caller the leader of the sample's flight, or a follower of the one under way. A
// follower with a buffer gets a copy, which copied reports, if the leader reads into a buffer too.
// A read for another node must not wait for a flight that asks another node: two nodes that
// disagree for a moment about who owns a sample would wait for each other. So it follows no such
// flight, and gets no copy.
func (f *flights) join(r *Request, id int, dst []byte) (fl *flight, leads, copied bool) {
	s := f.shard(int32(id))
	s.Lock()
	defer s.Unlock()
	if fl, ok := s.byID[int32(id)]; ok {
		if fl.copies && dst != nil && (!r.remote || !fl.remote) {
			fl.followers = append(fl.followers, dst)
			return fl, false, true
		}
		return fl, false, false
	}
	fl = &flight{
		id:     int32(id),
		done:   make(chan struct{}),
		since:  time.Now(),
		by:     r,
		copies: dst != nil,
	}
	fl.remote = r.Peers != nil && r.Peers.Answers(id)
	s.byID[int32(id)] = fl
	return fl, true, false
}

// land ends a flight for its leader, which has the sample in data, or err: none can join any more,
// and followers get their copies. It reports whether the flight landed: if not, the watchdog had
// given it up, and has told everyone by now.
func (f *flights) land(fl *flight, data []byte, place Place, err error) bool {
	s := f.shard(fl.id)
	s.Lock()
	if fl.state == givenUp {
		s.Unlock()
		<-fl.done
		fl.to(returned)
		return false
	}
	fl.to(landing)
	delete(s.byID, fl.id)
	s.Unlock()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = errGivenUp
	}
	if err == nil {
		for _, dst := range fl.followers {
			copy(dst, data)
		}
	}
	fl.place, fl.err = place, err
	fl.to(landed)
	close(fl.done)
	return true
}

// wait waits for a flight. It does not look at ctx while the flight may still write into the
// follower's buffer.
func (fl *flight) wait(ctx context.Context) error {
	<-fl.done
	return ctx.Err()
}

// giveUp takes the flights that began before the given time away from their leaders. The caller
// tells why, and closes done.
func (f *flights) giveUp(before time.Time) (late []*flight) {
	for i := range f.shards {
		s := &f.shards[i]
		s.Lock()
		for id, fl := range s.byID {
			if fl.since.Before(before) {
				fl.to(givenUp)
				delete(s.byID, id)
				late = append(late, fl)
			}
		}
		s.Unlock()
	}
	return late
}

// each calls look with every flight that can be joined. look must not take long: it holds joins up.
func (f *flights) each(look func(fl *flight)) {
	for i := range f.shards {
		s := &f.shards[i]
		s.Lock()
		for _, fl := range s.byID {
			look(fl)
		}
		s.Unlock()
	}
}
