package job

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/failure"
	"github.com/hdmlp/hdmlp/internal/request"
)

// TestMeeting: where node 0 is found, by launcher, configuration and loader.
func TestMeeting(t *testing.T) {
	for _, c := range []struct {
		address      string
		loader, port int // the configuration's port
		host         string
		want         int // -1: an error
	}{
		{"n0:29510", 0, 0, "n0", 29510},
		{":29510", 1, 0, "", 29514},
		{"[fe::1]:29510", 63, 0, "fe::1", 29762},
		{"n0:29510", 0, 7000, "n0", 7000},
		{"n0:29510", 2, 7000, "n0", 7008},
		{"n0:65532", 0, 0, "n0", 65532},
		{"n0:65533", 0, 0, "n0", 65533 - 32768}, // its last port would be too high
		{"n0:29510", 1, 65532, "n0", 65536 - 32768},
		{"n0:29510", 256, 0, "", -1},
		{"n0:29510", -1, 0, "", -1},
		{"n0:70000", 0, 0, "", -1},
		{"n0", 0, 0, "", -1},
	} {
		j := &Job{cfg: &config.Config{Port: c.port}}
		j.message.Cluster = &request.Cluster{Address: c.address, Loader: c.loader}
		host, port, err := j.meeting()
		var said *failure.Error
		if c.want < 0 {
			if !errors.As(err, &said) || said.Kind != failure.Config {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || host != c.host || port != c.want {
			t.Errorf("%+v: %s, %d, %v", c, host, port, err)
		}
	}
}

// TestNodesWithOneDaemon: of two nodes that share a host and its daemon the second is refused at once, rather than waited for.
func TestNodesWithOneDaemon(t *testing.T) {
	c := newNodes(t, 1, false)
	address := c.address()
	on := func(node int) request.Open {
		m := message(node, 2)
		m.Cluster = &request.Cluster{Nodes: 2, Node: node, LocalWorldSize: 1, Address: address, Secret: "0123456789abcdef0123456789abcdef"}
		return m
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits, ended := make(chan struct{}), make(chan error)
	go func() {
		said := sync.OnceFunc(func() { close(waits) })
		_, err := c.list[0].Open(ctx, on(0), nil, func(request.Step) { said() })
		ended <- err
	}()
	<-waits
	_, err := c.list[0].Open(t.Context(), on(1), nil, func(request.Step) {})
	var refused *failure.Error
	if !errors.As(err, &refused) || refused.Kind != failure.Mismatch || refused.Details["mine"] != 1 || refused.Details["theirs"] != 0 ||
		!strings.Contains(refused.Message, "rank 1 of job j is on node 1, but this daemon is the job's on node 0") || !strings.Contains(refused.Message, "HDMLP_SOCKET") {
		t.Errorf("%+v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.close()
}
