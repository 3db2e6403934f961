package catalog

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"

	"github.com/hdmlp/hdmlp/internal/source"
)

// TestRenewReturnsTheFirstView checks that the first process that opens the dataset again is
// enough, that one that never answers does not delay it, and that late views are closed.
func TestRenewReturnsTheFirstView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViews()
		if _, err := v.renew(t.Context()); err == nil {
			t.Error("renewed without a process")
		}
		file := func() *os.File {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		late, first := &source.View{Root: file()}, &source.View{Root: file()}
		gone := &source.View{
			Renew: func(context.Context) (*source.View, error) { return nil, errors.New("gone") },
		}
		slow := &source.View{Renew: func(ctx context.Context) (*source.View, error) {
			<-ctx.Done()
			return late, nil
		}}
		quick := &source.View{
			Renew: func(context.Context) (*source.View, error) { return first, nil },
		}
		for _, view := range []*source.View{nil, {}, gone, slow, quick} {
			v.add(view)
		}
		got, err := v.renew(t.Context())
		if err != nil || got != first {
			t.Errorf("got %p, %v", got, err)
		}
		synctest.Wait()
		if _, err := late.Root.Stat(); err == nil {
			t.Error("a late view is still open")
		}
		_ = first.Close()
		v.remove(quick)
		v.remove(slow)
		if _, err := v.renew(t.Context()); err == nil || err.Error() != "gone" {
			t.Error(err)
		}
	})
}
