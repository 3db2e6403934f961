package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(nodeVariable); spec != "" {
		asNode(spec)
	}
	goleak.VerifyTestMain(m)
}

var secret = []byte("a secret that all nodes of the test know")

// lab is what the nodes of a test have in common.
type lab struct {
	t     *testing.T
	nodes int
	world int
	wait  time.Duration
	at    chan struct{} // closed when node 0 listens
	join  string
}

func newLab(t *testing.T, nodes int) *lab {
	return &lab{t: t, nodes: nodes, world: 2 * nodes, wait: 20 * time.Second, at: make(chan struct{})}
}

func (l *lab) options(node int) Options {
	o := Options{
		Job: "job", Node: node, Nodes: l.nodes, WorldSize: l.world, Ranks: []int{2 * node, 2*node + 1},
		Exchange: fmt.Sprintf(":%d", 9000+node), Gossip: "127.0.0.1:0",
		Secret: secret, Deadline: l.wait, Facts: []Fact{{"dataset", "0f"}, {"version", "1.0"}},
		Payload: fmt.Appendf(nil, "payload of %d", node),
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
func (l *lab) form(ctx context.Context, nodes []int, change func(o *Options)) ([]*Cluster, []error) {
	clusters, errs := make([]*Cluster, len(nodes)), make([]error, len(nodes))
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

// formed is form where nothing may fail.
func (l *lab) formed() []*Cluster {
	l.t.Helper()
	c, errs := l.form(l.t.Context(), upTo(l.nodes), nil)
	if err := errors.Join(errs...); err != nil {
		l.t.Fatal(err)
	}
	return c
}

func TestForm(t *testing.T) {
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
					if m.Node != j || m.Exchange != want || !slices.Equal(m.Ranks, []int{2 * j, 2*j + 1}) || string(m.Payload) != fmt.Sprintf("payload of %d", j) {
						t.Errorf("node %d knows %+v", i, m)
					}
					if !c.Alive(j) {
						t.Errorf("node %d thinks that %d is dead", i, j)
					}
				}
				if c.Alive(n) || c.Alive(-1) {
					t.Error("a node that does not exist lives")
				}
			}
		})
	}
}

