package stage

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/engine/staging"
)

// layOut locates the samples that can be delivered from where they are, reserves memory for the
// others, and returns the tasks that bring them.
func (b *batch) layOut(ctx context.Context) (tasks []cache.Task, err error) {
	if b.o.ragged() {
		return b.layOutRagged(ctx)
	}
	c := b.o.Cache
	lengths := make([]int64, len(b.IDs)) // bytes of each sample in the staging buffer
	var need int64
	for i, k := range b.IDs {
		id := int(k)
		if b.o.Preprocessor != nil {
			lengths[i] = int64(b.o.Preprocessor.Size())
		} else {
			// A sample that was left out stays out, even if it is in a class now.
			if at, ok := c.Locate(id); ok && !b.o.Verify && b.o.Unusable.Known(id) == nil {
				b.setInPlace(i, id, at)
				continue
			}
			if !c.Destined(id) {
				lengths[i] = c.Index().Size(id)
			}
		}
		tasks = append(tasks, b.task(i))
		if lengths[i] > 0 {
			b.Offsets[i] = uint64(need)
			if need += lengths[i]; b.o.Preprocessor == nil {
				need = (need + 7) &^ 7
			}
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
			b.parts[i].dst = slot.Data[off : off+size : off+size]
			b.Offsets[i] += uint64(slot.Offset)
			b.Segments[i] = slot.Segment
		}
	}
	return tasks, nil
}

// layOutRagged is layOut for results that vary in size.
func (b *batch) layOutRagged(ctx context.Context) (tasks []cache.Task, err error) {
	if len(b.IDs) == 0 {
		return nil, nil
	}
	tasks = make([]cache.Task, len(b.IDs))
	for i := range b.IDs {
		tasks[i] = b.task(i)
	}
	need, known := b.sizes.expect(len(tasks))
	if !known {
		for _, id := range b.IDs {
			need += b.o.Preprocessor.Expected(b.o.Cache.Index().Size(int(id)))
		}
		need += need / 4
	}
	slot, err := b.reserve(ctx, min(need, b.o.Buffer.Limit()/2))
	if err != nil {
		return nil, err
	}
	b.slab = slab{slot: slot}
	return tasks, nil
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
