package catalog

import (
	"context"
	"errors"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
	"github.com/hdmlp/hdmlp/internal/source"
)

// views are the views of the processes that have a dataset open. If its root must be opened again,
// any of them can do so.
type views struct {
	mu  invariants.Mutex[views] // guards all
	all []*source.View
}

func newViews() *views { return new(views) }

func (v *views) add(view *source.View) {
	if view == nil || view.Renew == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, view)
}

func (v *views) remove(view *source.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.all, view); i >= 0 {
		v.all = slices.Delete(v.all, i, i+1)
	}
}

// renew asks all processes to open the dataset again, and returns the first view that arrives.
// Later ones are closed.
func (v *views) renew(ctx context.Context) (*source.View, error) {
	v.mu.Lock()
	all := slices.Clone(v.all)
	v.mu.Unlock()
	if len(all) == 0 {
		return nil, errors.New("no process that opened the dataset is left")
	}
	type answer struct {
		view *source.View
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan answer, len(all))
	for _, view := range all {
		go func() { // ends with Renew, which ends when ctx is done
			view, err := view.Renew(ctx)
			answers <- answer{view, err}
		}()
	}
	var errs []error
	for left := len(all) - 1; left >= 0; left-- {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		cancel()
		go func() { // ends with the other calls of Renew, which end when ctx is done
			for range left {
				if late := <-answers; late.err == nil {
					_ = late.view.Close()
				}
			}
		}()
		return a.view, nil
	}
	cancel()
	return nil, errors.Join(errs...)
}