// TestDisagree: every way in which a start can go wrong is told on every node.
func TestDisagree(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   string
	}{
		{"dataset", func(o *Options) {
			if o.Node == 1 {
				o.Facts[0].Value = "aa"
			}
		}, "dataset is aa on node 1 (127.0.0.1:*), but 0f on node 0"},
		{"more facts", func(o *Options) {
			if o.Node == 2 {
				o.Facts = append(o.Facts, Fact{"policy", "naive"})
			}
		}, "policy is naive on node 2 (127.0.0.1:*), but (not given) on node 0"},
		{"fewer facts", func(o *Options) {
			if o.Node == 2 {
				o.Facts = o.Facts[:1]
			}
		}, "version is (not given) on node 2 (127.0.0.1:*), but 1.0 on node 0"},
		{"nodes", func(o *Options) {
			if o.Node == 2 {
				o.Nodes = 4
			}
		}, "nodes is 4 on node 2 (127.0.0.1:*), but 3 on node 0"},
		{"more nodes", func(o *Options) {
			if o.Node == 2 {
				o.Nodes, o.Node, o.Ranks = 7, 6, nil
			}
		}, "nodes is 7 on node 6 (127.0.0.1:*), but 3 on node 0"},
		{"world size", func(o *Options) {
			if o.Node == 1 {
				o.WorldSize = 8
			}
		}, "world_size is 8 on node 1 (127.0.0.1:*), but 6 on node 0"},
		{"one rank twice", func(o *Options) {
			if o.Node == 2 {
				o.Ranks = []int{1, 5}
			}
		}, "nodes 0 and 2 claim rank 1: a rank belongs to one node"},
		{"a rank too few", func(o *Options) {
			if o.Node == 2 {
				o.Ranks = []int{4}
			}
		}, "world_size is 6, but no node has rank 5"},
		{"one number twice", func(o *Options) {
			if o.Node == 2 {
				o.Node, o.Ranks = 1, []int{2, 3}
			}
		}, "both 127.0.0.1:* and 127.0.0.1:* say that they are node 1: every node needs a number of its own"},
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

// like compares with a text in which * stands for a port.
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

func TestMissing(t *testing.T) {
	l := newLab(t, 4)
	l.wait = 700 * time.Millisecond
	started := time.Now()
	_, errs := l.form(t.Context(), []int{0, 2}, nil)
	for _, err := range errs {
		var missing *MissingError
		if !errors.As(err, &missing) || !slices.Equal(missing.Missing, []int{1, 3}) {
			t.Errorf("got %v", err)
		} else if want := "nodes 1 and 3 of 4 did not come within 700ms; there: node 0 (127.0.0.1:*), node 2 (127.0.0.1:*). Look at those nodes' logs; they must reach node 0's port"; !like(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	}
	if d := time.Since(started); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestSecret: who does not know the secret is told at once, node 0 at the deadline.
func TestSecret(t *testing.T) {
	l := newLab(t, 2)
	l.wait = 1500 * time.Millisecond
	_, errs := l.form(t.Context(), upTo(2), func(o *Options) {
		if o.Node == 1 {
			o.Secret = []byte("another secret, just as long")
		}
	})
	var s *SecretError
	if !errors.As(errs[1], &s) || s.Node != 1 {
		t.Errorf("node 1: %v", errs[1])
	}
	var missing *MissingError
	if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 || !like(missing.Refused[0], "127.0.0.1:*, which says that it is node 1, does not know this job's secret: give all nodes the same, by HDMLP_SECRET or HDMLP_SECRET_FILE") {
		t.Errorf("node 0: %v", errs[0])
	}
}

func TestAnotherJob(t *testing.T) {
	l := newLab(t, 2)
	l.wait = 1500 * time.Millisecond
	_, errs := l.form(t.Context(), upTo(2), func(o *Options) {
		if o.Node == 1 {
			o.Job = "other"
		}
	})
	var other *JobError
	if !errors.As(errs[1], &other) || other.Theirs != "other" || other.Node0s != "job" {
		t.Errorf("node 1: %v", errs[1])
	}
	var missing *MissingError
	if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 {
		t.Errorf("node 0: %v", errs[0])
	}
}

// TestAddresses: ports in use, nobody there, and somebody else there.
func TestAddresses(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for name, c := range map[string]struct {
		node   int
		change func(o *Options)
		want   string
	}{
		"listen":       {0, func(o *Options) { o.Listen = used.Addr().String() }, "could not listen at 127.0.0.1:* (control): the port is in use: another job's, or a daemon that has not ended yet. The key port (HDMLP_PORT) chooses others"},
		"gossip":       {0, func(o *Options) { o.Gossip = used.Addr().String() }, "could not listen at 127.0.0.1:* (failure detection, TCP and UDP): the port is in use: another job's, or a daemon that has not ended yet. The key port (HDMLP_PORT) chooses others"},
		"nobody":       {1, func(o *Options) { o.Join = "127.0.0.1:1" }, "could not reach 127.0.0.1:* (node 0) within 500ms: connection refused. Is node 0's daemon there, with the same addresses, and its port open?"},
		"no such host": {1, func(o *Options) { o.Join = "no.such.host.invalid:1" }, ""},
		"silence":      {1, func(o *Options) { o.Join = used.Addr().String() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 2)
			l.wait = 500 * time.Millisecond
			o := l.options(c.node)
			c.change(&o)
			_, err := Form(t.Context(), o)
			var address *AddressError
			if !errors.As(err, &address) || c.want != "" && !like(err.Error(), fmt.Sprintf("node %d ", c.node)+c.want) {
				t.Errorf("got %v", err)
			}
			t.Log(err)
		})
	}
}

// TestFailure: a node that can not take part says so to all, whether it knew that before it had met node 0 or not.
func TestFailure(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { used.Close() })
	for name, c := range map[string]struct {
		node   int
		change func(o *Options)
		want   string
	}{
		"known before": {2, func(o *Options) {
			_, o.Failure = Local(2, "nosuch0.invalid")
			o.Exchange = ""
		}, "node 2 could not use nosuch0.invalid (interface): "},
		"found out": {1, func(o *Options) { o.Gossip = used.Addr().String() }, "node 1 could not listen at " + used.Addr().String() + " (failure detection, TCP and UDP): the port is in use"},
		"node 0": {0, func(o *Options) {
			_, o.Failure = Listen(t.Context(), nil, 0, "samples", "127.0.0.1", used.Addr().(*net.TCPAddr).Port)
		}, "node 0 could not listen at " + used.Addr().String() + " (samples): the port is in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 3)
			l.wait = time.Minute
			_, errs := l.form(t.Context(), upTo(3), func(o *Options) {
				if o.Node == c.node {
					c.change(o)
				}
			})
			for i, err := range errs {
				var address *AddressError
				if !errors.As(err, &address) || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("node %d: got %v, want %s", i, err, c.want)
				}
			}
		})
	}
}

