package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Recipes
//
// While all jobs begin with the same transforms, which draw nothing, forms may hold what these make
// of a sample (Recipe). Any job takes such a form: one of another recipe decodes the file in it.
//
// The recipe is that of all jobs, and not of the oldest one: a job without it would decode files
// as long as another one is there, of which it could have coefficients or pixels. If jobs with
// another recipe come, or all that had it have gone and others use the cache, forms of it are made
// anew in the way of these (remake); until then they stay.

// ampleShare is the part of the bytes of all forms that must be free besides, for Ample. A segment
// is needed as well, to replace one by others: of stores, at most 1/ampleSegments, or ampleSegment.
const (
	ampleShare    = 32
	ampleSegments = 16
	ampleSegment  = 64 << 20
)

// settleWay sets how forms are made now. No goroutine must convert.
func (v *conversion) settleWay() {
	v.making.RLock()
	way := Way{Recipe: v.recipe}
	v.making.RUnlock()
	if way.Recipe != nil {
		way.Ample = v.cache.ample(way.Recipe.Bytes())
	}
	if !way.same(v.way) {
		v.way = way
		clear(v.sizes)
		v.current.clear()
	}
}

// ample reports whether the classes that hold forms have room for all samples that plans give them,
// with so many bytes more of each.
func (c *Cache) ample(bytes int64) bool {
	need, total := int64(0), int64(0)
	if planned := c.planned.Load(); planned == nil {
		need = c.index.Bytes() + bytes*int64(c.index.Len())
	} else {
		for id, j := range *planned {
			if j > 0 && c.classes[j-1].forms != nil {
				need += c.index.Size(id) + bytes
			}
		}
	}
	for j := range c.classes {
		cl := &c.classes[j]
		if cl.forms == nil || cl.shrinker == nil {
			continue
		}
		capacity, _ := cl.Store.Capacity()
		total += capacity - min(capacity/ampleSegments, ampleSegment)
	}
	return need+need/ampleShare <= total
}

// remake makes the forms of segments anew that would be made in another way now, as long as there
// is memory for that beside samples that need so many bytes. It reports whether nothing is left to
// do, and how much memory it misses.
func (v *conversion) remake(ctx context.Context, cl *class, segments []store.Extent,
	planned int64,
) (misses int64, done bool) {
	for _, segment := range segments {
		if ctx.Err() != nil || !v.wanted() || !v.worth.Load() || !cl.shrinker.Growing() {
			return 0, false
		}
		held := those(segment.Held, func(id int) bool {
			_, asRead := cl.forms.Locate(id)
			return !asRead
		})
		old := slices.DeleteFunc(slices.Clone(held), func(id int) bool { return v.current.has(id) })
		var missed atomic.Int64
		var remade sync.Map // by sample: its form has left the segment
		v.each(ctx, &v.cache.formCounts, v.wanted, old, func(buffer []byte, id int) []byte {
			total, used := cl.Store.Capacity()
			buffer, err := v.again(cl, buffer, id, total-used-planned-segment.Bytes)
			if err == nil {
				remade.Store(id, true)
			} else if errors.Is(err, store.ErrFull) {
				missed.Add(int64(len(buffer)))
			}
			return buffer
		})
		all := len(held)
		held = slices.DeleteFunc(held, func(id int) bool {
			_, ok := remade.Load(id)
			return ok
		})
		if ctx.Err() == nil && 2*len(held) <= all {
			v.move(cl, held) // what finds no room stays
		}
		if misses = missed.Load(); misses > 0 {
			return misses, false
		}
	}
	return 0, ctx.Err() == nil && v.wanted()
}

// errCurrent reports that a form need not, or cannot, be made anew.
var errCurrent = errors.New("the form stays")

// again replaces a form by the one that is made now, for which it uses a buffer that it returns. If
// it is larger, and than room, the error is of store.ErrFull.
func (v *conversion) again(cl *class, buffer []byte, id int, room int64) ([]byte, error) {
	form, err := cl.forms.Form(id)
	if err != nil {
		return buffer, err
	}
	defer form.Release()
	if v.converter.Current(form.Data, v.way) {
		v.current.set(id)
		return buffer, errCurrent
	}
	buffer, ok := v.converter.Restore(buffer[:0], form.Data, form.Kind)
	n := len(buffer)
	if known, read := v.cache.digests.Of(id); !ok || read && digest.Of(buffer) != known {
		v.current.set(id)
		return buffer, errCurrent
	}
	if size := v.converter.Size(id, buffer, v.way); size > max(room, int64(len(form.Data))) {
		return buffer, store.ErrFull
	}
	buffer, kind, ok := v.converter.Convert(buffer, id, buffer[:n:n], v.way)
	if !ok {
		v.current.set(id)
		return buffer, errCurrent
	}
	made := buffer[n:]
	v.making.RLock()
	defer v.making.RUnlock()
	if !v.forms.Load() || v.asRead.has(id) {
		return buffer, errCurrent
	}
	if err := cl.forms.Replace(id, kind, made); err != nil {
		return buffer, err
	}
	v.current.set(id)
	v.cache.formCounts.converted.Add(1)
	return buffer, nil
}
