package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// TestWaitingRankTakesOver checks that if the process that assembles the job ends, a rank that
// waits for the job takes over.
func TestWaitingRankTakesOver(t *testing.T) {
	scanning := make(chan int, 2)
	w := world{}
	first := true
	var mu sync.Mutex
	w.scan = func(ctx context.Context, progress func(int64)) error {
		mu.Lock()
		mine := first
		first = false
		mu.Unlock()
		progress(1234)
		scanning <- 1
		if !mine {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	n := w.node()
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan error, 1)
	go func() {
		_, err := n.Open(ctx, message(0, 2), nil, func(request.Step) {})
		made <- err
	}()
	<-scanning
	joined := make(chan *Rank, 1)
	go func() { joined <- open(t, n, message(1, 2)) }()
	testkit.Until(t, "both ranks wait", func() bool {
		r := n.Reports()
		return len(r) == 1 && strings.Contains(r[0].Sentence, "2 of 2 ranks waiting")
	})
	r := n.Reports()[0]
	if !r.Assembling || r.Job != "j" || r.Dataset != "/data" || r.WorldSize != 2 ||
		!strings.Contains(r.Sentence, "1234 files found") {
		t.Errorf("report of a job that is starting: %+v", r)
	}
	cancel()
	if err := <-made; !errors.Is(err, context.Canceled) {
		t.Errorf("the first rank got %v", err)
	}
	other := <-joined
	if other == nil {
		t.Fatal("the other rank was not opened")
	}
	if r := n.Reports(); len(r) != 1 || r[0].Assembling {
		t.Errorf("reports %+v", r)
	}
	other.Close()
	w.close(t, n)
}

// TestWhoTakesOverFitsTheMachine checks that a rank that takes over does not keep the configuration
// that it had resolved without limits of the machine, as one of a job that had its memory.
func TestWhoTakesOverFitsTheMachine(t *testing.T) {
	scanning := make(chan int, 2)
	w := world{}
	var scans atomic.Int64
	w.scan = func(ctx context.Context, _ func(int64)) error {
		scanning <- 1
		if scans.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	var available atomic.Int64
	available.Store(1 << 30)
	w.available = func() (int64, error) { return available.Load(), nil }
	n := w.node()
	big := set("memory", "600MB")
	ctx, cancel := context.WithCancel(t.Context())
	made, joined := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := n.Open(ctx, message(0, 2, big), nil, func(request.Step) {})
		made <- err
	}()
	<-scanning
	available.Store(100 << 20)
	go func() {
		_, err := n.Open(t.Context(), message(1, 2, big), nil, func(request.Step) {})
		joined <- err
	}()
	testkit.Until(t, "both ranks wait", func() bool {
		r := n.Reports()
		return len(r) == 1 && strings.Contains(r[0].Sentence, "2 of 2 ranks waiting")
	})
	cancel()
	if err := <-made; !errors.Is(err, context.Canceled) {
		t.Errorf("the first rank got %v", err)
	}
	if err := <-joined; err == nil || !strings.Contains(err.Error(), "too large for memory") {
		t.Errorf("the other rank got %v, want it refused", err)
	}
	w.close(t, n)
}
