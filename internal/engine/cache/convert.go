package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Conversion
//
// Copies become forms while each job that uses the cache takes forms (UseForms), and there is
// memory for all that the plans give to the class and the forms besides: forms never take the place
// of a sample. If a job needs samples as read, or memory becomes short, forms become samples again;
// after memory was short, for as long as the cache is open.
//
// A conversion takes two to three times what the sample takes to be decoded. So it is done of
// copies that are held, on few goroutines of its own, and never by what a batch waits for. While
// batches wait for reads or transforms, each rests for restShare times what a conversion took.
// Rejected: threads of low priority, which keep the locks, and the processors of Go's scheduler,
// that they have when they are preempted.
//
// Copies are replaced segment by segment, because memory is freed by segment. What is left in one
// is moved if it is at most half of it.

const (
	// restShare is how much longer than it worked a goroutine rests while batches wait.
	restShare = 3
)

// makeForms converts the samples of segments to forms, as long as there is memory for that beside
// the samples that the plans give to the class and that are not held, which need so many bytes. It
// returns how much memory it misses.
func (v *conversion) makeForms(ctx context.Context, cl *class, segments []store.Extent,
	planned int64,
) (misses int64) {
	for i, most := range sizeBands {
		if i == 1 {
			planned += planned / 2 // those that come may be JPEGs, whose forms come first
		}
		before := cl.forms.Formed().Samples
		misses = v.makeFormsOf(ctx, cl, segments, planned, most)
		// The next band takes more memory for what it saves. Samples of this one that were moved
		// meanwhile are seen by the next look.
		if misses > 0 || cl.forms.Formed().Samples != before {
			break
		}
	}
	return misses
}

// makeFormsOf is makeForms for samples whose forms are at most so large, in sizeUnits.
func (v *conversion) makeFormsOf(ctx context.Context, cl *class, segments []store.Extent,
	planned int64, most uint8,
) (misses int64) {
	for _, segment := range segments {
		if ctx.Err() != nil || !v.wanted() || !v.worth.Load() || !cl.shrinker.Growing() {
			return 0
		}
		begun, need := time.Now(), int64(0)
		ids := those(segment.Held, func(id int) bool {
			at, ok := cl.forms.Locate(id)
			if !ok || at.Segment != segment.Number || !v.cache.confirmed.has(id) {
				return false
			}
			bytes, ok := v.formSize(cl, id, most)
			if ok {
				need += bytes
			}
			return ok
		})
		v.rest(ctx, time.Since(begun))
		total, used := cl.Store.Capacity()
		room := total - used - planned
		if most > sizeBands[0] {
			room -= segment.Bytes // for samples that come meanwhile, or are read again
		}
		misses = need - room
		switch {
		case len(ids) == 0:
		case misses > 0:
			if most > sizeBands[0] {
				v.formSegment(ctx, cl, segment, v.fitting(ids, room))
			}
			return misses
		default:
			v.formSegment(ctx, cl, segment, ids)
		}
	}
	return 0
}

// formSegment replaces samples of a segment by their forms, and moves the others if they are at
// most half of it.
func (v *conversion) formSegment(ctx context.Context, cl *class, segment store.Extent, ids []int) {
	var formed atomic.Int64
	v.each(ctx, &v.cache.formCounts, v.wanted, ids, func(buffer []byte, id int) []byte {
		form, ok := v.form(cl, buffer, id)
		if ok {
			formed.Add(1)
		}
		return form
	})
	if ctx.Err() != nil || formed.Load() == 0 {
		return
	}
	size := int64(0)
	rest := those(segment.Held, func(id int) bool {
		at, ok := cl.forms.Locate(id)
		if ok = ok && at.Segment == segment.Number; ok {
			size += v.cache.index.Size(id)
		}
		return ok
	})
	if 2*size <= segment.Bytes {
		v.move(cl, rest) // what finds no room stays
	}
}

// move moves copies to other segments. It reports whether there was room for that.
func (v *conversion) move(cl *class, ids []int) (fits bool) {
	for _, id := range ids {
		var err error
		if view, ok := cl.forms.View(id); ok {
			err = cl.forms.Replace(id, 0, view.Data)
			view.Release()
		} else if form, e := cl.forms.Form(id); e == nil {
			err = cl.forms.Replace(id, form.Kind, form.Data)
			form.Release()
		}
		if errors.Is(err, store.ErrFull) {
			return false
		}
	}
	return true
}

