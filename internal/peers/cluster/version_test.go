package cluster

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hdmlp/hdmlp/internal/peers/auth"
	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// other is a node 0 of another version of the protocol: all that it says is its Hello.
type other uint32

func (v other) Attend(_ context.Context, st *connect.BidiStream[pb.Frame, pb.Frame]) error {
	if _, err := st.Receive(); err != nil {
		return err
	}
	return st.Send(&pb.Frame{Kind: &pb.Frame_Challenge{
		Challenge: &pb.Hello{Version: uint32(v), Nonce: auth.Nonce()},
	}})
}

// TestNodesOfOtherVersionsRefuseEachOther: whichever of them is older, each names the other one and
// both versions. The node that joins ends at once; node 0 reports it, and goes on waiting.
func TestNodesOfOtherVersionsRefuseEachOther(t *testing.T) {
	for what, theirs := range map[string]uint32{
		"older": protocolVersion - 1, "newer": protocolVersion + 1,
	} {
		t.Run(what+" node 0", func(t *testing.T) {
			l := newLab(t, 2)
			l.join = serveControl(t, other(theirs))
			o := l.options(1)
			o.Join = l.join
			_, err := Form(t.Context(), o)
			version, ok := err.(*VersionError)
			if !ok || *version != (VersionError{1, "node 0 (" + l.join + ")", protocolVersion, theirs}) {
				t.Errorf("got %v", err)
			}
		})
		t.Run(what+" node", func(t *testing.T) {
			l := newLab(t, 2)
			refused := make(chan error, 1)
			l.alone(func(o *Options) { o.Refused = func(err error) { refused <- err } })
			st, _ := l.call(1)
			f, err := ask(st, &pb.Frame{Kind: &pb.Frame_Hello{
				Hello: &pb.Hello{Version: theirs, Nonce: auth.Nonce()},
			}})
			if err != nil || f.GetChallenge().GetVersion() != protocolVersion {
				t.Errorf("node 0 answers %v, %v: not its version", f, err)
			}
			if _, err = st.Receive(); connect.CodeOf(err) != connect.CodeFailedPrecondition {
				t.Errorf("node 0 ends the stream with %v", err)
			}
			version, ok := (<-refused).(*VersionError)
			if !ok || version.Node != 0 || version.Mine != protocolVersion || version.Theirs != theirs ||
				!strings.HasPrefix(version.Address, "127.0.0.1:") {
				t.Errorf("node 0 refuses it for %v", version)
			}
		})
	}
}
