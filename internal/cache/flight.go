package cache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/invariants"
)

// Peers gives access to the other nodes of a job: the node that owns a sample reads it from the
// source once, keeps it, and sends it to the others. Methods must be safe for concurrent use.
type Peers interface {
	// Arrival reports whether another node owns the sample and is not bypassed now, and predicts
	// how long it would take to fetch the sample, of this many bytes, from there, in seconds, if it
	// takes so many seconds to read it from the source.
	Arrival(id int, bytes int64, source float64) (seconds float64, ok bool)
	// Nodes returns how many nodes, this one included, read from the source.
	Nodes() int
	// Fetch fetches the sample from its owner into dst, which it may write to until it returns,
	// unless that takes much longer than the source would, for which source is an estimate, and
	// longer than until the sample is needed, which is in due. It
	// returns the owner, the digest that the owner took when it read the sample from the source, and
	// how long it waited for that if it had to read it now. After any error the sample is read from
	// the source: the peer may be slow, dead or corrupting. The error is context.DeadlineExceeded if
	// the source is faster.
	Fetch(ctx context.Context, id int, dst []byte, source, due time.Duration) (node int,
		digest uint32, waited time.Duration, err error)
}

// Request says on whose behalf samples are fetched. It does not change once it is used, so that all
// fetches of a consumer can share one.
type Request struct {
	Peers    Peers    // the other nodes that may be asked; nil: none
	Consumer Consumer // nil: ahead of time, or for another node
	// Due returns when the samples are needed, in seconds from now; nil: not soon.
	Due    func(now time.Time) float64
	remote bool // on behalf of another node
}

// due returns how long it is until the samples are needed; 0: that is not known.
func (r *Request) due(now time.Time) time.Duration {
	if r.Due == nil {
		return 0
	}
	return time.Duration(min(r.Due(now), 3600) * float64(time.Second))
}

// urgent reports whether something waits for the samples.
func (r *Request) urgent() bool { return r.Consumer != nil || r.remote }

