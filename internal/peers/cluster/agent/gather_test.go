package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

// noData is the empty contribution of every node.
func noData(int) []byte { return nil }

// gatherAll calls Gather on all nodes.
func gatherAll(ctx context.Context, clusters []*Agent, what string,
	data func(i int) []byte,
) ([][][]byte, []error) {
	out, errs := make([][][]byte, len(clusters)), make([]error, len(clusters))
	var all sync.WaitGroup
	for i, c := range clusters {
		all.Go(func() { out[i], errs[i] = c.Gather(ctx, what, data(i)) })
	}
	all.Wait()
	return out, errs
}

func TestGatherReturnsEveryNodesBytes(t *testing.T) {
	clusters := newLab(t, 3).formed()
	var all sync.WaitGroup
	for round := range 20 { // many at a time
		all.Go(func() {
			data := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, round*i*5000) }
			out, errs := gatherAll(t.Context(), clusters, fmt.Sprint(round), data)
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
				return
			}
			for i := range clusters {
				for j := range clusters {
					if out[i][j] == nil || !bytes.Equal(out[i][j], data(j)) {
						t.Errorf("round %d: node %d got %d bytes of node %d", round, i,
							len(out[i][j]), j)
					}
				}
			}
		})
	}
	all.Wait()
	_, err := clusters[1].Gather(t.Context(), "x", make([]byte, cluster.MaxPayload+1))
	if !errors.As(err, new(*cluster.LimitError)) {
		t.Errorf("over the limit: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := clusters[1].Gather(ctx, "alone", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("alone: %v", err)
	}
	clusters[1].Ask(t.Context(), "x") // after which node 0 has dropped the gather
	if _, errs := gatherAll(t.Context(), clusters, "alone", noData); errors.Join(errs...) != nil {
		t.Error("after a gather that timed out:", errs)
	}
}
