package hub

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// harness is a hub without a network or a clock; it records what the hub sends.
type harness struct {
	hub    *Hub
	said   []string
	timers []func()
}

type recordingLink struct {
	harness *harness
	name    string
	got     []*pb.Message
	closed  bool
}

func (l *recordingLink) Send(m *pb.Message) {
	l.got = append(l.got, m)
	line := strings.TrimPrefix(fmt.Sprintf("%T", m.GetKind()), "*clusterpb.Message_")
	switch k := m.GetKind().(type) {
	case *pb.Message_Member:
		line += fmt.Sprintf(" %d.%s down=%v", k.Member.GetNode(), k.Member.GetInstance(),
			k.Member.GetDown())
	case *pb.Message_Down:
		line += fmt.Sprintf(" %d.%s", k.Down.GetNode(), k.Down.GetInstance())
	case *pb.Message_Status:
		line += fmt.Sprintf(" missing %v", k.Status.GetMissing())
	case *pb.Message_Abort:
		line += ": " + session.DecodeFailure(k.Abort).Error()
	case *pb.Message_Gathered:
		line += fmt.Sprintf(" missing %v", k.Gathered.GetMissing())
	}
	l.harness.said = append(l.harness.said, l.name+" <- "+line)
}

func (l *recordingLink) SendPack(p *session.Pack) {
	for _, m := range p.Messages {
		l.Send(m)
	}
}

func (l *recordingLink) Close() { l.closed = true }

func newHarness(nodes int) *harness {
	d := &harness{}
	d.hub = New(d.participant(0, "x", nodes).reg, Options{
		Deadline: time.Hour,
		Log:      slog.New(slog.DiscardHandler),
		Check: func(n int, instance, _ string) {
			d.said = append(d.said, fmt.Sprintf("check %d.%s", n, instance))
		},
		Refused: func(error) {},
	})
	d.hub.after = func(_ time.Duration, f func()) { d.timers = append(d.timers, f) }
	return d
}

func (d *harness) participant(node int, instance string, nodes int) *participant {
	name := fmt.Sprintf("%d.%s", node, instance)
	return &participant{
		Link: &recordingLink{harness: d, name: name}, seen: fmt.Sprintf("10.0.0.%d:1", node),
		local: "10.0.0.200:2",
		reg: &pb.Register{
			Job: "job", Node: uint32(node), Instance: instance, Nodes: uint32(nodes),
			WorldSize: uint32(nodes),
			Ranks:     []uint32{uint32(node)}, Exchange: ":1", Gossip: ":2",
		},
	}
}

func (d *harness) fireTimers() {
	timers := d.timers
	d.timers = nil
	for _, f := range timers {
		f()
	}
}

var (
	readyMessage = &pb.Message{Kind: &pb.Message_Ready{Ready: &pb.Ready{}}}
	pongMessage  = &pb.Message{Kind: &pb.Message_Pong{Pong: &pb.Pong{}}}
)

// expect compares what the hub sent since the last call.
func (d *harness) expect(t *testing.T, step string, want ...string) {
	t.Helper()
	if !slices.Equal(d.said, want) {
		t.Errorf("%s: sent\n  %s\nwant\n  %s", step, strings.Join(d.said, "\n  "),
			strings.Join(want, "\n  "))
	}
	d.said = nil
}

