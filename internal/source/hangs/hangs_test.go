package hangs

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// hanging opens something whose second system call blocks until it is released.
func hanging(t *testing.T, ctx context.Context, opts Options,
	back <-chan struct{},
) (io.Closer, error) {
	t.Helper()
	return Open(ctx, New("/data", opts),
		func(ctx context.Context, calls *Monitor) (io.Closer, error) {
			idle, c := calls.Caller(), calls.Caller()
			idle.Begin("stat", "", "")
			idle.End()
			c.Begin("open", "", "")
			c.End()
			c.Begin("getdents", "class/sub", "")
			<-back
			c.End()
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return io.NopCloser(nil), nil
		})
}

func TestOpenGivesUpACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		left := new(Left)
		back := make(chan struct{})
		began := time.Now()
		_, err := hanging(t, t.Context(), Options{
			Timeout: 30 * time.Second, Left: left,
			Slow: func(op, path string, since time.Time) {
				told = append(told, op+" "+path)
				if waited := time.Since(since); waited < 10*time.Second || waited > 11*time.Second {
					t.Errorf("told after %v", waited)
				}
			},
		}, back)
		if waited := time.Since(began); waited < 30*time.Second || waited > 31*time.Second {
			t.Errorf("given up after %v", waited)
		}
		var problem *source.Error
		if !errors.As(err, &problem) || !errors.Is(err, source.ErrUnavailable) ||
			problem.Path != "/data/class/sub" ||
			!strings.Contains(err.Error(),
				"getdents has not returned for 30s, and source_timeout is 30s") {
			t.Errorf("%v", err)
		}
		if len(told) != 1 || told[0] != "getdents /data/class/sub" {
			t.Errorf("told of %q", told)
		}
		if n := left.n.Load(); n != 1 {
			t.Errorf("%d abandoned system calls, want 1", n)
		}
		close(back)
		synctest.Wait()
		if n := left.n.Load(); n != 0 {
			t.Errorf("%d abandoned system calls after all have returned", n)
		}
		left.n.Store(mostLeft)
		if _, err := hanging(t, t.Context(), Options{Left: left},
			back); !errors.Is(err, source.ErrUnavailable) ||
			!strings.Contains(err.Error(), "not tried") {
			t.Errorf("with too many that hang: %v", err)
		}
	})
}

func TestCallThatReturnsInTimeIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		time.AfterFunc(29*time.Second, func() { close(back) })
		f, err := hanging(t, t.Context(), Options{Timeout: 30 * time.Second}, back)
		if err != nil || f == nil {
			t.Errorf("%v, %v", f, err)
		}
	})
}

// TestCancelledOpenDoesNotWaitForACallThatHangs: a process that exits is not blocked.
func TestCancelledOpenDoesNotWaitForACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		began := time.Now()
		_, err := hanging(t, ctx, Options{}, back)
		if waited := time.Since(began); !errors.Is(err, context.Canceled) ||
			waited > 4*time.Second {
			t.Errorf("%v, after %v", err, waited)
		}
		close(back)
	})
}

// TestStoppedTimeDoesNotCountAsHanging: while the process is stopped no system call hangs.
func TestStoppedTimeDoesNotCountAsHanging(t *testing.T) {
	w := New("/data", Options{})
	c := w.Caller()
	c.Begin("stat", "a", "1.jpg")
	now := time.Now()
	w.longest(now, 0)
	h, ok := w.longest(now.Add(time.Hour), time.Hour)
	if !ok || now.Add(time.Hour).Sub(h.since) != 0 || h.path != "/data/a/1.jpg" {
		t.Errorf("%+v, %v", h, ok)
	}
}
