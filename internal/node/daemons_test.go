package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// TestNodesWithOneDaemonAreRefused checks that if two nodes share a host and its daemon, the second
// one is refused at once.
func TestNodesWithOneDaemonAreRefused(t *testing.T) {
	c := newNodes(t, 1, false)
	address := c.address()
	on := func(node int) request.Open {
		m := message(node, 2)
		m.Cluster = &request.Cluster{
			Nodes:          2,
			Node:           node,
			LocalWorldSize: 1,
			Address:        address,
			Secret:         "0123456789abcdef0123456789abcdef",
		}
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
	if !errors.As(err, &refused) || refused.Kind != failure.Mismatch ||
		refused.Details["mine"] != 1 || refused.Details["theirs"] != 0 ||
		!strings.Contains(refused.Message,
			"rank 1 of job j is on node 1, but this daemon already serves node 0") ||
		!strings.Contains(refused.Message, "HDMLP_SOCKET") {
		t.Errorf("%+v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.close()
}
