package runner

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// budget bounds the memory that all threads together use for transforming, in addition to input and
// output.
//
// Each thread has a permanent allowance: half of it for memory that it keeps between samples, half
// for the current sample. Most samples need less and do not touch the budget. For a sample that
// needs more, the thread frees what it keeps and acquires the missing amount from the rest of the
// budget, which all threads share. Waiting threads are served in order, so that a large sample
// cannot starve. A waiting thread holds nothing of the rest, so that no other thread waits for it.
type budget struct {
	total     int64
	threads   int64
	allowance int64 // bytes per thread
	rest      *semaphore.Weighted
	most      int64 // bytes that one sample may use
	kept      int64 // bytes that a thread may keep for each field
}

// widestAllowance is the largest allowance of a thread. Half of it holds an image of 22 million
// pixels.
const widestAllowance = 128 << 20

func newBudget(total int64, threads, fields int) *budget {
	b := &budget{total: total, threads: int64(max(threads, 1))}
	b.allowance = min(widestAllowance, total/(2*b.threads))
	b.kept = b.allowance / 2 / int64(fields)
	rest := total - b.threads*b.allowance
	b.rest, b.most = semaphore.NewWeighted(rest), rest+b.allowance
	return b
}

// limit sets the worker's limits to its allowance.
func (b *budget) limit(w *transform.Worker) {
	if b != nil {
		w.Limit(max(b.allowance/2, 1), b.most, b.kept)
	}
}

// apply calls the worker's ApplyTo, with as much memory as the sample needs.
func (b *budget) apply(w *transform.Worker, it *item) error {
	w.Whole(it.whole)
	w.Form(it.kind)
	err := w.ApplyTo(it.alloc, it.srcs, it.key)
	var short *transform.MemoryError
	for b != nil && errors.As(err, &short) {
		if short.Need > b.most {
			return &BudgetError{
				Need:   short.Need,
				Most:   b.most,
				Total:  b.total,
				Enough: b.enough(short.Need),
			}
		}
		err = b.large(w, it, short.Need)
	}
	return err
}

// large is apply for a sample that needs more than the allowance.
func (b *budget) large(w *transform.Worker, it *item, need int64) error {
	lacking := max(need-b.allowance, 0)
	w.Drop()
	_ = b.rest.Acquire(context.Background(), lacking) // cannot fail: the context never ends
	w.Limit(max(need, b.allowance), b.most, 0)        // keep nothing
	err := w.ApplyTo(it.alloc, it.srcs, it.key)
	b.limit(w)
	b.rest.Release(lacking)
	return err
}

// enough returns a budget that allows one sample to use need bytes.
func (b *budget) enough(need int64) int64 { return min(2*need, need+(b.threads-1)*widestAllowance) }

// BudgetError reports a sample that needs more memory than one sample may use.
type BudgetError struct {
	Need   int64 // bytes
	Most   int64 // that one sample may use
	Total  int64 // the budget
	Enough int64 // a budget that would allow the sample
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("transforming the image needs %s (%d bytes) of memory, and one image may "+
		"take %s (%d bytes) of decode_memory = %s, which the threads share: "+
		"set decode_memory to %s or more, or refuse such images with ImgDecode(max_pixels=...)",
		human.Format(e.Need), e.Need, human.Format(e.Most), e.Most, human.Format(e.Total),
		human.Format(e.Enough))
}
