package cache

import (
	"context"
	"errors"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/flights"
	"github.com/hdmlp/hdmlp/internal/model/routing"
)

// Peers gives access to the other nodes of a job: the node that owns a sample reads it from the
// source once, keeps it, and sends it to the others. Methods must be safe for concurrent use.
type Peers interface {
	// Owner reports whether another node owns the sample and is not bypassed now, and predicts how
	// long it would take to fetch the sample, of this many bytes, from there, if the source is
	// predicted to take so many seconds.
	Owner(id int, bytes int64, source float64) (t routing.Tier, ok bool)
	// Relays reports whether the node that owns the sample would probably have to read it from the
	// source.
	Relays(id int) bool
	// Fetch fetches the sample, or a form of it, if w takes one, from its owner into dst, which it
	// may write to until it returns, unless that takes longer than until the sample is due, and much
	// longer than the source would, for which source is an estimate when it is called. A digest is
	// that which the owner took when it read the sample from the source, or made the form. After any
	// error the sample is read from the source: the peer may be slow, dead or corrupting. The error
	// is context.DeadlineExceeded if the source is faster.
	Fetch(ctx context.Context, id int, dst []byte, w routing.Want, source func() time.Duration,
		due time.Duration) (routing.Answer, error)
}

// Request describes on whose behalf samples are fetched. It does not change once it is used, so
// that all fetches of a consumer can share one.
type Request struct {
	Peers    Peers    // the other nodes that may be asked; nil: none
	Consumer Consumer // nil: ahead of time, or for another node
	// CacheFirst is set if samples that a class or another node has are not read from the source.
	CacheFirst bool
	Forms      bool // samples may come in another form than as read (Sample.Kind)
	// Due returns when the samples are needed, in seconds from now; nil: not soon.
	Due     func(now time.Time) float64
	inPlace bool         // only if a class of memory is to keep the sample
	own     bool         // forms of other nodes are not taken
	remote  bool         // on behalf of another node
	want    routing.Want // of the other node
}

// takes reports whether samples may come in a form of this many bytes.
func (r *Request) takes(bytes int) bool { return r.Forms && (!r.remote || bytes <= r.want.Most) }

// due returns how long it is until the samples are needed; 0: that is not known.
func (r *Request) due(now time.Time) time.Duration {
	if r.Due == nil {
		return 0
	}
	return time.Duration(min(r.Due(now), 3600) * float64(time.Second))
}

// urgent reports whether something waits for the samples.
func (r *Request) urgent() bool { return r.Consumer != nil || r.remote }

// flight is a read of a sample in progress.
type flight = flights.Flight[*Request, found]

// found is where the leader of a flight has found the sample, as in Sample.
type found struct {
	tier    Tier
	relayed bool
	form    bool // in another form than as read: followers have no copy
}

var (
	// ErrNoCapacity reports that the class that the plan assigns the sample to is full, and the
	// fetch has no buffer for it.
	ErrNoCapacity = errors.New("the sample's storage class is full, and there is no buffer for it")
	// ErrAbandoned reports that the read hung, and that the watchdog gave it up and notified all that
	// waited for it. The caller must not touch the sample, nor what waited for it.
	ErrAbandoned = errors.New("the read returned after it was given up")
)

// retry reports whether a flight failed for reasons of its leader alone.
func retry(err error) bool {
	return errors.Is(err, flights.ErrLeader) || errors.Is(err, ErrNoCapacity) || err == errFormed
}