// TestFailureAlone: who can not take part does not wait long for node 0 to be told.
func TestFailureAlone(t *testing.T) {
	l := newLab(t, 2)
	l.wait = 500 * time.Millisecond
	o := l.options(1)
	o.Join, o.Failure = "127.0.0.1:1", errors.New("no room")
	if _, err := Form(t.Context(), o); !errors.Is(err, o.Failure) {
		t.Errorf("got %v", err)
	}
}

func TestLocal(t *testing.T) {
	for what, want := range map[string]string{
		"": "", "lo": "127.0.0.1", "127.0.0.1": "127.0.0.1", "127.1.2.3": "127.1.2.3", "127.0.0.0/8": "127.0.0.1", "localhost": "127.0.0.1",
	} {
		if got, err := Local(1, what); got != want || err != nil {
			t.Errorf("%s is %q, %v", what, got, err)
		}
	}
	for _, what := range []string{"233.252.0.1", "233.252.0.0/24", "nosuch0.invalid", "2001:db8::1", "127.0.0.1/33"} {
		_, err := Local(1, what)
		if !errors.As(err, new(*AddressError)) || !strings.HasPrefix(err.Error(), "node 1 could not use "+what+" (interface): ") || !strings.Contains(err.Error(), "lo 127.0.0.1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestStrangers: who knocks without the secret is named once, however often he comes, and stops nothing.
func TestStrangers(t *testing.T) {
	l := newLab(t, 2)
	var log lines
	refused := make(chan string, 100)
	go func() {
		<-l.at
		for range 5 {
			o := l.options(1)
			o.Join, o.Secret = l.join, []byte("another secret, just as long")
			_, err := Form(t.Context(), o)
			refused <- fmt.Sprintf("%T", err)
		}
		close(refused)
	}()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for got := range refused {
			if got != "*cluster.SecretError" {
				t.Errorf("a stranger got %s", got)
			}
		}
		clusters, errs := l.form(t.Context(), []int{1}, nil)
		if errs[0] != nil {
			t.Error(errs[0])
		} else {
			defer clusters[0].Close()
		}
	})
	_, errs := l.form(t.Context(), []int{0}, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if errs[0] != nil {
		t.Error(errs[0])
	}
	if n := strings.Count(log.String(), "a connection was refused"); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
}

// lines is a log that is read while it is written.
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

// TestCancel: it ends within a second, and all nodes are told.
func TestCancel(t *testing.T) {
	for _, who := range []int{0, 1} {
		l := newLab(t, 3)
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
				if i == who {
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
		var canceled *CanceledError
		if !errors.Is(errs[who], context.Canceled) || !errors.As(errs[1-who], &canceled) || canceled.Node != who {
			t.Errorf("got %v", errs)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		`nodes="0"`:            func(o *Options) { o.Nodes = 0 },
		`node="2"`:             func(o *Options) { o.Node = 2 },
		`world_size="0"`:       func(o *Options) { o.WorldSize = 0 },
		`ranks="9"`:            func(o *Options) { o.Ranks = []int{9} },
		`ranks="1": is there`:  func(o *Options) { o.Ranks = []int{1, 1} },
		`secret="5 bytes"`:     func(o *Options) { o.Secret = []byte("short") },
		`listen="x"`:           func(o *Options) { o.Listen = "x" },
		`exchange=":x"`:        func(o *Options) { o.Exchange = ":x" },
		`payload has 4194305 `: func(o *Options) { o.Payload = make([]byte, MaxPayload+1) },
	} {
		o := newLab(t, 2).options(0)
		change(&o)
		if _, err := Form(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
