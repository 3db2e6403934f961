package cache

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Forms in classes that are not in memory
//
// A class that keeps everything (KeepAll) may hold the samples that the plan gives to it in other
// forms, beyond the room that it has for all samples as read (store.FormReader). So it never lacks
// room for a sample because of forms. Those are kept that give the sample, and have at most as
// many bytes as mostForm says: they are read into buffers of that size, and nothing is read from
// the source for them.
//
// What asks for forms gets the form, and all else the sample that it gives. One that is of another
// version, or of another sample, is dropped, as one whose digest is wrong is, and the sample is
// read again.
//
// Copies are converted and become samples again by looks, as those in memory (settle.go):
//
//	a job needs samples as read, or forms      forms become samples, all or until there is room
//	take more than they may
//	all jobs take forms, there is room, and    samples become forms
//	it is worth it for one of them
//
// Each copy is read, and written once more. A class that is slow, or hangs, is not waited for: what
// is done there goes on by itself (store.Reader.Do), and no more is begun.

const (
	// filesWait is for how long a class is waited for that is not in memory.
	filesWait = 2 * time.Second
	// filesMargin is the part of the class's capacity that stays free of forms, so that none are
	// made and undone by turns as the space on the disk changes.
	filesMargin = 32
	// copyTries is how often a copy is looked for that becomes another one meanwhile.
	copyTries = 4
)

// fileForms are the forms of a class that is not in memory.
type fileForms struct {
	store  store.FormReader
	asRead bitset // samples that have no form which the class may hold
	// stuck is set if a write did not return in time: this look begins no other one.
	stuck  atomic.Bool
	counts formCounts
}

// errNoForm reports that a class holds a sample as read, or not at all.
var errNoForm = errors.New("the class does not hold the sample in another form")

// heldSize returns how many bytes a class's copy has of a sample of so many.
func (c *Cache) heldSize(tier Tier, id int, size int64) int64 {
	if f := c.classes[tier-FirstClass].files; f != nil {
		if info, ok := f.store.FormInfo(id); ok {
			return info.Bytes
		}
	}
	return size
}

// readCopy reads what a class holds that is not in memory, as readHeld does.
func (c *Cache) readCopy(r *Request, j, id int, room []byte, limit classLimit) (Sample, error) {
	cl, dst := &c.classes[j], room[:c.index.Size(id)]
	for tries := 1; ; tries++ {
		s, err := c.readForm(r, j, id, room, limit)
		if errors.Is(err, errNoForm) {
			s, err = Sample{Data: dst, From: FirstClass + Tier(j)}, c.timed(j, len(dst), id, limit,
				func(most func() time.Duration) error { return cl.reader.Read(id, dst, most) })
		}
		changed := errors.Is(err, store.ErrForm) || errors.Is(err, store.ErrNotHeld)
		if !changed || tries == copyTries || !cl.Store.Has(id) {
			return s, err
		}
	}
}

// readForm is readCopy of a copy in another form than as read.
func (c *Cache) readForm(r *Request, j, id int, room []byte, limit classLimit) (Sample, error) {
	cl := &c.classes[j]
	if cl.files == nil {
		return Sample{}, errNoForm
	}
	info, ok := cl.files.store.FormInfo(id)
	if !ok {
		return Sample{}, errNoForm
	}
	size := c.index.Size(id)
	takes := r.takes(int(info.Bytes)) && !r.want.Unpack && int64(len(room)) > size &&
		int64(len(room)) >= info.Bytes && !c.unformed.has(id)
	into := room
	if !takes {
		into = make([]byte, info.Bytes)
	}
	s := Sample{
		Data: into[:info.Bytes], Kind: info.Kind, From: FirstClass + Tier(j), digest: info.Digest,
	}
	err := c.timed(j, len(s.Data), id, limit, func(most func() time.Duration) error {
		return cl.reader.ReadForm(id, info, s.Data, most)
	})
	if err == nil && takes && c.describes(id, &s) {
		return s, nil
	}
	if err == nil && !takes {
		if data, ok := c.restore(id, room[:size], s); ok {
			if r.remote {
				cl.files.counts.unpacked.Add(1)
			}
			return Sample{Data: data, From: s.From}, nil
		}
	}
	return Sample{}, c.damaged(cl, id, err)
}

// describes reports whether a form is of the sample.
func (c *Cache) describes(id int, form *Sample) bool {
	size, sum, ok := c.converter.Describe(form.Data, form.Kind)
	known, read := c.digests.Of(id)
	return ok && size == c.index.Size(id) && (!read || sum == known)
}

// damaged counts, and drops, a copy that could not be read, or, without an error, is no form of the
// sample, and returns the error for that.
func (c *Cache) damaged(cl *class, id int, err error) error {
	if err == nil {
		c.drop(cl, id)
		err = store.ErrCorrupt
	}
	if errors.Is(err, store.ErrCorrupt) {
		cl.files.counts.damaged.Add(1)
	}
	return err
}

// lookFiles looks at a class that is not in memory.
func (v *conversion) lookFiles(ctx context.Context, j int, l *looks) {
	cl, begun := &v.cache.classes[j], time.Now()
	makes := v.forms.Load() && v.worth.Load() && cl.KeepAll
	if begun.Before(l.pause) || !cl.reader.Responds() ||
		!makes && cl.files.store.Formed().Samples == 0 {
		return
	}
	now, room, ok := v.stateOfFiles(cl)
	if !ok || now == l.settled {
		return
	}
	held := cl.Store.Held()
	cl.files.stuck.Store(false)
	l.pause = time.Now().Add(lookShare * time.Since(begun))
	switch {
	case now.formed > 0 && (!now.wanted || room < 0):
		v.makeFileSamples(ctx, j, held, room)
	case now.wanted && now.worth && cl.KeepAll && room > now.total/filesMargin:
		v.makeFileForms(ctx, j, held, room-now.total/filesMargin)
	}
	if again, _, _ := v.stateOfFiles(cl); ctx.Err() == nil && again == now {
		l.settled = now
	}
}

