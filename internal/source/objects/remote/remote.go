// Package remote implements objects.Objects over any store that is asked by requests which may be
// slow, fail for the moment, or be answered wrongly: object stores and web servers.
//
// A Store makes single requests. This package decides what an answer is worth: whether it is of the
// version that was listed, has the bytes that were asked for and no others, and whether to ask
// again. A request that takes much longer than others of its size is made a second time (hedge.go),
// and the answer that comes first counts.
//
// Every answer says which version of the object it is from. That is compared with the version that
// was listed, so that two versions are never mixed; nothing has to be remembered of an object but
// the hash of its version.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// Store is an object store or web server: it makes one request per call. Its methods are safe for
// concurrent use. Their errors are *Errors, or those of ctx.
type Store interface {
	// Get requests n > 0 bytes of an object from offset on.
	Get(ctx context.Context, name string, offset, n int64) (*Answer, error)
	// Head requests what an object is.
	Head(ctx context.Context, name string) (Version, error)
	// List calls each for every object whose name begins with prefix and comes after another one, in
	// the order of the bytes of their names, until each returns an error, which List then returns as
	// it is.
	List(ctx context.Context, prefix, after string, each func(name string, v Version) error) error
	// Path returns where the object of that name is, for messages.
	Path(name string) string
	// Close releases what the store takes. Close must be the last call.
	Close() error
}

// Version is what a store answers of an object.
type Version struct {
	Size int64
	// Tag identifies the contents: the ETag or, without one, whatever changes with them; "": none.
	Tag      string
	Modified time.Time // zero: unknown
}

// Answer is the answer to a request for bytes.
type Answer struct {
	Version       // of the object that the bytes are from
	Offset  int64 // of the first byte
	Length  int64 // bytes that follow; -1: unknown
	Body    io.ReadCloser
}

// Error is why a request failed.
type Error struct {
	Kind error // source.ErrMissing and the like; ErrUnavailable: it may succeed later
	// Beyond is set if there are no bytes at the offset. Size is then the object's, if it is known,
	// otherwise -1.
	Beyond bool
	Size   int64
	Err    error // the underlying error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.Error()
	}
	return e.Err.Error()
}

// Unwrap lets errors.Is find both the reason and the underlying error.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// Options are what a place is opened with.
type Options struct {
	// Quiet is for how long a request may transfer nothing. 0: DefaultQuiet.
	Quiet time.Duration
	// Attempts is how often a request is made that fails for the moment. 0: DefaultAttempts.
	Attempts int
	// Pause is the pause before the second attempt, which doubles from attempt to attempt. 0:
	// DefaultPause.
	Pause time.Duration
	// NoHedges turns off second requests.
	NoHedges bool
}

// Defaults of Options. Servers that throttle ask for pauses of about a second, and a source that
// fails for longer is waited for by the job (source_timeout).
const (
	DefaultQuiet    = 30 * time.Second
	DefaultAttempts = 5
	DefaultPause    = 50 * time.Millisecond
	longestPause    = 3 * time.Second
)

// Objects are the objects of a store.
type Objects struct {
	store    Store
	options  Options
	pace     pace
	closed   atomic.Bool
	reached  atomic.Bool // there was a connection
	untagged atomic.Bool // an answer did not say which version it is from
	counts   struct {
		requests, again, hedges, won, heads, lists, bytes atomic.Int64
	}
}

var (
	_ objects.Objects    = (*Objects)(nil)
	_ objects.Many       = (*Objects)(nil)
	_ objects.Versioned  = (*Objects)(nil)
	_ objects.Requesting = (*Objects)(nil)
)

// New returns the objects of a store, and owns it: Close closes it.
func New(store Store, o Options) *Objects {
	if o.Quiet <= 0 {
		o.Quiet = DefaultQuiet
	}
	if o.Attempts <= 0 {
		o.Attempts = DefaultAttempts
	}
	if o.Pause <= 0 {
		o.Pause = DefaultPause
	}
	return &Objects{store: store, options: o}
}

// Requests implements objects.Requesting.
func (p *Objects) Requests() source.Requests {
	c := &p.counts
	return source.Requests{
		Gets: c.requests.Load(), Again: c.again.Load(), Hedges: c.hedges.Load(),
		Won: c.won.Load(), Heads: c.heads.Load(), Lists: c.lists.Load(), Bytes: c.bytes.Load(),
	}
}

// Versioned implements objects.Versioned.
func (p *Objects) Versioned() bool { return !p.untagged.Load() }

