package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(nodeVariable); spec != "" {
		asNode(spec)
	}
	os.Exit(testkit.Run(m))
}

var secret = []byte("a secret that all nodes of the test know")

// lab holds what the nodes of a test share.
type lab struct {
	t     *testing.T
	nodes int
	world int
	wait  time.Duration
	at    chan struct{} // closed when node 0 listens
	join  string
	// network is the nodes' network; nil is the system's.
	network cluster.Network
}

func newLab(t *testing.T, nodes int) *lab {
	return &lab{
		t:     t,
		nodes: nodes,
		world: 2 * nodes,
		wait:  20 * time.Second,
		at:    make(chan struct{}),
	}
}

// newVirtualLab returns a lab in memory, for tests of deadlines and of how long something takes. It
// must be called in a synctest bubble.
func newVirtualLab(t *testing.T, nodes int) *lab {
	l := newLab(t, nodes)
	l.network = networktest.New().Host("127.0.0.1")
	t.Cleanup(func() { time.Sleep(time.Minute) }) // until probes in progress have ended
	return l
}

func (l *lab) options(node int) cluster.Options {
	o := cluster.Options{
		Job: "job", Node: node, Nodes: l.nodes, WorldSize: l.world,
		Ranks:    []int{2 * node, 2*node + 1},
		Exchange: fmt.Sprintf(":%d", 9000+node), Gossip: "127.0.0.1:0",
		Secret: secret, Deadline: l.wait,
		Facts: []cluster.Fact{
			{Key: "dataset", Value: "0f"}, {Key: "version", Value: "1.0"},
		},
		Payload: fmt.Appendf(nil, "payload of %d", node), Network: l.network,
	}
	if node == 0 {
		o.Listen, o.Broadcast = "127.0.0.1:0", []byte("seed")
		o.Listening = func(a net.Addr) {
			l.join = a.String()
			close(l.at)
		}
	}
	return o
}

// form runs Form on some nodes at once; change may change their options.
func (l *lab) form(ctx context.Context, nodes []int,
	change func(o *cluster.Options),
) ([]*Agent, []error) {
	clusters, errs := make([]*Agent, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		o := l.options(n)
		if change != nil {
			change(&o)
		}
		all.Go(func() {
			if o.Node != 0 && o.Join == "" {
				<-l.at
				o.Join = l.join
			}
			clusters[i], errs[i] = Form(ctx, o)
		})
	}
	all.Wait()
	l.t.Cleanup(func() {
		for _, c := range clusters {
			if c != nil {
				_ = c.Close()
			}
		}
	})
	return clusters, errs
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// formed is form for tests in which forming must succeed.
func (l *lab) formed() []*Agent {
	l.t.Helper()
	c, errs := l.form(l.t.Context(), upTo(l.nodes), nil)
	if err := errors.Join(errs...); err != nil {
		l.t.Fatal(err)
	}
	return c
}

// like reports whether s matches a pattern in which * stands for a port.
func like(s, pattern string) bool {
	parts := strings.Split(pattern, "*")
	for i, p := range parts {
		if !strings.HasPrefix(s, p) {
			return false
		}
		s = s[len(p):]
		if i < len(parts)-1 {
			s = strings.TrimLeft(s, "0123456789")
		}
	}
	return s == ""
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
