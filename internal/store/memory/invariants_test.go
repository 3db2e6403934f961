//go:build invariants

package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/store"
)

// TestBufferWrittenAfterAFailedFillPanics: its bytes may belong to another sample by then.
func TestBufferWrittenAfterAFailedFillPanics(t *testing.T) {
	class := New(Options{})
	opened, err := class.Open(store.Dataset{
		Samples: 2,
		Size:    func(int) int64 { return 1000 },
	}, 2000)
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*classStore)
	failed := errors.New("the source is gone")
	var buffer []byte
	err = s.Fill(0, func(dst []byte) (store.Origin, error) {
		buffer = dst
		return store.Origin{}, failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if buffer[0] == 0 || buffer[999] == 0 {
		t.Error("the buffer is not poisoned")
	}
	buffer[17] = 1
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said,
			"byte 17 was written after its release") {
			t.Errorf("panic %q", said)
		}
	}()
	_ = s.Put(1, make([]byte, 1000), store.Origin{})
}