// stateOfFiles returns what a look at a class depends on, and the room for forms. ok is false if
// the class has not answered.
func (v *conversion) stateOfFiles(cl *class) (s state, room int64, ok bool) {
	found := make(chan int64, 1)
	if !cl.reader.Do(func() { found <- cl.files.store.FormRoom() }, filesWait) {
		return s, 0, false
	}
	room = <-found
	s = state{
		events: v.events.Load(), wanted: v.forms.Load(), worth: v.worth.Load(),
		formed: cl.files.store.Formed().Samples,
	}
	s.total, s.used = cl.Store.Capacity()
	s.growing = room > s.total/filesMargin
	if room < 0 {
		s.returned = room
	}
	return s, room, true
}

// makeFileForms converts samples that a class holds, and that the plan gives to it, to forms that
// take so many bytes more at most.
func (v *conversion) makeFileForms(ctx context.Context, j int, held []int32, room int64) {
	cl := &v.cache.classes[j]
	ids := those(held, func(id int) bool {
		_, formed := cl.files.store.FormInfo(id)
		return !formed && !cl.files.asRead.has(id) && !v.cache.unformed.has(id) &&
			v.cache.class(id) == j+1 && v.cache.confirmed.has(id)
	})
	var left atomic.Int64
	left.Store(room)
	on := func() bool {
		return v.forms.Load() && v.worth.Load() && left.Load() > 0 && cl.files.writable()
	}
	v.each(ctx, &cl.files.counts, on, ids, func(buffer []byte, id int) []byte {
		size := v.cache.index.Size(id)
		buffer = slices.Grow(buffer[:0], int(size+mostForm(size)))
		sample := buffer[:size:size]
		if v.readFile(j, id, store.FormInfo{}, sample) != nil {
			return buffer
		}
		if known, read := v.cache.digests.Of(id); !read || digest.Of(sample) != known {
			return buffer
		}
		most := v.converter.Size(id, sample, Way{}) // of no recipe: jobs to come may have others
		if most <= 0 || unitsOf(most, size) > sizeBands[0] {
			cl.files.asRead.set(id)
			return buffer
		}
		form, kind, ok := v.converter.Convert(buffer[size:size], id, sample, Way{})
		more := int64(len(form)) - size
		if !ok || int64(len(form)) > mostForm(size) || !v.converter.Exact(form, kind) {
			cl.files.asRead.set(id)
			return buffer
		}
		if left.Add(-more) < 0 {
			return buffer
		}
		return v.replaceFile(j, id, kind, form, buffer, &cl.files.counts.converted)
	})
}

// makeFileSamples converts forms that a class holds to samples, all if there is room for them, and
// else until there is.
func (v *conversion) makeFileSamples(ctx context.Context, j int, held []int32, room int64) {
	cl := &v.cache.classes[j]
	ids := those(held, func(id int) bool {
		_, formed := cl.files.store.FormInfo(id)
		return formed
	})
	var left atomic.Int64
	left.Store(room)
	on := func() bool { return (!v.forms.Load() || left.Load() < 0) && cl.files.writable() }
	v.each(ctx, &cl.files.counts, on, ids, func(buffer []byte, id int) []byte {
		info, ok := cl.files.store.FormInfo(id)
		if !ok {
			return buffer
		}
		size := v.cache.index.Size(id)
		buffer = slices.Grow(buffer[:0], int(info.Bytes+size))
		form := buffer[:info.Bytes:info.Bytes]
		err := v.readFile(j, id, info, form)
		if err != nil {
			_ = v.cache.damaged(cl, id, err)
			return buffer
		}
		dst := buffer[info.Bytes : info.Bytes+size]
		sample, ok := v.cache.restore(id, dst, Sample{Data: form, Kind: info.Kind})
		if !ok {
			_ = v.cache.damaged(cl, id, nil)
			return buffer
		}
		left.Add(info.Bytes - size)
		return v.replaceFile(j, id, 0, sample, buffer, &cl.files.counts.restored)
	})
}

// readFile reads a copy of a class that is not in memory: a form if that has a Kind.
func (v *conversion) readFile(j, id int, form store.FormInfo, dst []byte) error {
	reader := v.cache.classes[j].reader
	return v.cache.timed(j, len(dst), id, v.cache.classLimit,
		func(most func() time.Duration) error {
			if form.Kind != 0 {
				return reader.ReadForm(id, form, dst, most)
			}
			return reader.Read(id, dst, most)
		})
}

// replaceFile puts a copy, which lies in the buffer, in the place of a class's copy, and counts it.
// It returns the buffer; nil if that is still used.
func (v *conversion) replaceFile(j, id int, kind uint8, data, buffer []byte, done *atomic.Int64,
) []byte {
	cl, m := &v.cache.classes[j], &v.cache.meters[FirstClass+Tier(j)]
	returned := cl.reader.Do(func() {
		m.Occupy(len(data))
		defer m.Occupy(-len(data))
		if cl.files.store.Replace(id, kind, data) == nil {
			done.Add(1)
		}
	}, filesWait)
	if !returned {
		cl.files.stuck.Store(true)
		return nil
	}
	return buffer
}

// writable reports whether copies can be replaced: the class takes some, and writes return.
func (f *fileForms) writable() bool {
	r, ok := f.store.(store.Refuser)
	return !f.stuck.Load() && (!ok || r.Refuses() == "")
}
