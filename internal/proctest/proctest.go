// Package proctest has what tests ask of a process that works in the background: to wait for it,
// and to count its descriptors. Tests in virtual time need no Until (testing/synctest).
package proctest

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Until waits until a condition holds, which other goroutines or processes establish. If it does
// not hold after 20 s, it fails the test. What is the condition, for the message.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("timed out after 20 s waiting until %s", what)
		}
	}
}

// Descriptors returns the number of this process's descriptors of what has text in its name, such
// as "socket:" or the name of a memfd.
func Descriptors(t testing.TB, text string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && // else just closed
			strings.Contains(to, text) {
			n++
		}
	}
	return n
}
