package cache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache/flights"
	"github.com/hdmlp/hdmlp/internal/model/meter"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Sample is a fetched sample.
type Sample struct {
	Data    []byte  // must not be modified if it is in a class: InPlace, or of a Kind
	Kind    uint8   // Data is a form of this kind (Converter), for a Request of Forms; 0: as read
	InPlace bool    // Data is in a class, where a process can read it
	At      Located // where, if InPlace
	From    Tier    // the tier that it was found in
	Read    bool    // this fetch read it from the source
	// Direct is set if this fetch read it from the source although a class or another node has it,
	// which would have taken longer.
	Direct bool
	// Relayed is set if it came from another node that had to read it from the source for this fetch,
	// and if that took most of the fetch's time.
	Relayed bool
	// Others are the sizes of the samples beside this one that the read from the source has brought
	// as well, into their class.
	Others []int64

	hold   store.Hold // of Data; nil: none is needed
	digest uint32     // of Data, if it is of a Kind and in a class
}

// Awaited returns the tier that the fetch waited for: the one that the sample was found in, or the
// source if another node had to read it from there.
func (s *Sample) Awaited() Tier {
	if s.Relayed {
		return Source
	}
	return s.From
}

// Release ends the use of Data, if it is in a class. It must be called once for each sample that
// Fetch and FetchView return without an error.
func (s *Sample) Release() {
	if s.hold != nil {
		s.hold.Release()
		s.hold = nil
	}
}

// errElsewhere reports that this node is fetching the sample from another node, and a read on
// behalf of a third node must not wait for that.
var errElsewhere = errors.New("this node is fetching the sample from another one")

// Fetch brings a sample into the class that the plan assigns it to, if it can be delivered from
// there, else into dst. A sample already in such a class stays there. Fetch returns ErrNoCapacity
// if the sample needs a buffer and dst is too short (Cache.buffer), and ErrAbandoned if its read
// was given up.
//
// Each iteration:
//
//   - returns the sample if it is in a class of memory, or makes it of its form there;
//   - chooses the tier to read it from, and reads it if that is another class;
//   - else joins its flight. The leader brings the sample. A follower waits; it has the sample if
//     it got a copy, and else looks again, as it does if the flight failed for reasons of its
//     leader alone, or has brought a form (forms.go).
func (c *Cache) Fetch(ctx context.Context, r *Request, id int, dst []byte) (Sample, error) {
	size := c.index.Size(id)
	noClass := false    // its class turned out to have no capacity for it now
	var followed *found // by the flight that was followed last
	for {
		var to *class // the class to bring it into; nil: into
		if !noClass {
			if s, ok := c.view(id); ok {
				if followed != nil {
					s.From, s.Relayed = followed.tier, followed.relayed
				}
				return s, nil
			}
			to = c.destination(id)
		}
		if s, ok, err := c.formed(r, id, dst); ok || err != nil {
			return s, err
		}
		if to == nil && r.inPlace {
			return Sample{}, ErrNoCapacity
		}
		way := c.route(r, id)
		if to != nil && way.peer && c.mayAskForm(r, id) { // by the buffer: it may be a form
			way.keep, to = to, nil
		}
		var into, room []byte
		if to == nil {
			need := c.buffer(r, id)
			if len(dst) < need {
				return Sample{}, ErrNoCapacity
			}
			into, room = dst[:size], dst[:need]
			if tier, _, ok := c.readComing(id, into); ok {
				return Sample{Data: into, From: tier}, nil
			}
		}
		if to == nil && way.tier >= FirstClass {
			s, late, ok := c.readHeld(r, id, room, c.limit(r))
			if ok {
				return s, nil
			}
			way.direct = late
		}
		fl, leads, copied := c.flights.Join(flights.Fetch[*Request]{
			ID: id, By: r, Buffer: into, Urgent: r.urgent(), Remote: r.remote, Asks: way.peer,
		})
		if leads {
			s, err := c.lead(ctx, r, fl, way, to, room)
			if err == errFormed {
				continue
			}
			if to == nil || !errors.Is(err, ErrNoCapacity) {
				return s, err
			}
			noClass = true
			continue
		}
		if r.remote && fl.Asks {
			return Sample{}, errElsewhere
		}
		got, failed, err := fl.Wait(ctx)
		switch {
		case err != nil:
			return Sample{}, err
		case failed == nil && got.form:
		case failed == nil && copied:
			return Sample{Data: into, From: got.tier, Relayed: got.relayed}, nil
		case failed == nil:
			followed = &got
		case !retry(failed):
			return Sample{}, failed
		}
	}
}

