package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// loneAgent returns the agent of node 1, without a network. All nodes are known to it; their
// instances are a, b, c, in the order of their numbers.
func loneAgent(t *testing.T, nodes int) *Agent {
	t.Helper()
	a := newAgent(cluster.Options{
		Node:      1,
		Nodes:     nodes,
		WorldSize: nodes,
		Network:   cluster.OrSystem(nil),
		Log:       slog.New(slog.DiscardHandler),
		Progress:  func(string) {},
	})
	t.Cleanup(a.release)
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range nodes {
		a.learn(memberOf(n))
	}
	return a
}

func memberOf(n int) *pb.Member {
	return &pb.Member{Node: uint32(n), Instance: string(rune('a' + n)), Gossip: "127.0.0.1:1"}
}

// TestGossipAloneDoesNotReviveANode: outdated news does not revive a daemon that is known to have
// ended; gossip may only revive what it reported as dead.
func TestGossipAloneDoesNotReviveANode(t *testing.T) {
	a := loneAgent(t, 3)
	for _, step := range []struct {
		what  string
		do    func()
		alive bool
	}{
		{"it is alive", func() { a.heard(2, "c", true) }, true},
		{"node 0 says that it has ended", func() { _ = a.handle(down(2, "c")) }, false},
		{"gossip has not noticed", func() { a.heard(2, "c", true) }, false},
		{"gossip has noticed", func() { a.heard(2, "c", false) }, false},
		{"gossip reports it alive", func() { a.heard(2, "c", true) }, true},
		{"gossip reports an earlier daemon's end", func() { a.heard(2, "before", false) }, true},
		{"gossip does not hear it", func() { a.heard(2, "c", false) }, false},
		{"gossip hears an earlier daemon", func() { a.heard(2, "before", true) }, false},
		{"gossip reports this node's end", func() { a.heard(1, "b", false) }, false},
	} {
		step.do()
		if a.Alive(2) != step.alive || !a.Alive(1) {
			t.Errorf("%s: node 2 is alive: %v, and this node: %v", step.what, a.Alive(2),
				a.Alive(1))
		}
	}
}

func down(node uint32, instance string) *pb.Message {
	return &pb.Message{Kind: &pb.Message_Down{Down: &pb.Down{Node: node, Instance: instance}}}
}

// TestOnlyARefusedPortProvesANodesEnd: a node whose stream has ended is gone if its port refuses
// connections; if the port accepts them, or cannot be reached, the node may be alive.
func TestOnlyARefusedPortProvesANodesEnd(t *testing.T) {
	listens, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listens.Close()
	for address, alive := range map[string]bool{
		listens.Addr().String(): true,
		"255.255.255.255:1":     true, // no route
		refusing(t):             false,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := loneAgent(t, 3)
			a.check(2, "c", address)
			time.Sleep(time.Minute) // in the bubble
			if a.Alive(2) != alive {
				t.Errorf("%s: node 2 is alive: %v", address, a.Alive(2))
			}
		})
	}
}

// refusing returns an address that refuses connections until the test ends: its port is bound, but
// not listening.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// sink is a link to node 0 that drops all messages.
type sink struct{}

func (sink) Send(*pb.Message) {}

func (sink) Close() {}

// pendingGather starts a gather, and returns when it waits for node 0.
func pendingGather(t *testing.T,
	a *Agent,
) (link uplink, result chan [][]byte, failure chan error) {
	t.Helper()
	link = sink{}
	result = make(chan [][]byte, 1)
	failure = make(chan error, 1)
	a.connected(link)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	go func() {
		parts, err := a.Gather(ctx, "w", nil)
		result <- parts
		failure <- err
	}()
	testkit.Until(t, "the gather is in progress", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.calls) == 1
	})
	return link, result, failure
}

// TestGatherEndsWithTheConnection: a gather in progress fails when node 0 is lost.
func TestGatherEndsWithTheConnection(t *testing.T) {
	a := loneAgent(t, 2)
	link, _, failure := pendingGather(t, a)
	a.disconnected(link)
	var lost *cluster.GatherError
	if err := <-failure; !errors.As(err, &lost) || !slices.Equal(lost.Missing, []int{0}) {
		t.Error(err)
	}
}

