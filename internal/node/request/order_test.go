package request

import (
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/request/requesttest"
)

// TestListTruncatedWhileReadIsAnError checks that it does no more harm than that.
func TestListTruncatedWhileReadIsAnError(t *testing.T) {
	f := requesttest.List(t, make([]int32, 1<<20))
	l, err := openList(f, "stream.subset", 1, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(3<<20 + 2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.read(1 << 20); err == nil ||
		!strings.Contains(err.Error(), "has 3145730 bytes, and 4194304 are needed") {
		t.Error(err)
	}
}