// flight is one read of a sample, from when a fetch has found that no class holds it until all
// fetches that wait for it are told. So no sample is read twice at the same time. The fetch that
// begins a flight leads it; later ones follow, which means that they wait.
//
//	          land            done is closed
//	flying ----------> landing ----------> landed
//	   |     giveUp                 land
//	   +----------> givenUp --------------------> returned
//
//	flying    In its shard's map; others may join. The shard's mutex guards state, since, inside,
//	          hastened and followers. The buffer that is read into is the leader's. A flight is
//	          not given up while it waits for its turn to read the source, which takes as long
//	          as the reads before it; all else that it waits for has a limit, or hangs.
//	landing   Not in the map. followers, tier, relayed and err belong to the leader, which copies to
//	          the followers' buffers.
//	landed    Final. tier, relayed and err do not change, and may be read once done is closed.
//	givenUp   Not in the map: the watchdog has taken it away from a leader whose read hangs. err
//	          belongs to the watchdog until it closes done; then it does not change. The leader's
//	          buffer may still be written to, the followers' are not. since and inside do not change
//	          any more.
//	returned  Final: the read has returned after all, and its leader, which has waited for done,
//	          knows what happened.
//
// id, by, remote, copies and wanted never change.
type flight struct {
	id     int32
	remote bool // the leader asks another node
	copies bool // the leader reads into a buffer of its own, and copies to the followers'
	state  flightState
	// wanted is closed, and hastened set, when an urgent fetch joins a flight that was not; nil: it
	// was urgent from the beginning.
	wanted   chan struct{}
	hastened bool
	since    time.Time // when it began, or to read the source; zero: it waits for its turn to do so
	inside   bool      // the gate has admitted its read
	by       *Request
	done     chan struct{}
	tier     Tier
	relayed  bool // as in Sample
	err      error
	// followers are the buffers of the fetches that get a copy.
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

// follows reports whether state s may come after from.
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

// Reasons why a flight brought nothing.
var (
	// errGivenUp reports that the flight failed for reasons of its leader alone.
	errGivenUp = errors.New("the reader that led this fetch was cancelled")
	// ErrNoCapacity reports that the class that the plan assigns the sample to is full, and the
	// fetch has no buffer for it.
	ErrNoCapacity = errors.New("the sample's storage class is full, and there is no buffer for it")
	// ErrAbandoned reports that the read hung, and the watchdog gave it up and told all that waited
	// for it. The caller must not touch the sample, nor what waited for it.
	ErrAbandoned = errors.New("the read returned after it was given up")
)

// retry reports whether a flight failed for reasons of its leader alone.
func retry(err error) bool {
	return errors.Is(err, errGivenUp) || errors.Is(err, ErrNoCapacity)
}

// flights are the flights in progress.
type flights struct {
	shards [64]shard
}

type shard struct {
	sync.Mutex // guards byID, and state, since, inside, hastened and followers of its flights
	byID       map[int32]*flight
}

func newFlights() *flights {
	f := &flights{}
	for i := range f.shards {
		f.shards[i].byID = make(map[int32]*flight)
	}
	return f
}

func (f *flights) shard(id int32) *shard { return &f.shards[int(id)%len(f.shards)] }

// join makes the caller the leader of the sample's flight, or a follower of the one in progress. A
// follower with a buffer gets a copy, reported by copied, if the leader reads into a buffer too. A
// read for another node must not wait for a flight that asks another node, because two nodes that
// temporarily disagree about the sample's owner would wait for each other: it gets no copy, and its
// caller must not wait.
//
// remote is set if the fetch will ask another node.
func (f *flights) join(r *Request, id int, dst []byte, remote bool) (fl *flight,
	leads, copied bool,
) {
	s := f.shard(int32(id))
	s.Lock()
	defer s.Unlock()
	if fl, ok := s.byID[int32(id)]; ok {
		if fl.wanted != nil && !fl.hastened && r.urgent() {
			fl.hastened = true
			close(fl.wanted)
		}
		if fl.copies && dst != nil && (!r.remote || !fl.remote) {
			fl.followers = append(fl.followers, dst)
			return fl, false, true
		}
		return fl, false, false
	}
	fl = &flight{
		id: int32(id), done: make(chan struct{}), since: time.Now(), by: r,
		copies: dst != nil, remote: remote,
	}
	if !r.urgent() {
		fl.wanted = make(chan struct{})
	}
	s.byID[int32(id)] = fl
	return fl, true, false
}

// land ends a flight for its leader, which has the sample, or err: no fetch can join any more, and
// followers get their copies. It reports whether the flight landed; if not, the watchdog has given
// it up, and has told all that waited.
func (f *flights) land(fl *flight, got *Sample, err error) bool {
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
			copy(dst, got.Data)
		}
	}
	fl.tier, fl.relayed, fl.err = got.From, got.Relayed, err
	fl.to(landed)
	close(fl.done)
	return true
}

// wait waits until the flight has ended. It does not return earlier when ctx is done, because the
// flight may still write into the follower's buffer.
func (fl *flight) wait(ctx context.Context) error {
	<-fl.done
	return ctx.Err()
}

// queue records that the leader begins to wait for its turn. It reports false if the flight was
// given up: then its turn must not come.
func (f *flights) queue(fl *flight) bool {
	s := f.shard(fl.id)
	s.Lock()
	defer s.Unlock()
	if fl.state == flying {
		fl.since = time.Time{}
	}
	return fl.state == flying
}

// enter records that the leader begins to read the source, which has its time limit from then on;
// inside is set if a gate has admitted it.
func (f *flights) enter(fl *flight, inside bool) {
	s := f.shard(fl.id)
	s.Lock()
	defer s.Unlock()
	if fl.state == flying {
		fl.since, fl.inside = time.Now(), inside
	}
}

// giveUp takes the flights that began before the given time, and do not wait for their turn, away
// from their leaders. The caller must set their errors, and close done.
func (f *flights) giveUp(before time.Time) (late []*flight) {
	for i := range f.shards {
		s := &f.shards[i]
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
	return late
}

// each calls look for every flight that can be joined. look must be quick: joins wait for it.
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