// TestHubThroughTheLifeOfACluster follows one cluster: forming, a node that dies meanwhile,
// running, a node that dies, its return, a second daemon of a living node, and a silent stream that
// is replaced.
func TestHubThroughTheLifeOfACluster(t *testing.T) {
	d := newHarness(2)
	zero, one := d.participant(0, "x", 2), d.participant(1, "a", 2)
	d.hub.attach(zero)
	d.fireTimers()
	d.expect(t, "node 0", "0.x <- Accepted", "0.x <- Status missing [1]")
	d.hub.attach(one)
	d.expect(t, "node 1", "1.a <- Accepted",
		"0.x <- Welcome", "0.x <- Member 0.x down=false", "0.x <- Member 1.a down=false",
		"0.x <- Complete",
		"1.a <- Welcome", "1.a <- Member 0.x down=false", "1.a <- Member 1.a down=false",
		"1.a <- Complete")
	if m := d.hub.members; m[0].GetExchange() != "10.0.0.200:1" ||
		m[1].GetGossip() != "10.0.0.1:2" {
		t.Error("addresses:", m)
	}
	_ = d.hub.receive(zero, readyMessage)
	d.hub.detach(one)
	d.fireTimers()
	d.expect(t, "it dies before it is ready", "0.x <- Status missing [1]")
	one = d.participant(1, "b", 2)
	d.hub.attach(one)
	d.said = nil
	_ = d.hub.receive(one, readyMessage)
	d.expect(t, "node 0 is not ready yet, again")
	_ = d.hub.receive(zero, readyMessage)
	d.expect(t, "all ready", "0.x <- Go", "1.b <- Go")

	d.hub.detach(one)
	d.expect(t, "its stream ends", "check 1.b")
	d.hub.Down(1, "a")
	d.expect(t, "an older instance's end is nothing new")
	d.hub.Down(1, "b")
	d.expect(t, "it is gone", "0.x <- Down 1.b")
	one = d.participant(1, "c", 2)
	d.hub.attach(one)
	d.expect(t, "it is back", "1.c <- Accepted", "1.c <- Welcome", "1.c <- Member 0.x down=false",
		"1.c <- Member 1.c down=true", "1.c <- Complete")
	_ = d.hub.receive(one, readyMessage)
	d.expect(t, "and ready", "1.c <- Go", "0.x <- Member 1.c down=false")

	second := d.participant(1, "d", 2)
	d.hub.attach(second)
	d.expect(t, "a second one", "1.c <- Ping")
	_ = d.hub.receive(one, pongMessage)
	d.expect(t, "the first lives",
		"1.d <- Abort: both 10.0.0.1:1 and 10.0.0.1:1 claim to be node 1: give every node its own "+
			"number")
	d.timers = nil
	d.hub.attach(d.participant(1, "e", 2))
	d.fireTimers()
	d.expect(t, "the first is silent", "1.c <- Ping", "1.e <- Accepted", "1.e <- Welcome",
		"1.e <- Member 0.x down=false", "1.e <- Member 1.e down=true", "1.e <- Complete")
}

// TestNewcomerThatHangsUpContestsNoMore: after it, the daemon that has the number keeps it although
// it does not answer in time, and the next newcomer is not compared with one that is gone.
func TestNewcomerThatHangsUpContestsNoMore(t *testing.T) {
	for n, first := range []string{"0.x", "1.a"} {
		d, _ := runningHarness(t, 2)
		gone := d.participant(n, "gone", 2)
		d.hub.attach(gone)
		d.expect(t, "a newcomer", first+" <- Ping")
		d.hub.detach(gone)
		d.fireTimers()
		d.expect(t, "it hangs up")
		d.hub.attach(d.participant(n, "next", 2))
		d.expect(t, "the next one", first+" <- Ping")
	}
}

// TestNodeThatLeavesIsGoneAtOnce checks that the other nodes are notified when a node leaves, once
// the cluster runs.
func TestNodeThatLeavesIsGoneAtOnce(t *testing.T) {
	d := newHarness(2)
	zero, one := d.participant(0, "x", 2), d.participant(1, "a", 2)
	leave := &pb.Message{Kind: &pb.Message_Leave{Leave: &pb.Leave{}}}
	d.hub.attach(zero)
	d.hub.attach(one)
	d.said = nil
	_ = d.hub.receive(one, leave)
	d.expect(t, "it leaves before the cluster runs")
	one = d.participant(1, "b", 2)
	d.hub.attach(one)
	_ = d.hub.receive(zero, readyMessage)
	_ = d.hub.receive(one, readyMessage)
	d.said = nil
	_ = d.hub.receive(one, leave)
	d.expect(t, "it leaves", "0.x <- Down 1.b", "1.b <- Down 1.b")
}

// TestAddressOfNode0 checks that node 0, which listens on all its addresses, is shown under the one
// that others dialed, and alone as what it listens on.
func TestAddressOfNode0(t *testing.T) {
	d := newHarness(2)
	zero := d.participant(0, "x", 2)
	zero.seen = ":1"
	d.hub.attach(zero)
	if got := d.hub.address(zero); got != ":1" {
		t.Errorf("alone it is %s", got)
	}
	d.hub.attach(d.participant(1, "a", 2))
	if got := d.hub.address(zero); got != "10.0.0.200:1" {
		t.Errorf("with another node it is %s", got)
	}
}