// buffer returns how many bytes of a buffer a fetch may need.
func (c *Cache) buffer(r *Request, id int) int {
	size := c.index.Size(id)
	if c.mayAskForm(r, id) || r.Forms && c.fileForms {
		size = mostForm(size)
	}
	return int(size)
}

// FetchView is Fetch for callers that only need the bytes, in a class or in the worker's buffer.
// They are valid until the worker's next fetch.
func (c *Cache) FetchView(ctx context.Context, w *Worker, r *Request, id int) (Sample, error) {
	s, err := c.Fetch(ctx, r, id, w.Buffer[:cap(w.Buffer)])
	if size := c.buffer(r, id); errors.Is(err, ErrNoCapacity) && cap(w.Buffer) < size {
		w.Buffer = slices.Grow(w.Buffer[:0], size)
		s, err = c.Fetch(ctx, r, id, w.Buffer[:cap(w.Buffer)])
	}
	return s, err
}

// lead brings a sample for a flight that the caller leads: into class to, or, if that is nil, into
// the buffer room. It lands the flight.
func (c *Cache) lead(ctx context.Context, r *Request, fl *flight, way route, to *class,
	room []byte,
) (s Sample, err error) {
	id := int(fl.ID)
	c.confirm(ctx, id)
	if c.holdsForm(id) {
		return Sample{}, c.land(ctx, fl, Sample{}, errFormed)
	}
	if to == nil {
		var origin store.Origin
		s, origin, err = c.bring(ctx, r, fl, way, room)
		// As in leadInto: Release may not have seen this flight.
		if err == nil && s.Kind == 0 && way.keep != nil && c.destination(id) == way.keep {
			c.put(way.keep, id, s.Data, origin)
		}
	} else {
		s, err = c.leadInto(ctx, r, fl, way, to)
	}
	switch err = c.land(ctx, fl, s, err); {
	case err == ErrAbandoned:
		return s, err
	case err != nil:
		return Sample{}, err
	}
	if to != nil {
		held, ok := c.view(id)
		if !ok {
			return Sample{}, ErrNoCapacity // its copies are in doubt again, or memory is short
		}
		held.From = s.From
		held.Read = s.Read
		held.Direct = s.Direct
		held.Relayed = s.Relayed
		held.Others = s.Others
		return held, nil
	}
	return s, nil
}

// land ends a flight with the sample, or an error, which it returns: ErrAbandoned if the flight was
// given up.
func (c *Cache) land(ctx context.Context, fl *flight, s Sample, err error) error {
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	got := found{tier: s.From, relayed: s.Relayed, form: s.Kind != 0}
	if got.form {
		s.Data = nil // followers get no copy of it
	}
	if !c.flights.Land(fl, s.Data, got, err) {
		c.lend(fl, -1)
		return ErrAbandoned
	}
	return err
}

// leadInto is bring into a class.
func (c *Cache) leadInto(ctx context.Context, r *Request, fl *flight, way route,
	to *class,
) (Sample, error) {
	id := int(fl.ID)
	if at, ok := c.Locate(id); ok { // the flight before this one has brought it
		return Sample{From: at.Tier()}, nil
	}
	// Release waits for the flights that it sees. This one may have begun later, by the old plan.
	if c.destination(id) != to {
		return Sample{}, ErrNoCapacity
	}
	var got struct {
		Sample
		origin store.Origin
		begun  bool
	}
	err := to.inPlace.Fill(id, func(dst []byte) (_ store.Origin, err error) {
		got.begun = true
		got.Sample, got.origin, err = c.bring(ctx, r, fl, way, dst)
		return got.origin, err
	})
	switch {
	case err == nil:
		c.confirmKept(to, id, got.origin)
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrFull):
		c.demoted.set(id)
		c.conversion.note()
		err = ErrNoCapacity
	// Not begun: a hung read that was given up, or another cache over the same store, is filling
	// it.
	case !got.begun:
		err = ErrNoCapacity
	}
	return got.Sample, err
}

