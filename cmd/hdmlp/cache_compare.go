package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/store/file"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

const (
	comparers     = 8         // samples compared at the same time
	compareMemory = 256 << 20 // bytes of files in memory; a larger file is compared alone
	comparePiece  = 1 << 20   // bytes of a copy read at once, per comparer
)

// checker compares all samples of a store with their files, several at the same time.
type checker struct {
	source   source.Source
	locate   func(id int) string // path of a sample
	index    *source.Index
	contents *file.Contents
	progress func(done, of int) // nil: none

	mu   sync.Mutex // guards the following
	view checkView
	drop []int32 // copies that are corrupt or differ
	done int
	told time.Time // when progress was last called
}

// run compares all samples. An error means that the comparison could not be finished.
func (k *checker) run(ctx context.Context) error {
	k.view.Findings = []finding{}
	held := k.contents.Held()
	memory := semaphore.NewWeighted(compareMemory)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(comparers, len(held)) {
		group.Go(func() error {
			piece := make([]byte, comparePiece)
			var buffer []byte
			for {
				i := int(next.Add(1)) - 1
				if i >= len(held) {
					return nil
				}
				id := int(held[i])
				size := k.index.Size(id)
				need := min(size, compareMemory)
				if err := memory.Acquire(ctx, need); err != nil {
					return err
				}
				if int64(cap(buffer)) < size {
					buffer = make([]byte, size)
				}
				err := k.compare(ctx, id, buffer[:size], piece)
				if size > compareMemory/comparers { // a smaller one is reused
					buffer = nil
				}
				memory.Release(need)
				if err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// compare compares the copy of one sample with its file, which is read into buffer.
func (k *checker) compare(ctx context.Context, id int, buffer, piece []byte) error {
	_, failed := k.source.Read(ctx, id, buffer)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(failed, source.ErrUnavailable):
		return failed // other reads would fail, too
	}
	want := buffer
	if failed != nil {
		want = nil // the copy's own checksum is still verified
	}
	found, err := k.contents.Compare(id, want, piece)
	f := finding{Sample: id, Path: k.locate(id)}
	switch {
	case err != nil:
		f.What, f.Reason = copyCorrupt, err.Error()
	case found.Digest != found.Recorded:
		f.What = copyCorrupt
		f.Copy = digestText(found.Digest)
		f.Other = digestText(found.Recorded)
	case failed != nil:
		f.What, f.Reason = sourceFailed, failed.Error()
		var sample *source.SampleError
		if errors.As(failed, &sample) {
			f.Reason = sample.Reason()
		}
	case !found.Equal:
		f.What = copyDiffers
		f.Copy = digestText(found.Digest)
		f.Other = digestText(digest.Of(buffer))
	}
	k.note(&f, int64(len(buffer)))
	return nil
}

// restored returns the sample of a form.
func restored(form []byte, _ uint8) ([]byte, error) {
	var c forms.Converter
	defer c.Close()
	return c.Restore(nil, form)
}

func digestText(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// note records the finding of one sample.
func (k *checker) note(f *finding, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := &k.view
	v.Bytes += size
	switch f.What {
	case "":
		v.Same++
	case copyCorrupt:
		v.Corrupt++
	case copyDiffers:
		v.Differ++
	case sourceFailed:
		v.Unreadable++
	}
	if f.What == copyCorrupt || f.What == copyDiffers {
		k.drop = append(k.drop, int32(f.Sample))
	}
	if f.What != "" {
		i, _ := slices.BinarySearchFunc(v.Findings, f.Sample, func(other finding, sample int) int {
			return cmp.Compare(other.Sample, sample)
		})
		v.Findings = slices.Insert(v.Findings, i, *f)
		v.Findings = v.Findings[:min(len(v.Findings), mostFindings)]
	}
	k.done++
	all := len(k.contents.Held())
	if now := time.Now(); k.progress != nil &&
		(k.done == all || now.Sub(k.told) > 100*time.Millisecond) {
		k.told = now
		k.progress(k.done, all)
	}
}
