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
	n := 0
	for when, value := range h.All() {
		if value != n || when != at.Add(time.Duration(2*n)*time.Second) {
			t.Errorf("change %d: to %d, at %v", n, value, when)
		}
		n++
	}
	if n != mostChanges {
		t.Fatalf("%d changes are kept", n)
	}
}
