package runner

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/hdmlp/hdmlp/internal/size"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// budget bounds the memory of all threads together, beside what they read and what they make.
//
// Each thread has an allowance for good: half of it for what it keeps from one sample to the next,
// half for what a sample takes. Most samples take less, and cost nothing here. One that takes more
// gives up what its thread keeps, and waits until the rest of the budget, which all threads share,
// has what is lacking; those that wait are served in order, so that a large one is not overtaken
// for ever. A thread that waits holds nothing of the rest, so that none waits for it.
type budget struct {
	total     int64
	threads   int64
	allowance int64 // of a thread
	rest      *semaphore.Weighted
	most      int64 // that one sample may take
}

// widestAllowance is the most that a thread has for good. Half of it, in pixels, is an image of 22
// million.
const widestAllowance = 128 << 20

func newBudget(total int64, threads int) *budget {
	b := &budget{total: total, threads: int64(max(threads, 1))}
	b.allowance = min(widestAllowance, total/(2*b.threads))
	rest := total - b.threads*b.allowance
	b.rest, b.most = semaphore.NewWeighted(rest), rest+b.allowance
	return b
}

// limit sets what a worker may take without asking.
func (b *budget) limit(w *transform.Worker) {
	if b != nil {
		w.Limit(max(b.allowance/2, 1), b.most, b.allowance/2)
	}
}

// apply is the worker's ApplyTo, with as much memory as the sample needs.
func (b *budget) apply(w *transform.Worker, it *item) error {
	err := w.ApplyTo(it.room, it.src, it.key)
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

// large is apply for a sample that needs that much.
func (b *budget) large(w *transform.Worker, it *item, need int64) error {
	lacking := max(need-b.allowance, 0)
	w.Drop()
	_ = b.rest.Acquire(context.Background(), lacking) // fails for no context that does not end
	w.Limit(max(need, b.allowance), b.most, 0)        // and drops it all
	err := w.ApplyTo(it.room, it.src, it.key)
	b.limit(w)
	b.rest.Release(lacking)
	return err
}

// enough is a budget with which one sample may take need.
func (b *budget) enough(need int64) int64 { return min(2*need, need+(b.threads-1)*widestAllowance) }

// BudgetError refuses a sample that needs more memory than one may ever take.
type BudgetError struct {
	Need   int64 // bytes
	Most   int64 // that one sample may take
	Total  int64 // the budget
	Enough int64 // a budget with which the sample may take what it needs
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("transforming the image needs %s (%d bytes) of memory, and one image may "+
		"take %s (%d bytes) of decode_memory = %s, which the threads share: "+
		"set decode_memory to %s or more, or refuse such images with ImgDecode(max_pixels=...)",
		size.Format(e.Need), e.Need, size.Format(e.Most), e.Most, size.Format(e.Total),
		size.Format(e.Enough))
}
