package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
)

func TestMissingNodesAreNamedAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVirtualLab(t, 4)
		l.wait = 700 * time.Millisecond
		started := time.Now()
		_, errs := l.form(t.Context(), []int{0, 2}, nil)
		for _, err := range errs {
			var missing *cluster.MissingError
			if !errors.As(err, &missing) || !slices.Equal(missing.Missing, []int{1, 3}) {
				t.Errorf("got %v", err)
			} else if want := "nodes 1 and 3 of 4 did not join within 700ms; present: node 0 " +
				"(127.0.0.1:*), node 2 (127.0.0.1). See the logs of the missing nodes; they must " +
				"be able to reach node 0's port"; !like(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		}
		if d := time.Since(started); d > 3*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestAnotherSecretIsReported: to the node at once, and by node 0 at the deadline.
func TestAnotherSecretIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVirtualLab(t, 2)
		l.wait = 1500 * time.Millisecond
		_, errs := l.form(t.Context(), upTo(2), func(o *cluster.Options) {
			if o.Node == 1 {
				o.Secret = []byte("another secret, just as long")
			}
		})
		var s *cluster.SecretError
		if !errors.As(errs[1], &s) || s.Node != 1 {
			t.Errorf("node 1: %v", errs[1])
		}
		var missing *cluster.MissingError
		if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 ||
			!like(missing.Refused[0],
				"127.0.0.1:*, which claims to be node 1, does not have this job's secret: set the "+
					"same HDMLP_SECRET or HDMLP_SECRET_FILE on all nodes") {
			t.Errorf("node 0: %v", errs[0])
		}
	})
}

func TestNodeOfAnotherJobIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVirtualLab(t, 2)
		l.wait = 1500 * time.Millisecond
		_, errs := l.form(t.Context(), upTo(2), func(o *cluster.Options) {
			if o.Node == 1 {
				o.Job = "other"
			}
		})
		var other *cluster.JobError
		if !errors.As(errs[1], &other) || other.Theirs != "other" || other.Node0s != "job" {
			t.Errorf("node 1: %v", errs[1])
		}
		var missing *cluster.MissingError
		if !errors.As(errs[0], &missing) || len(missing.Refused) != 1 {
			t.Errorf("node 0: %v", errs[0])
		}
	})
}

// TestUnusableAddressesAreNamed: ports in use, no listener, and another service.
func TestUnusableAddressesAreNamed(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for name, c := range map[string]struct {
		node   int
		change func(o *cluster.Options)
		want   string
	}{
		"listen": {0, func(o *cluster.Options) {
			o.Listen = used.Addr().String()
		}, "could not listen on 127.0.0.1:* (control): the port is in use by another job, or by " +
			"a daemon that has not exited yet; set port (HDMLP_PORT) to use other ports"},
		"gossip": {0, func(o *cluster.Options) {
			o.Gossip = used.Addr().String()
		}, "could not listen on 127.0.0.1:* (failure detection, TCP and UDP): the port is in use " +
			"by another job, or by a daemon that has not exited yet; set port (HDMLP_PORT) to " +
			"use other ports"},
		"no listener": {1, func(o *cluster.Options) {
			o.Join = "127.0.0.1:1"
		}, "could not reach 127.0.0.1:* (node 0) within 500ms: connection refused. Check that " +
			"node 0's daemon is running at this address and that its port is open"},
		"no such host": {1, func(o *cluster.Options) { o.Join = "no.such.host.invalid:1" }, ""},
		"silence":      {1, func(o *cluster.Options) { o.Join = used.Addr().String() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 2)
			l.wait = 500 * time.Millisecond
			o := l.options(c.node)
			c.change(&o)
			_, err := Form(t.Context(), o)
			var address *cluster.AddressError
			if !errors.As(err, &address) ||
				c.want != "" && !like(err.Error(), fmt.Sprintf("node %d ", c.node)+c.want) {
				t.Errorf("got %v", err)
			}
			t.Log(err)
		})
	}
}

// TestFailureOfOneNodeIsReportedByAll: whether the node knew of it before it connected to node 0 or
// not.
func TestFailureOfOneNodeIsReportedByAll(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { used.Close() })
	for name, c := range map[string]struct {
		node   int
		change func(o *cluster.Options)
		want   string
	}{
		"known before": {2, func(o *cluster.Options) {
			_, o.Failure = cluster.Local(2, "nosuch0.invalid")
			o.Exchange = ""
		}, "node 2 could not use nosuch0.invalid (interface): "},
		"found out": {1, func(o *cluster.Options) {
			o.Gossip = used.Addr().String()
		}, "node 1 could not listen on " + used.Addr().String() +
			" (failure detection, TCP and UDP): the port is in use"},
		"node 0": {0, func(o *cluster.Options) {
			_, o.Failure = cluster.Listen(t.Context(), nil, 0, "samples", "127.0.0.1",
				used.Addr().(*net.TCPAddr).Port)
		}, "node 0 could not listen on " + used.Addr().String() + " (samples): the port is in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 3)
			l.wait = time.Minute
			_, errs := l.form(t.Context(), upTo(3), func(o *cluster.Options) {
				if o.Node == c.node {
					c.change(o)
				}
			})
			for i, err := range errs {
				var address *cluster.AddressError
				if !errors.As(err, &address) || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("node %d: got %v, want %s", i, err, c.want)
				}
			}
		})
	}
}

// TestFailedNodeDoesNotWaitLong: a node that cannot take part returns even if it cannot tell node
// 0.
func TestFailedNodeDoesNotWaitLong(t *testing.T) {
	l := newLab(t, 2)
	l.wait = 500 * time.Millisecond
	o := l.options(1)
	o.Join, o.Failure = "127.0.0.1:1", errors.New("no room")
	if _, err := Form(t.Context(), o); !errors.Is(err, o.Failure) {
		t.Errorf("got %v", err)
	}
}

// TestUnauthenticatedConnectionsDoNotStopTheStart: they are logged once per host, and the cluster
// forms.
func TestUnauthenticatedConnectionsDoNotStopTheStart(t *testing.T) {
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
				t.Errorf("a node with another secret got %s", got)
			}
		}
		clusters, errs := l.form(t.Context(), []int{1}, nil)
		if errs[0] != nil {
			t.Error(errs[0])
		} else {
			defer clusters[0].Close()
		}
	})
	_, errs := l.form(t.Context(), []int{0}, func(o *cluster.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if errs[0] != nil {
		t.Error(errs[0])
	}
	if n := strings.Count(log.String(), "a connection was refused"); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
}
