package order

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// silent plays a job whose rank 1, on another node, gives only its first part.
type silent struct{}

func (silent) Ranks() [][]int                     { return [][]int{{0}, {1}} }
func (silent) Me() int                            { return 0 }
func (silent) Missing(context.Context, int) []int { return []int{1} }

func (silent) GatherInTime(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	if what == "order 0" {
		return [][]byte{mine, []byte(`[{"rank":1,"batch":2,"entries":2,"seed":5}]`)}, nil
	}
	return [][]byte{mine, {7, 0, 0, 0, 8, 0, 0, 0}}, nil
}

func (silent) Gather(ctx context.Context, _ string, _ []byte) ([][]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lines is a log that can be read while it is written.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(l.written)
	return l.text.Write(p)
}

// TestWaitForOtherRanksIsLogged checks that the log names the ranks of all nodes that have not
// begun an epoch for which a rank has waited long.
func TestWaitForOtherRanksIsLogged(t *testing.T) {
	log := &lines{written: make(chan struct{})}
	life, end := context.WithCancel(t.Context())
	p := NewTurns(life, time.Hour, slog.New(slog.NewTextHandler(log, nil)))
	p.Came(&request.Part{Rank: 0, Batch: 2, Entries: 2, IDs: []int32{1, 2}})
	first, all, err := p.Open(t.Context(), silent{}, func(int64, string, string) error {
		return nil
	})
	if err != nil || first.Rank != 0 || !slices.Equal(all, []int32{1, 7, 2, 8}) {
		t.Fatalf("turn 0: %+v, %v, %v", first, all, err)
	}
	stream, err := access.NewGivenShared(10, 2, 2, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.opened(stream, 0, func() {})
	if turn, missing := p.Missing(); turn != 1 || !slices.Equal(missing, []int{0}) {
		t.Errorf("in turn %d ranks %v are missing", turn, missing)
	}
	p.logWaiting(1)
	<-log.written
	if text := log.text.String(); !strings.Contains(text,
		fmt.Sprintf("epoch=1 ranks=%q", "[0 1]")) {
		t.Errorf("the log says %s", text)
	}
	end()
	p.Close()
}