// form replaces a sample by its form, for which it uses a buffer that it returns.
func (v *conversion) form(cl *class, buffer []byte, id int) (_ []byte, ok bool) {
	view, ok := cl.forms.View(id)
	if !ok {
		return buffer, false
	}
	defer view.Release()
	// Of bytes that have been altered since they were read no form is made: what compares samples
	// with what was read would not find that any more.
	if known, read := v.cache.digests.Of(id); !read || digest.Of(view.Data) != known {
		return buffer, false
	}
	buffer, kind, ok := v.converter.Convert(buffer[:0], id, view.Data, v.way)
	if !ok {
		v.asRead.set(id)
		return buffer, false
	}
	v.making.RLock()
	defer v.making.RUnlock()
	if !v.forms.Load() || v.asRead.has(id) || cl.forms.Replace(id, kind, buffer) != nil {
		return buffer, false // a job needs it, there is no room, or it was dropped meanwhile
	}
	v.current.set(id)
	v.cache.formCounts.converted.Add(1)
	return buffer, true
}

// makeSamples converts the forms of segments to samples, as long as there is memory for that.
func (v *conversion) makeSamples(ctx context.Context, cl *class, segments []store.Extent) {
	for _, segment := range segments {
		// While memory may not grow, only one segment at a time takes more.
		if ctx.Err() != nil || v.wanted() ||
			!cl.shrinker.Growing() && cl.shrinker.Returned().Used > 0 {
			return
		}
		if !v.restoreSegment(ctx, cl, segment) {
			return
		}
	}
}

// restoreSegment replaces the forms of a segment by the samples. Forms that do not give these are
// moved if there are others. It reports whether there was room for that: there is none as long as
// processes use memory that was given up.
func (v *conversion) restoreSegment(ctx context.Context, cl *class, segment store.Extent,
) (fits bool) {
	isForm := func(id int) bool {
		_, ok := cl.forms.Locate(id)
		return !ok
	}
	ids := those(segment.Held, isForm)
	var restored, full atomic.Int64
	unwanted := func() bool { return !v.wanted() }
	v.each(ctx, &v.cache.formCounts, unwanted, ids, func(buffer []byte, id int) []byte {
		sample, err := v.sample(cl, buffer, id)
		switch {
		case err == nil:
			restored.Add(1)
		case errors.Is(err, store.ErrFull):
			full.Add(1)
		}
		return sample
	})
	if full.Load() > 0 {
		return false
	}
	if ctx.Err() != nil ||
		restored.Load() == 0 && float64(segment.Dead) <= fewDead*float64(segment.Bytes) {
		return true
	}
	return v.move(cl, those(segment.Held, isForm))
}

// errNotGiven reports that a form does not give its sample.
var errNotGiven = errors.New("the form does not give its sample")

// sample replaces a form by its sample, for which it uses a buffer that it returns.
func (v *conversion) sample(cl *class, buffer []byte, id int) ([]byte, error) {
	form, err := cl.forms.Form(id)
	if err != nil {
		return buffer, err
	}
	defer form.Release()
	buffer, ok := v.converter.Restore(buffer[:0], form.Data, form.Kind)
	if known, read := v.cache.digests.Of(id); !ok || read && digest.Of(buffer) != known {
		return buffer, errNotGiven
	}
	if err := cl.forms.Replace(id, 0, buffer); err != nil {
		return buffer, err
	}
	v.cache.formCounts.restored.Add(1)
	return buffer, nil
}

// those returns the samples for which is reports true.
func those(held []int32, is func(id int) bool) (ids []int) {
	for _, id := range held {
		if is(int(id)) {
			ids = append(ids, int(id))
		}
	}
	return ids
}

// each calls do for each sample, with a buffer that the call before has returned, on the
// conversion's workers, until ctx ends, or it is not to go on.
func (v *conversion) each(ctx context.Context, counts *formCounts, on func() bool, ids []int,
	do func(buffer []byte, id int) []byte,
) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(v.workers, len(ids)) {
		all.Go(func() {
			var buffer []byte
			for ctx.Err() == nil && on() {
				i := int(next.Add(1)) - 1
				if i >= len(ids) {
					return
				}
				begun := time.Now()
				buffer = do(buffer, ids[i])
				took := time.Since(begun)
				counts.took.Add(int64(took))
				v.rest(ctx, took)
			}
		})
	}
	all.Wait()
}

// rest waits for as long as a conversion that took so long is to be followed by none.
func (v *conversion) rest(ctx context.Context, took time.Duration) {
	if v.cache.pool.Unused() {
		return
	}
	timer := time.NewTimer(restShare * took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
