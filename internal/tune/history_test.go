package tune

import (
	"testing"
	"time"
)

// TestHistory: only changes are kept, and not more than a number of them.
func TestHistory(t *testing.T) {
	var h History
	at := time.Unix(0, 0)
	for i := range 3 * mostChanges {
		h.Add(at.Add(time.Duration(i)*time.Second), i/2)
	}
	if len(h) != mostChanges {
		t.Fatalf("%d changes are kept", len(h))
	}
	for i, c := range h {
		if c.Value != i || c.Time != at.Add(time.Duration(2*i)*time.Second) {
			t.Errorf("change %d: %+v", i, c)
		}
	}
}
