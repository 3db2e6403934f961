package agent

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// deaf is failure detection that has ended.
type deaf struct{}

func (deaf) Address() string { return "" }

func (deaf) Start(_, _ string, _ func(int, string, bool)) error { return cluster.ErrClosed }

func (deaf) Join(string) error { return cluster.ErrClosed }

func (deaf) Known() map[string]bool { return nil }

func (deaf) Leave() {}

func (deaf) Close() {}

// FuzzAgent: no message of node 0 makes an agent panic.
func FuzzAgent(f *testing.F) {
	for _, m := range []*pb.Message{
		{Kind: &pb.Message_Ready{Ready: &pb.Ready{}}},
		{Kind: &pb.Message_Pong{Pong: &pb.Pong{}}},
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
	}
	f.Fuzz(func(_ *testing.T, first, second []byte) {
		a := newAgent(cluster.Options{
			Node:      1,
			Nodes:     2,
			WorldSize: 2,
			Log:       slog.New(slog.DiscardHandler),
			Progress:  func(string) {},
		})
		defer a.release()
		a.gossip = deaf{}
		a.connected(sink{})
		for _, b := range [][]byte{first, second} {
			m := new(pb.Message)
			if proto.Unmarshal(b, m) == nil {
				_ = a.handle(m)
			}
		}
	})
}
