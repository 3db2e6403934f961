package session

import (
	"testing"

	pb "github.com/hdmlp/hdmlp/internal/peers/cluster/clusterpb"
)

// FuzzFailure: any failure message of another node decodes to an error, which survives re-encoding.
func FuzzFailure(f *testing.F) {
	for kind := range failures {
		f.Add(kind, []byte(`{"Node":1,"Missing":[1,2],"Nodes":[1]}`))
	}
	f.Fuzz(func(t *testing.T, kind string, detail []byte) {
		err := DecodeFailure(&pb.Failure{Kind: kind, Detail: detail})
		if again := DecodeFailure(EncodeFailure(err)); again.Error() != err.Error() {
			t.Errorf("%v became %v", err, again)
		}
	})
}