// Path implements objects.Objects.
func (p *Objects) Path(name string) string { return p.store.Path(name) }

// Close implements objects.Objects.
func (p *Objects) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.store.Close()
}

// Stat implements objects.Objects.
func (p *Objects) Stat(ctx context.Context, name string) (source.Object, error) {
	var found Version
	err := p.again(ctx, name, func(ctx context.Context) (err error) {
		p.counts.heads.Add(1)
		ctx, cancel := context.WithTimeout(ctx, p.options.Quiet)
		defer cancel()
		found, err = p.store.Head(ctx, name)
		return err
	})
	if err != nil {
		return source.Object{}, err
	}
	return p.object(name, found), nil
}

// object returns an object as package source describes it. Its stamp is that of its version: a
// store replaces objects as a whole. Where there is an ETag, the time does not count: it is another
// one in a copy of the store.
func (p *Objects) object(name string, v Version) source.Object {
	o := source.Object{Name: name, Size: v.Size}
	tag := v.Tag
	if tag == "" && !v.Modified.IsZero() {
		o.Modified = v.Modified.UnixNano()
		tag = fmt.Sprintf("%d bytes of %d", v.Size, o.Modified)
	}
	if tag == "" {
		p.untagged.Store(true)
	} else {
		o.Tag = xxh3.HashString128(tag).Bytes()
		o.Stamp = source.NewStamp(v.Size, int64(xxh3.HashString(tag)), 0, 0)
	}
	return o
}

// Read implements objects.Objects.
func (p *Objects) Read(ctx context.Context, o *source.Object, offset int64, parts [][]byte,
) (source.Stamp, error) {
	n := int64(0)
	for _, part := range parts {
		n += int64(len(part))
	}
	if n == 0 { // there is no such request
		now, err := p.Stat(ctx, o.Name)
		if err != nil {
			return 0, err
		}
		return now.Stamp, p.compare(o, &now)
	}
	var now source.Object
	err := p.again(ctx, o.Name, func(ctx context.Context) (err error) {
		now, err = p.hedged(ctx, &request{object: o, offset: offset, length: n}, parts)
		return err
	})
	if err != nil {
		return 0, err
	}
	return now.Stamp, nil
}

// compare returns an error if an object is not the one that was listed.
func (p *Objects) compare(listed, now *source.Object) error {
	if kind, why := objects.Compare(listed, now); kind != nil {
		return &objects.Error{Path: p.Path(listed.Name), Kind: kind, Err: why}
	}
	return nil
}

func (p *Objects) check(ctx context.Context, name string) error {
	switch {
	case p.closed.Load():
		return &objects.Error{Path: p.Path(name), Kind: source.ErrUnreadable, Err: fs.ErrClosed}
	case ctx.Err() != nil:
		return &objects.Error{Path: p.Path(name), Kind: source.ErrUnavailable, Err: ctx.Err()}
	}
	return nil
}

// failed returns the error of an Objects for one of a store.
func (p *Objects) failed(ctx context.Context, name string, err error) error {
	var known *objects.Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return &objects.Error{Path: p.Path(name), Kind: source.ErrUnavailable, Err: ctx.Err()}
	}
	kind := source.ErrUnavailable
	var e *Error
	if errors.As(err, &e) {
		kind, err = e.Kind, e.Err
	}
	return &objects.Error{Path: p.Path(name), Kind: kind, Err: err}
}

// again calls do until it succeeds or fails for good. It pauses in between.
func (p *Objects) again(
	ctx context.Context, name string, do func(ctx context.Context) error,
) error {
	pause, begin := p.options.Pause, time.Now()
	for attempt := 1; ; attempt++ {
		if err := p.check(ctx, name); err != nil {
			return err
		}
		limited, cancel := objects.Limit(ctx)
		err := do(limited)
		slow := limited.Err() != nil
		if slow && err != nil && ctx.Err() == nil {
			err = &Error{Kind: source.ErrUnavailable, Err: context.Cause(limited)}
		}
		cancel()
		p.noteReached(err)
		if err == nil {
			return nil
		}
		if err = p.failed(ctx, name, err); slow {
			return err
		}
		if !errors.Is(err, source.ErrUnavailable) || attempt >= p.options.Attempts &&
			!(p.reached.Load() && objects.Again(ctx, begin, err)) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		p.counts.again.Add(1)
		pause = min(2*pause, longestPause)
	}
}

// noteReached notes that there was a connection to the server. Where there never was one, the URL
// may be wrong, so that it is not waited for.
func (p *Objects) noteReached(err error) {
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		p.reached.Store(true)
	}
}
