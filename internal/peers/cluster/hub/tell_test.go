package hub

import (
	"slices"
	"testing"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// TestNewsOfSeveralNodesGoesOutTogether: once per node, and each sender is notified which nodes
// lack its item: those that refused it, and those that are gone or do not respond.
func TestNewsOfSeveralNodesGoesOutTogether(t *testing.T) {
	d, nodes := runningHarness(t, 4)
	tell := func(p *participant, id uint64) {
		_ = d.hub.receive(p, &pb.Message{Kind: &pb.Message_Tell{
			Tell: &pb.Tell{Id: id, What: []byte("w")},
		}})
	}
	tell(nodes[1], 5)
	tell(nodes[2], 6)
	d.expect(t, "news waits for more")
	d.fireTimers()
	slices.Sort(d.said)
	d.expect(t, "a round", "0.x <- News", "1.a <- News", "2.a <- News", "3.a <- News")
	news := last(nodes[3]).GetNews()
	if len(news.GetItems()) != 2 || news.GetItems()[1].GetNode() != 2 {
		t.Errorf("node 3 is told %v", news)
	}
	heard := func(p *participant, refused ...uint32) {
		_ = d.hub.receive(p, &pb.Message{Kind: &pb.Message_Heard{
			Heard: &pb.Heard{Round: news.GetRound(), Refused: refused},
		}})
	}
	heard(nodes[0], 1, 1<<31)
	heard(nodes[1])
	heard(nodes[2])
	d.expect(t, "node 3 has not heard")
	d.hub.Down(3, "a")
	d.expect(t, "it is gone", "0.x <- Down 3.a", "1.a <- Down 3.a", "2.a <- Down 3.a",
		"3.a <- Down 3.a", "1.a <- Gathered missing [3]", "2.a <- Gathered missing [3 0]")
	heard(nodes[0])
	tell(nodes[1], 7)
	d.fireTimers()
	d.said = nil
	d.fireTimers()
	d.expect(t, "no node responds", "1.a <- Gathered missing [0 1 2 3]")
	if len(d.hub.tells)+len(d.hub.pending) > 0 {
		t.Errorf("%d rounds and %d news are left", len(d.hub.tells), len(d.hub.pending))
	}
}

// TestNodesThatLeaveAreToldOfTogether: the first at once, those that follow together, and before
// any message that one of them is back.
func TestNodesThatLeaveAreToldOfTogether(t *testing.T) {
	d, nodes := runningHarness(t, 4)
	leave := func(n int) {
		_ = d.hub.receive(nodes[n], &pb.Message{Kind: &pb.Message_Leave{Leave: &pb.Leave{}}})
	}
	leave(1)
	d.expect(t, "the first", "0.x <- Down 1.a", "1.a <- Down 1.a", "2.a <- Down 1.a",
		"3.a <- Down 1.a")
	leave(2)
	leave(3)
	d.expect(t, "others")
	d.fireTimers()
	d.expect(t, "a little later", "0.x <- Down 2.a", "0.x <- Down 3.a")
	d.fireTimers()
	d.expect(t, "nothing is left")

	d, _ = runningHarness(t, 3)
	d.hub.Down(1, "a")
	d.hub.Down(2, "a")
	d.said = nil
	d.hub.Up(2, "a")
	d.expect(t, "one is back", "0.x <- Down 2.a", "1.a <- Down 2.a", "2.a <- Down 2.a",
		"0.x <- Member 2.a down=false", "1.a <- Member 2.a down=false",
		"2.a <- Member 2.a down=false")
}
