package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/session"
)

// runningHarness returns a harness whose hub is running, and the participants of its nodes.
func runningHarness(t *testing.T, nodes int) (*harness, []*participant) {
	t.Helper()
	d := newHarness(nodes)
	participants := []*participant{d.participant(0, "x", nodes)}
	for n := 1; n < nodes; n++ {
		participants = append(participants, d.participant(n, "a", nodes))
	}
	for _, p := range participants {
		d.hub.attach(p)
	}
	for _, p := range participants {
		_ = d.hub.receive(p, readyMessage)
	}
	if d.hub.phase != running {
		t.Fatalf("the hub is in phase %d", d.hub.phase)
	}
	d.said = nil
	return d, participants
}

// contribute has p contribute data to a gather.
func (d *harness) contribute(p *participant, id uint64, what string, data []byte) error {
	return d.hub.receive(p, &pb.Message{
		Kind: &pb.Message_Contribution{
			Contribution: &pb.Contribution{Id: id, What: what, Data: data},
		},
	})
}

func (d *harness) withdraw(p *participant, id uint64, what string) {
	_ = d.hub.receive(p,
		&pb.Message{Kind: &pb.Message_Withdraw{Withdraw: &pb.Withdraw{Id: id, What: what}}})
}

// last returns the last message sent to p.
func last(p *participant) *pb.Message {
	got := p.Link.(*recordingLink).got
	return got[len(got)-1]
}

// TestGatherCompletesWhenANodeIsLost: it does not wait for a node that is known to be gone, even if
// the node's stream has not ended.
func TestGatherCompletesWhenANodeIsLost(t *testing.T) {
	d, participants := runningHarness(t, 3)
	_ = d.contribute(participants[0], 5, "w", []byte("zero's"))
	_ = d.contribute(participants[1], 6, "w", []byte("one's"))
	d.expect(t, "two of three")
	d.hub.Down(2, "a")
	d.expect(t, "the third is gone", "0.x <- Down 2.a", "1.a <- Down 2.a", "2.a <- Down 2.a",
		"0.x <- Part", "0.x <- Part", "0.x <- Gathered missing [2]", "1.a <- Part", "1.a <- Part",
		"1.a <- Gathered missing [2]")
	if g := last(participants[1]).GetGathered(); !slices.Equal(g.GetIds(), []uint64{6}) {
		t.Errorf("node 1 got the end of gather %d", g.GetIds())
	}
}

// TestWithdrawOfAnEarlierCallChangesNothing: a withdrawal applies to the call with its ID, not to a
// later call of the same name.
func TestWithdrawOfAnEarlierCallChangesNothing(t *testing.T) {
	d, participants := runningHarness(t, 2)
	_ = d.contribute(participants[1], 1, "w", []byte("old"))
	d.withdraw(participants[1], 1, "w")
	if len(d.hub.gathers) != 0 {
		t.Error("a gather from which the only node has withdrawn is kept")
	}
	_ = d.contribute(participants[1], 2, "w", []byte("new"))
	d.withdraw(participants[1], 1, "w")
	_ = d.contribute(participants[0], 3, "w", nil)
	d.expect(t, "both gave", "0.x <- Part", "0.x <- Part", "0.x <- Gathered missing []",
		"1.a <- Part", "1.a <- Part", "1.a <- Gathered missing []")
	if got := participants[0].Link.(*recordingLink).got; string(got[len(got)-
		2].GetPart().GetData()) !=
		"new" {
		t.Errorf("node 0 was given %q", got[len(got)-2].GetPart().GetData())
	}
}