// TestClusterRunsInAnyOrderOfEvents: nodes that join, leave, rejoin and become ready in any order
// end up running, with the same members.
func TestClusterRunsInAnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(2, 6).Draw(t, "nodes")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		d := newHarness(nodes)
		d.hub.attach(d.participant(0, "x", nodes))
		now := make([]*participant, nodes)
		for i := range rapid.IntRange(0, 40).Draw(t, "restarts") {
			n := 1 + random.IntN(nodes-1)
			if p := now[n]; p != nil && random.IntN(2) == 0 {
				d.hub.detach(p)
				now[n] = nil
			} else if p == nil {
				now[n] = d.participant(n, fmt.Sprint(i), nodes)
				d.hub.attach(now[n])
			} else {
				_ = d.hub.receive(p, readyMessage)
			}
			if random.IntN(4) == 0 {
				d.fireTimers()
			}
		}
		for n := 1; n < nodes; n++ {
			if now[n] == nil {
				now[n] = d.participant(n, "last", nodes)
				d.hub.attach(now[n])
			}
		}
		for n := range nodes {
			_ = d.hub.receive(d.hub.participants[n], readyMessage)
		}
		if d.hub.phase != running {
			t.Fatalf("phase %d after %v", d.hub.phase, d.said)
		}
		for n := 1; n < nodes; n++ {
			l := now[n].Link.(*recordingLink)
			if _, ok := l.got[len(l.got)-1].GetKind().(*pb.Message_Go); !ok &&
				!slices.ContainsFunc(l.got, func(m *pb.Message) bool { return m.GetGo() != nil }) {
				t.Fatalf("node %d was not told to go", n)
			}
			if m := d.hub.members[n]; m.GetDown() || m.GetInstance() != now[n].reg.GetInstance() {
				t.Fatalf("node %d is known as %v", n, m)
			}
		}
	})
}

// FuzzHub: no message of an authenticated node makes the hub panic.
func FuzzHub(f *testing.F) {
	for _, m := range []*pb.Message{
		readyMessage, pongMessage,
		{Kind: &pb.Message_Register{Register: &pb.Register{Node: 9}}},
		{
			Kind: &pb.Message_Contribution{
				Contribution: &pb.Contribution{Id: 1, What: "w", Data: []byte{1}},
			},
		},
		{Kind: &pb.Message_Failed{Failed: &pb.Failure{Kind: "rank", Detail: []byte(`{"Rank":1}`)}}},
		{Kind: &pb.Message_Part{Part: &pb.Part{Round: 1, Nodes: []uint32{1 << 31}}}},
		{Kind: &pb.Message_Member{Member: &pb.Member{Node: 1 << 31, Gossip: "x"}}},
		{Kind: &pb.Message_Complete{Complete: &pb.Complete{}}},
		{Kind: &pb.Message_Status{}},
		{Kind: &pb.Message_Welcome{Welcome: &pb.Welcome{Broadcast: []byte{1}}}},
		{Kind: &pb.Message_Accepted{Accepted: &pb.Accepted{RemainingMs: 1 << 62}}},
		{Kind: &pb.Message_Abort{Abort: &pb.Failure{Kind: "late", Detail: []byte(`{}`)}}},
		{Kind: &pb.Message_Down{Down: &pb.Down{Node: 1, Instance: "a"}}},
		{Kind: &pb.Message_Ping{Ping: &pb.Ping{}}},
		{Kind: &pb.Message_Go{Go: &pb.Go{}}},
		{Kind: &pb.Message_Leave{Leave: &pb.Leave{}}},
		{Kind: &pb.Message_Withdraw{Withdraw: &pb.Withdraw{}}},
		{Kind: &pb.Message_Gathered{Gathered: &pb.Gathered{Ids: []uint64{1}}}},
		{Kind: &pb.Message_Tell{Tell: &pb.Tell{Id: 1, What: []byte("w")}}},
		{Kind: &pb.Message_News{News: &pb.News{Items: []*pb.News_Item{{What: []byte("w")}}}}},
		{Kind: &pb.Message_Heard{Heard: &pb.Heard{Round: 1, Refused: []uint32{1 << 31}}}},
		{Kind: &pb.Message_Question{Question: &pb.Question{}}},
		{Kind: &pb.Message_Answer{Answer: &pb.Answer{}}},
	} {
		b, _ := proto.Marshal(m)
		f.Add(b, b)
		ready, _ := proto.Marshal(readyMessage)
		f.Add(ready, b)
	}
	f.Fuzz(func(_ *testing.T, first, second []byte) {
		d := newHarness(2)
		zero, one := d.participant(0, "x", 2), d.participant(1, "a", 2)
		d.hub.attach(zero)
		for i, b := range [][]byte{first, second} {
			m := new(pb.Message)
			if proto.Unmarshal(b, m) != nil {
				continue
			}
			if r := m.GetRegister(); r != nil && i == 0 {
				one.reg = r
			}
			d.hub.attach(one)
			_ = d.hub.receive(one, m)
		}
		d.hub.detach(one)
		d.fireTimers()
	})
}
