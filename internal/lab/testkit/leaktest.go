package testkit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// wait exceeds the time of memberlist's longest probe: 0.5 s, and up to 8 times that for a node
// that has missed many.
const wait = 10 * time.Second

// Run runs a package's tests and returns the exit status: 1 if all passed but left goroutines that
// do not end within 10 s, which it prints.
func Run(m *testing.M) int {
	status := m.Run()
	if status != 0 {
		return status
	}
	began := time.Now()
	for {
		err := goleak.Find()
		if err == nil {
			return 0
		}
		if time.Since(began) > wait {
			fmt.Fprintf(os.Stderr, "the tests passed, but left goroutines: %v\n", err)
			return 1
		}
	}
}
