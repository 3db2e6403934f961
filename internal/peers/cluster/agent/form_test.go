package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

func TestNodesFormACluster(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			clusters := newLab(t, n).formed()
			for i, c := range clusters {
				if string(c.Broadcast()) != "seed" {
					t.Errorf("node %d was told %q", i, c.Broadcast())
				}
				for j, m := range c.Members() {
					want := fmt.Sprintf("127.0.0.1:%d", 9000+j)
					if n == 1 {
						want = ":9000"
					}
					if m.Node != j || m.Exchange != want ||
						!slices.Equal(m.Ranks, []int{2 * j, 2*j + 1}) ||
						string(m.Payload) != fmt.Sprintf("payload of %d", j) {
						t.Errorf("node %d knows %+v", i, m)
					}
					if !c.Alive(j) {
						t.Errorf("node %d considers node %d dead", i, j)
					}
				}
				if c.Alive(n) || c.Alive(-1) {
					t.Error("a node that does not exist is alive")
				}
			}
		})
	}
}

// TestEveryNodeGetsTheSameError: a start that fails on a disagreement fails alike on all nodes.
func TestEveryNodeGetsTheSameError(t *testing.T) {
	const same = ": it must be the same on all nodes"
	for _, c := range []struct {
		name   string
		change func(o *cluster.Options)
		want   string
	}{
		{"dataset", func(o *cluster.Options) {
			if o.Node == 1 {
				o.Facts[0].Value = "aa"
			}
		}, "dataset is aa on node 1 (127.0.0.1), but 0f on node 0" + same},
		{"more facts", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Facts = append(o.Facts, cluster.Fact{Key: "policy", Value: "naive"})
			}
		}, "policy is naive on node 2 (127.0.0.1), but missing on node 0" + same},
		{"fewer facts", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Facts = o.Facts[:1]
			}
		}, "version is missing on node 2 (127.0.0.1), but 1.0 on node 0" + same},
		{"nodes", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Nodes = 4
			}
		}, "nodes is 4 on node 2 (127.0.0.1), but 3 on node 0" + same},
		{"more nodes", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Nodes = 7
				o.Node = 6
				o.Ranks = nil
			}
		}, "nodes is 7 on node 6 (127.0.0.1), but 3 on node 0" + same},
		{"world size", func(o *cluster.Options) {
			if o.Node == 1 {
				o.WorldSize = 8
			}
		}, "world_size is 8 on node 1 (127.0.0.1), but 6 on node 0" + same},
		{"one rank twice", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Ranks = []int{1, 5}
			}
		}, "nodes 0 and 2 both claim rank 1: give every rank to one node"},
		{"a rank too few", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Ranks = []int{4}
			}
		}, "world_size is 6, but no node has rank 5"},
		{"one number twice", func(o *cluster.Options) {
			if o.Node == 2 {
				o.Node, o.Ranks = 1, []int{2, 3}
			}
		}, "both 127.0.0.1:* and 127.0.0.1:* claim to be node 1: give every node its own number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, errs := newLab(t, 3).form(t.Context(), upTo(3), c.change)
			for i, err := range errs {
				if err == nil || !like(err.Error(), c.want) {
					t.Errorf("node %d: got %v, want %s", i, err, c.want)
				}
			}
		})
	}
}

// TestCancelEndsFormingOnAllNodes: a canceled context ends forming on every node within a second.
func TestCancelEndsFormingOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, canceledNode := range []int{0, 1} {
			l := newVirtualLab(t, 3)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			errs := make([]error, 2)
			arrived := make(chan struct{}, 100)
			for i := range 2 {
				o := l.options(i)
				o.Progress = func(s string) {
					if s == "waiting for node 2 of 3" {
						arrived <- struct{}{}
					}
				}
				all.Go(func() {
					mine := t.Context()
					if i == canceledNode {
						mine = ctx
					}
					if i > 0 {
						<-l.at
						o.Join = l.join
					}
					_, errs[i] = Form(mine, o)
				})
			}
			<-arrived
			<-arrived
			started := time.Now()
			cancel()
			all.Wait()
			if d := time.Since(started); d > time.Second {
				t.Errorf("it took %v", d)
			}
			var canceled *cluster.CanceledError
			if !errors.Is(errs[canceledNode], context.Canceled) ||
				!errors.As(errs[1-canceledNode], &canceled) ||
				canceled.Node != canceledNode {
				t.Errorf("got %v", errs)
			}
		}
	})
}

func TestInvalidOptionsAreNamed(t *testing.T) {
	for want, change := range map[string]func(o *cluster.Options){
		`nodes="0"`:            func(o *cluster.Options) { o.Nodes = 0 },
		`node="2"`:             func(o *cluster.Options) { o.Node = 2 },
		`world_size="0"`:       func(o *cluster.Options) { o.WorldSize = 0 },
		`ranks="9"`:            func(o *cluster.Options) { o.Ranks = []int{9} },
		`ranks="1": is listed`: func(o *cluster.Options) { o.Ranks = []int{1, 1} },
		`secret="5 bytes"`:     func(o *cluster.Options) { o.Secret = []byte("short") },
		`listen="x"`:           func(o *cluster.Options) { o.Listen = "x" },
		`exchange=":x"`:        func(o *cluster.Options) { o.Exchange = ":x" },
		`payload has 4194305 `: func(o *cluster.Options) {
			o.Payload = make([]byte, cluster.MaxPayload+1)
		},
	} {
		o := newLab(t, 2).options(0)
		change(&o)
		if _, err := Form(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
