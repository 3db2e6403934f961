package stage

import (
	"context"
	"time"

	"github.com/hdmlp/hdmlp/internal/cache"
	"github.com/hdmlp/hdmlp/internal/staging"
)

// layOut finds the samples that can be delivered where they lie, takes room for the others, and
// lists what has to be brought.
func (b *batch) layOut(ctx context.Context) (tasks []cache.Task, err error) {
	if b.o.ragged() {
		return b.layOutRagged(ctx)
	}
	c := b.o.Cache
	room := make([]int64, len(b.IDs)) // bytes of each sample in the staging buffer
	var need int64
	for i, k := range b.IDs {
		id := int(k)
		if b.o.Preprocessor != nil {
			room[i] = int64(b.o.Preprocessor.Size())
		} else {
			// A sample that was left out once stays out, though it may be there now.
			if at, ok := c.Locate(id); ok && !b.o.Verify && b.o.Faults.Known(id) == nil {
				b.setInPlace(i, id, at)
				continue
			}
			if !c.Destined(id) {
				room[i] = c.Index().Size(id)
			}
		}
		tasks = append(tasks, b.task(i))
		if room[i] > 0 {
			b.Offsets[i] = uint64(need)
			if need += room[i]; b.o.Preprocessor == nil {
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
	for i, size := range room {
		if size > 0 {
			off := int64(b.Offsets[i])
			b.parts[i].room = slot.Data[off : off+size : off+size]
			b.Offsets[i] += uint64(slot.Offset)
			b.Segments[i] = slot.Segment
		}
	}
	return tasks, nil
}

// layOutRagged is layOut for results of different sizes.
func (b *batch) layOutRagged(ctx context.Context) (tasks []cache.Task, err error) {
	if len(b.IDs) == 0 {
		return nil, nil
	}
	b.wants = make([]int64, len(b.IDs))
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
	_, ring := b.o.Buffer.Ring()
	slot, err := b.reserve(ctx, min(need, ring/2))
	if err != nil {
		return nil, err
	}
	b.slab = slab{slot: slot}
	return tasks, nil
}

// reserve takes room for the batch in the staging buffer, and waits until there is some.
func (b *batch) reserve(ctx context.Context, bytes int64) (staging.Slot, error) {
	start := time.Now()
	slot, extra, err := b.o.Buffer.Alloc(ctx, bytes)
	if err != nil {
		return staging.Slot{}, err
	}
	b.roomWait = time.Since(start)
	b.Slots = append(b.Slots, slot.ID)
	if extra != nil {
		b.Extras = append(b.Extras, *extra)
	}
	return slot, nil
}

// task is to bring sample i.
func (b *batch) task(i int) cache.Task {
	return cache.Task{Order: b.order, Consumer: b, Index: i}
}
