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
// Copies become forms while each job that uses the cache takes forms (Use.TakeForms), and there is
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
// Copies are replaced segment by segment, because memory is freed by segment. What has no form in a
// segment of which the most has one is moved with it.

const (
	// restShare is how much longer than it worked a goroutine rests while batches wait.
	restShare = 3
	// lookEvery is how often it is looked whether there is something to convert, and lookShare by how
	// much longer the pause after that is than listing the samples took, which holds the store's
	// lock.
	lookEvery = time.Second
	lookShare = 100
	// A segment is converted if there is memory for roomNumerator/roomDenominator of it.
	roomNumerator, roomDenominator = 3, 2
)

// conversion converts the copies of a cache's classes. It owns the goroutine of run.
type conversion struct {
	cache     *Cache
	converter Converter
	workers   int
	asRead    bitset // samples that are not converted: they have no form, or it did not suffice

	forms atomic.Bool   // all jobs take forms
	worth atomic.Bool   // for one of them it is worth it to make some
	short atomic.Bool   // memory was short: samples need what forms take more
	poked chan struct{} // receives a token when forms has changed, or the plans have
	end   context.CancelFunc
	ended sync.WaitGroup
}

// startConversion starts to convert, if a class can hold forms. crowded as in Options.
func (c *Cache) startConversion(converter Converter, workers int, crowded bool) {
	holds := false
	for j := range c.classes {
		holds = holds || c.classes[j].forms != nil
	}
	if converter == nil || !holds {
		return
	}
	v := &conversion{
		cache: c, converter: converter, workers: max(workers, 1),
		asRead: newBitset(c.index.Len()), poked: make(chan struct{}, 1),
	}
	var ctx context.Context
	ctx, v.end = context.WithCancel(context.Background())
	v.short.Store(crowded)
	v.poke() // the stores may hold forms
	c.conversion = v
	v.ended.Go(func() { v.run(ctx) })
}

// close ends the conversion; a nil one has none.
func (v *conversion) close() {
	if v != nil {
		v.end()
		v.ended.Wait()
	}
}

// wanted reports whether copies are to become forms.
func (v *conversion) wanted() bool { return v.forms.Load() && !v.short.Load() }

// setForms sets whether all jobs take forms, and whether it is worth it for one to make them.
func (v *conversion) setForms(all, worth bool) {
	before := v.worth.Swap(worth)
	if v.forms.Swap(all) != all || before != worth {
		v.poke()
	}
}

// poke has all classes looked at again; a nil conversion looks at none.
func (v *conversion) poke() {
	if v == nil {
		return
	}
	select {
	case v.poked <- struct{}{}:
	default:
	}
}

// held reports whether a class holds forms.
func (v *conversion) held() bool {
	for j := range v.cache.classes {
		if p := v.cache.classes[j].forms; p != nil && p.Formed().Samples > 0 {
			return true
		}
	}
	return false
}

// run converts until ctx ends.
func (v *conversion) run(ctx context.Context) {
	used := make([]int64, len(v.cache.classes)) // when there was nothing more to do
	var pause time.Time                         // until when nothing is listed
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		var look <-chan time.Time // nil: only what is poked for can change anything
		if v.wanted() || v.held() {
			timer.Reset(lookEvery)
			look = timer.C
		}
		select {
		case <-look:
		case <-v.poked:
			clear(used)
		case <-ctx.Done():
			return
		}
		if !v.cache.inUse() {
			continue // the next job may want the same
		}
		for j := range v.cache.classes {
			cl := &v.cache.classes[j]
			if cl.forms == nil || cl.shrinker == nil {
				continue
			}
			if !cl.growing() && v.wanted() {
				v.short.Store(true)
				clear(used)
			}
			total, now := cl.Store.Capacity()
			if !v.wanted() && cl.forms.Formed().Samples == 0 {
				continue
			}
			if now == used[j] || time.Now().Before(pause) {
				continue
			}
			begun := time.Now()
			planned, segments := v.cache.missing(cl), cl.shrinker.Segments()
			pause = time.Now().Add(lookShare * time.Since(begun))
			if planned > total-now && cl.forms.Formed().Samples > 0 {
				v.short.Store(true)
			}
			done := v.convert(ctx, cl, v.wanted(), planned, segments)
			if _, then := cl.Store.Capacity(); done && then == now { // else there may be more by now
				used[j] = now
			}
		}
	}
}