// bring brings a sample into a buffer: from a class, into which the previous flight may have put
// it, or by a read. If the buffer has more bytes than the sample, another node may send a form.
func (c *Cache) bring(ctx context.Context, r *Request, fl *flight, way route,
	room []byte,
) (Sample, store.Origin, error) {
	id := int(fl.ID)
	dst := room[:c.index.Size(id)]
	if tier, origin, ok := c.readComing(id, dst); ok {
		return Sample{Data: dst, From: tier}, origin, nil
	}
	direct := way.direct
	if !direct {
		s, late, ok := c.readHeld(r, id, room, c.limit(r))
		if ok {
			return s, c.origin(s.From, id), nil
		}
		direct = late
	}
	s, origin, err := c.read(ctx, r, fl, way, room)
	if direct && errors.Is(err, source.ErrUnavailable) && ctx.Err() == nil {
		// The class is slow, or hangs, and the source does not answer at all.
		if s, _, ok := c.readHeld(r, id, room, c.lastResort); ok {
			return s, c.origin(s.From, id), nil
		}
	}
	if err == nil && s.Kind == 0 {
		c.keep(id, dst, origin)
	}
	s.Read = err == nil && s.From == Source
	s.Direct = s.Read && (direct || s.Direct)
	return s, origin, err
}

// origin returns the origin of a sample that was read from a class.
func (c *Cache) origin(tier Tier, id int) store.Origin {
	origin, _ := c.classes[tier-FirstClass].Store.Origin(id)
	return origin
}

// classLimit is for how long a class is waited for that is predicted to take so many seconds for a
// sample.
type classLimit func(id int, predicted float64) time.Duration

// classLimit is for how long a class is waited for, if the source has the sample as well.
func (c *Cache) classLimit(id int, predicted float64) time.Duration {
	return routing.ClassLimit(predicted, c.sourceTakes(c.index.Size(id)), c.timeout)
}

// limit returns classLimit for a request: if copies come first, a class is waited for as long as if
// the source were no faster than it may be.
func (c *Cache) limit(r *Request) classLimit {
	if !r.CacheFirst {
		return c.classLimit
	}
	return func(_ int, predicted float64) time.Duration {
		return routing.ClassLimit(predicted, routing.MaxTimeout, c.timeout)
	}
}

// lastResort is for how long a class is waited for if the source has failed.
func (c *Cache) lastResort(int, float64) time.Duration { return routing.LastResort(c.timeout) }

// read reads a sample that no class of the node holds: from the node that owns it, or from the
// source. Direct is then set if the node has not answered in time. A read for another node never
// asks a third one (its Request has no Peers), so that no two nodes wait for each other. If the
// buffer has more bytes than the sample, the other node may send a form.
func (c *Cache) read(ctx context.Context, r *Request, fl *flight, way route, room []byte) (Sample,
	store.Origin, error,
) {
	id, late := int(fl.ID), false
	dst := room[:c.index.Size(id)]
	if fl.Asks {
		back := c.away(r, id)
		read := c.meters[Peer].Begin(time.Now(), len(dst))
		source := func() time.Duration { return c.sourceTakes(int64(len(dst))) }
		if r.CacheFirst {
			source = func() time.Duration { return routing.MaxTimeout }
		}
		got, err := r.Peers.Fetch(ctx, id, room, c.want(r, id, len(room), way.keep), source,
			r.due(time.Now()))
		back()
		read.Waited = got.Waited
		if got.Kind != 0 {
			c.meters[Peer].Grow(&read, 0, int64(got.Size-len(dst)))
		}
		c.meters[Peer].End(time.Now(), read, err)
		if err == nil {
			err = c.received(id, &got, room)
		}
		if err == nil {
			origin, err := c.remoteOrigin(got.Node, id, got.Digest)
			relayed := 2*got.Waited > time.Since(fl.Since())
			s := Sample{Data: dst, Kind: got.Kind, From: Peer, Relayed: relayed}
			if got.Kind != 0 {
				s.Data = room[:got.Size]
			}
			return s, origin, err
		}
		late = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	}
	origin, others, err := c.readSource(ctx, r, fl, dst)
	return Sample{Data: dst, From: Source, Direct: late, Others: others}, origin, err
}

