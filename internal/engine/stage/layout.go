package stage

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
	"github.com/hdmlp/hdmlp/internal/source"
)

// layOut locates the samples that can be delivered from where they are, reserves memory for the
// others, and returns the tasks that bring them.
func (b *batch) layOut(ctx context.Context) (tasks []cache.Task, err error) {
	if len(b.o.Outputs) > 0 {
		return b.layOutResults(ctx)
	}
	c := b.o.Cache
	align := b.o.align()
	lengths := make([]int64, len(b.IDs)) // bytes of each sample in the staging buffer
	var need int64
	for i, k := range b.IDs {
		id := int(k)
		// A sample that was left out stays out, even if it is in a class now.
		if at, ok := c.Locate(id); ok && !b.o.Verify && b.o.Unusable.Known(id) == nil {
			b.setInPlace(i, id, at)
			continue
		}
		if !c.Destined(id) {
			lengths[i] = c.Index().Size(id)
		}
		tasks = append(tasks, b.task(i))
		if lengths[i] > 0 {
			b.Offsets[i] = uint64(need)
			need = aligned(need+lengths[i], align)
		}
	}
	if need == 0 {
		return tasks, nil
	}
	slot, err := b.reserve(ctx, need)
	if err != nil {
		return nil, err
	}
	for i, size := range lengths {
		if size > 0 {
			off := int64(b.Offsets[i])
			b.dst[i] = slot.Data[off : off+size : off+size]
			b.Offsets[i] += uint64(slot.Offset)
			b.Segments[i] = slot.Segment
		}
	}
	return tasks, nil
}

// layOutResults is layOut for samples of which something is transformed. The results of an output
// that have one size form a tensor; all others share what the rest of the memory has.
func (b *batch) layOutResults(ctx context.Context) (tasks []cache.Task, err error) {
	n := len(b.IDs)
	if n == 0 {
		return nil, nil
	}
	tasks = make([]cache.Task, n)
	for i := range b.IDs {
		tasks[i] = b.task(i)
	}
	var tensors int64
	varies := false
	for o := range b.o.Outputs {
		size := b.o.Outputs[o].size()
		if varies = varies || size == 0; size > 0 {
			tensors = aligned(tensors, source.Align) + int64(n*size)
		}
	}
	need := tensors
	if varies {
		need = aligned(tensors, source.Align) + b.expectVarying()
		need = max(min(need, b.o.Buffer.Limit()/2), tensors)
	}
	slot, err := b.reserve(ctx, max(need, 1))
	if err != nil {
		return nil, err
	}
	used := int64(0)
	for o := range b.o.Outputs {
		size := int64(b.o.Outputs[o].size())
		if size == 0 {
			continue
		}
		used = aligned(used, source.Align)
		for i := o * n; i < (o+1)*n; i++ {
			b.dst[i] = slot.Data[used : used+size : used+size]
			b.Offsets[i], b.Segments[i] = uint64(slot.Offset+used), slot.Segment
			used += size
		}
	}
	if varies {
		b.slab = slab{slot: slot, used: min(aligned(used, b.o.align()), need), align: b.o.align()}
	}
	return tasks, nil
}

// expectVarying returns how many bytes the batch's results that vary in size are expected to take.
func (b *batch) expectVarying() (need int64) {
	results := 0
	for o := range b.o.Outputs {
		if b.o.Outputs[o].size() == 0 {
			results += len(b.IDs)
		}
	}
	if need, known := b.sizes.expect(results, b.o.align()); known {
		return need
	}
	index := b.o.Cache.Index()
	for _, id := range b.IDs {
		for o := range b.o.Outputs {
			switch p := b.o.Outputs[o].Preprocessor; {
			case p == nil:
				need += aligned(index.Size(int(id)), b.o.align())
			case p.Size(b.o.Outputs[o].View) == 0:
				need += p.Expected(index.Size(int(id)))
			}
		}
	}
	return need + need/4
}

// reserve allocates memory for the batch in the staging buffer, and waits until there is enough.
func (b *batch) reserve(ctx context.Context, bytes int64) (staging.Slot, error) {
	if slot, ok := b.o.Buffer.TryAlloc(bytes); ok {
		b.Slots = append(b.Slots, slot.ID)
		return slot, nil
	}
	start := time.Now()
	b.stager.reserve(true)
	slot, extra, err := b.o.Buffer.Alloc(ctx, bytes)
	b.stager.reserve(false)
	if err != nil {
		return staging.Slot{}, err
	}
	b.allocWait = time.Since(start)
	b.addSlot(slot, extra)
	return slot, nil
}

// task returns the task that brings the sample at position i.
func (b *batch) task(i int) cache.Task {
	return cache.Task{Order: b.order, Consumer: b, Index: i}
}