// convert converts the copies in segments of a class to forms, or back. planned is the memory that
// samples need which are not held yet. It reports whether all was done for which there is memory.
func (v *conversion) convert(ctx context.Context, cl *class, forms bool, planned int64,
	segments []store.Extent,
) (done bool) {
	for _, segment := range segments {
		if ctx.Err() != nil || v.wanted() != forms {
			return false
		}
		if forms && !v.worth.Load() {
			return true
		}
		total, used := cl.Store.Capacity()
		room := total - used - planned
		switch returned := cl.shrinker.Returned(); {
		case forms && room < segment.Bytes/roomDenominator*roomNumerator:
			return true
		case forms && !cl.growing():
			return false
		case forms:
			v.formSegment(ctx, cl, segment)
			continue
		// What was given back now is needed by others, or the memory of the segment that was restored
		// before is not free yet.
		case !cl.growing() && (returned.Now > 0 || returned.Used > 0):
			return false
		}
		if !v.restoreSegment(ctx, cl, segment) {
			return false
		}
	}
	if !forms && planned > 0 && cl.growing() {
		v.cache.Refill() // with what found no room
	}
	return ctx.Err() == nil
}

// missing returns the bytes of samples that plans give to a class, and that it does not hold.
func (c *Cache) missing(cl *class) (sum int64) {
	planned := c.planned.Load()
	if planned == nil {
		return 0
	}
	for id, j := range *planned {
		if j != 0 && &c.classes[j-1] == cl && !cl.Store.Has(id) {
			sum += c.index.Size(id)
		}
	}
	return sum
}

// formSegment replaces the samples of a segment by their forms.
func (v *conversion) formSegment(ctx context.Context, cl *class, segment store.Extent) {
	ids := those(segment.Held, func(id int) bool {
		at, ok := cl.forms.Locate(id)
		return ok && at.Segment == segment.Number && v.cache.confirmed.has(id) && !v.asRead.has(id)
	})
	var formed atomic.Int64
	v.each(ctx, ids, func(buffer []byte, id int) []byte {
		form, ok := v.form(cl, buffer, id)
		if ok {
			formed.Add(1)
		}
		return form
	})
	if ctx.Err() != nil || 2*int(formed.Load()) < len(segment.Held) {
		return
	}
	for _, id := range segment.Held {
		if view, ok := cl.forms.View(int(id)); ok {
			if view.At.Segment == segment.Number {
				_ = cl.forms.Replace(int(id), 0, view.Data) // it stays where it is if that fails
			}
			view.Release()
		}
	}
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
	buffer, kind, ok := v.converter.Convert(buffer[:0], view.Data)
	if !ok {
		v.asRead.set(id)
		return buffer, false
	}
	if cl.forms.Replace(id, kind, buffer) != nil {
		return buffer, false // there is no room, or it was dropped meanwhile
	}
	v.cache.formCounts.converted.Add(1)
	return buffer, true
}

// restoreSegment replaces the forms of a segment by the samples. Forms that do not give these are
// moved if there are others. It reports whether there was room for that: there is none as long as
// processes use memory that was given up.
func (v *conversion) restoreSegment(ctx context.Context, cl *class, segment store.Extent,
) (fits bool) {
	ids := those(segment.Held, func(id int) bool {
		_, ok := cl.forms.Locate(id)
		return !ok
	})
	var restored, full atomic.Int64
	v.each(ctx, ids, func(buffer []byte, id int) []byte {
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
	left := len(ids) - int(restored.Load())
	if ctx.Err() != nil || restored.Load() == 0 || left == 0 {
		return true
	}
	for _, id := range ids {
		if form, err := cl.forms.Form(id); err == nil {
			err = cl.forms.Replace(id, form.Kind, form.Data)
			form.Release()
			if errors.Is(err, store.ErrFull) {
				return false
			}
		}
	}
	return true
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
// conversion's workers, until ctx ends.
func (v *conversion) each(ctx context.Context, ids []int, do func(buffer []byte, id int) []byte) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(v.workers, len(ids)) {
		all.Go(func() {
			var buffer []byte
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(ids) {
					return
				}
				begun := time.Now()
				buffer = do(buffer, ids[i])
				took := time.Since(begun)
				v.cache.formCounts.took.Add(int64(took))
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
