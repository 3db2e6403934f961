package session

import (
	"os"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

var (
	secret       = []byte("a secret that all nodes of the test know")
	readyMessage = &pb.Message{Kind: &pb.Message_Ready{Ready: &pb.Ready{}}}
)
