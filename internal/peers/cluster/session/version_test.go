package session

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// TestNodeOfAnotherVersionIsRefused: whichever is older, node 0 reports it with both versions.
func TestNodeOfAnotherVersionIsRefused(t *testing.T) {
	for what, theirs := range map[string]uint32{
		"older": Version - 1, "newer": Version + 1,
	} {
		t.Run(what+" node", func(t *testing.T) {
			at, refused := serveNode0(t)
			st, _ := begin(t, at)
			f, err := ask(st, &pb.Frame{Kind: &pb.Frame_Hello{
				Hello: &pb.Hello{Version: theirs, Nonce: auth.Nonce()},
			}})
			if err != nil || f.GetChallenge().GetVersion() != Version {
				t.Errorf("node 0 answers %v, %v: not its version", f, err)
			}
			if _, err = st.Receive(); connect.CodeOf(err) != connect.CodeFailedPrecondition {
				t.Errorf("node 0 ends the stream with %v", err)
			}
			version, ok := (<-refused).(*cluster.VersionError)
			if !ok || version.Node != 0 || version.Mine != Version || version.Theirs != theirs ||
				!strings.HasPrefix(version.Address, "127.0.0.1:") {
				t.Errorf("node 0 refuses it for %v", version)
			}
		})
	}
}