// TestGathersAreLimited: in the bytes of one node, the bytes of all nodes, and the number of open
// gathers.
func TestGathersAreLimited(t *testing.T) {
	d, participants := runningHarness(t, 66)
	err := d.contribute(participants[1], 1, "large", make([]byte, cluster.MaxPayload+1))
	if !errors.As(err, new(*cluster.LimitError)) || len(d.hub.gathers) != 0 {
		t.Errorf("over the limit of one node: %v, and %d gathers are open", err, len(d.hub.gathers))
	}
	data := make([]byte, cluster.MaxPayload)
	for i, p := range participants[:64] {
		if err := d.contribute(p, uint64(i), "total", data); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(p *participant) error {
		return session.DecodeFailure(last(p).GetGathered().GetFailure())
	}
	for range 2 { // a refused contribution does not count
		if err := d.contribute(participants[64], 100, "total", data); err != nil ||
			!errors.As(refused(participants[64]), new(*cluster.LimitError)) {
			t.Errorf("over the limit of all nodes: %v, %v", err, refused(participants[64]))
		}
	}
	d.withdraw(participants[0], 0, "total")
	if _ = d.contribute(participants[64], 101, "total",
		data); d.hub.gathers["total"].parts[64] == nil {
		t.Error("a withdrawn contribution still counts")
	}

	for i := range maxGathers - 1 {
		_ = d.contribute(participants[1], uint64(200+i), fmt.Sprint("gather ", i), nil)
	}
	if len(d.hub.gathers) != maxGathers {
		t.Fatalf("%d gathers are open, not %d", len(d.hub.gathers), maxGathers)
	}
	if _ = d.contribute(participants[1], 300, "one more", nil); len(d.hub.gathers) != maxGathers ||
		!errors.As(refused(participants[1]), new(*cluster.GatherError)) {
		t.Errorf("%d gathers are open, not %d: %v", len(d.hub.gathers), maxGathers,
			refused(participants[1]))
	}
	if _ = d.contribute(participants[2], 301, "gather 0",
		nil); len(d.hub.gathers["gather 0"].ids) != 2 {
		t.Error("a gather that is open already cannot be joined")
	}
}

// TestPayloadsAreLimited: the payload of one node, and those of all nodes together.
func TestPayloadsAreLimited(t *testing.T) {
	d := newHarness(2)
	d.hub.attach(d.participant(0, "x", 2))
	one := d.participant(1, "a", 2)
	one.reg.Payload = make([]byte, cluster.MaxPayload+1)
	d.hub.attach(one)
	if err := d.hub.failure; !errors.As(err, new(*cluster.LimitError)) {
		t.Errorf("over the limit of one node: %v", err)
	}

	const nodes = 65
	d = newHarness(nodes)
	payload := make([]byte, cluster.MaxPayload)
	for n := range nodes {
		p := d.participant(n, "x", nodes)
		p.reg.Payload = payload
		d.hub.attach(p)
	}
	if err := d.hub.failure; !errors.As(err, new(*cluster.LimitError)) {
		t.Errorf("over the limit of all nodes: %v", err)
	}
}

// TestRejoinedNodeIsDownUntilReady: a node that rejoined is down until it is ready, whatever gossip
// reports; one that was wrongly thought gone is up again at once.
func TestRejoinedNodeIsDownUntilReady(t *testing.T) {
	d, participants := runningHarness(t, 2)
	d.hub.Down(1, "a")
	d.said = nil
	d.hub.Up(1, "before")
	d.hub.Up(7, "a")
	d.expect(t, "another instance is heard")
	d.hub.Up(1, "a")
	d.expect(t, "it is heard", "0.x <- Member 1.a down=false", "1.a <- Member 1.a down=false")
	d.hub.Up(1, "a")
	d.expect(t, "that is nothing new")

	d.hub.detach(participants[1])
	d.hub.Down(1, "a")
	d.fireTimers() // node 0 is notified of it
	again := d.participant(1, "b", 2)
	d.hub.attach(again)
	d.said = nil
	d.hub.Up(1, "b")
	d.expect(t, "it is heard before it is ready")
	_ = d.hub.receive(again, readyMessage)
	d.expect(t, "it is ready", "1.b <- Go", "0.x <- Member 1.b down=false")
}

// TestRefusedConnectionsDoNotFillTheLog: unauthenticated connections, from any number of hosts,
// fill neither node 0's log nor its memory.
func TestRefusedConnectionsDoNotFillTheLog(t *testing.T) {
	d := newHarness(2)
	var log strings.Builder
	d.hub.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for i := range 10 * maxRefused {
		for port := range 3 {
			address := fmt.Sprintf("10.0.1.%d:%d", i, port)
			d.hub.Refuse(address, &cluster.SecretError{Address: address})
		}
	}
	if n := strings.Count(log.String(), "a connection was refused"); n != maxRefused {
		t.Errorf("the log says it %d times", n)
	}
	if len(d.hub.refused) != maxRefused || len(d.hub.loggedHosts) != maxRefused ||
		!slices.ContainsFunc(d.hub.refused, func(s string) bool {
			return strings.HasPrefix(s, "10.0.1.0:0,")
		}) {
		t.Errorf("%d refusals and %d hosts are kept", len(d.hub.refused), len(d.hub.loggedHosts))
	}
}

// TestRefusalsAreValidTexts: whatever an unauthenticated side has said, the nodes that wait are
// sent why it was refused.
func TestRefusalsAreValidTexts(t *testing.T) {
	d := newHarness(2)
	one := d.participant(1, "a", 2)
	d.hub.attach(one)
	d.hub.Refuse("10.0.0.9:1", errors.New("bad certificate \xff\xfe"))
	d.fireTimers()
	refused := last(one).GetStatus().GetRefused()
	if _, err := proto.Marshal(last(one)); err != nil || len(refused) != 1 {
		t.Errorf("%q, %v", refused, err)
	}
}