// away has another worker work in the place of the caller, which waits for another node until it
// calls back, unless their number is given, or that node is to read the sample from the source: if
// this is what limits, more requests would only wait longer, until it seems not to answer.
func (c *Cache) away(r *Request, id int) (back func()) {
	if c.gate == nil || r.Peers.Relays(id) {
		return func() {}
	}
	return c.pool.Away()
}

// sourceTakes estimates how long it takes to read this many bytes from the source.
func (c *Cache) sourceTakes(bytes int64) time.Duration {
	return routing.SourceTakes(c.meters[Source].Arrival(time.Now(), bytes))
}

// readSource reads a sample from the source, once there may be another read from it. What a read
// that something waits for has to wait counts as a part of it, so that the source is chosen less.
func (c *Cache) readSource(ctx context.Context, r *Request, fl *flight, dst []byte) (
	origin store.Origin, others []int64, err error,
) {
	id := int(fl.ID)
	if err := ctx.Err(); err != nil {
		return origin, others, err
	}
	stamp, others, err := c.admitted(ctx, r, fl, dst)
	if err != nil {
		return origin, others, err
	}
	c.sourceSamples.Add(1)
	c.sourceBytes.Add(int64(len(dst)))
	origin, err = c.sourceOrigin(id, dst, stamp)
	return origin, others, err
}

// admitted is readSource without its checks of what is read.
func (c *Cache) admitted(ctx context.Context, r *Request, fl *flight, dst []byte) (
	stamp source.Stamp, others []int64, err error,
) {
	if c.gate != nil && !c.flights.Queue(fl) {
		return 0, others, ErrAbandoned
	}
	urgent := r.urgent()
	var read meter.Read
	if urgent {
		read = c.meters[Source].Begin(time.Now(), len(dst))
	}
	if c.gate != nil {
		c.gate.Enter(urgent, fl.Wanted)
		defer func() { c.gate.Leave(err == nil) }()
	}
	if c.requests {
		within, cancel := context.WithCancel(ctx)
		c.cancels.Store(fl, cancel)
		defer func() { c.cancels.Delete(fl); cancel() }()
		ctx = within
	}
	c.flights.Enter(fl, c.gate != nil)
	if !urgent {
		read = c.meters[Source].Begin(time.Now(), len(dst))
	}
	if err = c.tooManyHung(int(fl.ID)); err == nil { // more may hang than when it began to wait
		stamp, others, err = c.readRun(ctx, int(fl.ID), dst, func(others, bytes int64) {
			c.meters[Source].Grow(&read, others, bytes)
			c.gate.Grow(others)
		})
	}
	c.meters[Source].End(time.Now(), read, err)
	return stamp, others, err
}

// keep puts a sample that was read into the class that a plan assigns it to, and into those that
// keep everything, if any plan keeps something. It does not wait for a class that cannot keep up,
// or hangs, because others may wait for the flight: the class misses the sample, unless that is
// read ahead of time, which has memory for its copy (fill).
func (c *Cache) keep(id int, data []byte, origin store.Origin) {
	for j := range c.classes {
		if c.writes(j, id) {
			c.classes[j].writer.Put(id, data, origin)
		}
	}
}

// writes reports whether a sample that is read is to be written to class j.
func (c *Cache) writes(j, id int) bool {
	cl := &c.classes[j]
	return cl.inPlace == nil && c.planned.Load() != nil && (cl.KeepAll || c.class(id) == j+1)
}

// put puts a sample that was read into a buffer into a class of memory, if it has capacity.
func (c *Cache) put(to *class, id int, data []byte, origin store.Origin) {
	switch err := to.Store.Put(id, data, origin); {
	case err == nil:
		c.confirmKept(to, id, origin)
	case errors.Is(err, store.ErrFull):
		c.demoted.set(id)
		c.conversion.note()
	}
}