// TestPartsOfUnknownNodesAreIgnored: a part of a node or a gather that does not exist does no harm.
func TestPartsOfUnknownNodesAreIgnored(t *testing.T) {
	a := loneAgent(t, 2)
	_, result, failure := pendingGather(t, a)
	for _, m := range []*pb.Message{
		{Kind: &pb.Message_Part{Part: &pb.Part{Round: 9, Nodes: []uint32{2}, Data: []byte("x")}}},
		{Kind: &pb.Message_Part{
			Part: &pb.Part{Round: 9, Nodes: []uint32{1<<32 - 1}, Data: []byte("x")},
		}},
		{Kind: &pb.Message_Part{
			Part: &pb.Part{Round: 8, Nodes: []uint32{0}, Data: []byte("of another gather")},
		}},
		{Kind: &pb.Message_Part{
			Part: &pb.Part{Round: 9, Nodes: []uint32{0}, Data: []byte("zero's")},
		}},
		{Kind: &pb.Message_Part{Part: &pb.Part{Round: 9, Nodes: []uint32{1}}}},
		{Kind: &pb.Message_Gathered{Gathered: &pb.Gathered{Ids: []uint64{1}, Round: 9}}},
	} {
		if err := a.handle(m); err != nil {
			t.Error(err)
		}
	}
	if got, err := <-result, <-failure; err != nil || len(got) != 2 || string(got[0]) != "zero's" ||
		got[1] == nil || len(got[1]) != 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestMembersMustMatchTheNodes: node 0 sends every node's member once; too many or too few, or a
// node that does not exist, end the connection and are not stored.
func TestMembersMustMatchTheNodes(t *testing.T) {
	welcome := &pb.Message{Kind: &pb.Message_Welcome{Welcome: &pb.Welcome{}}}
	complete := &pb.Message{Kind: &pb.Message_Complete{Complete: &pb.Complete{}}}
	member := func(n int) *pb.Message {
		return &pb.Message{Kind: &pb.Message_Member{Member: memberOf(n)}}
	}
	for what, said := range map[string][]*pb.Message{
		"one too many":            {welcome, member(0), member(1), member(2), member(0)},
		"one too few":             {welcome, member(0), member(1), complete},
		"one that does not exist": {welcome, member(3)},
		"one without an address": {
			welcome,
			{Kind: &pb.Message_Member{Member: &pb.Member{Gossip: "nowhere"}}},
		},
		"a message for node 0 only": {
			{Kind: &pb.Message_Ready{Ready: &pb.Ready{}}},
		},
	} {
		a := loneAgent(t, 3)
		a.connected(sink{})
		for i, m := range said {
			if err := a.handle(m); (err != nil) != (i == len(said)-1) {
				t.Errorf("%s: message %d: %v", what, i, err)
			}
		}
		if len(a.incoming) > 3 {
			t.Errorf("%s: %d members are kept", what, len(a.incoming))
		}
	}
}

// TestRoundsAreLimited: a node keeps the parts of so many rounds whose end has not come.
func TestRoundsAreLimited(t *testing.T) {
	a := newAgent(cluster.Options{Nodes: 2})
	defer a.release()
	for round := range uint64(maxRounds) {
		if err := a.handle(partOf(round, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.handle(partOf(maxRounds, nil)); err == nil {
		t.Error("one more is taken in")
	}
	_ = a.handle(&pb.Message{Kind: &pb.Message_Gathered{Gathered: &pb.Gathered{Round: 3}}})
	if err := a.handle(partOf(maxRounds, nil)); err != nil {
		t.Error(fmt.Errorf("after the end of one: %w", err))
	}
}

func partOf(round uint64, data []byte) *pb.Message {
	return &pb.Message{Kind: &pb.Message_Part{Part: &pb.Part{Round: round, Data: data}}}
}
