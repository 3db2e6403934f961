// Package wait bounds waits for goroutines that a system call may hold forever: a read from a
// dead server can be neither interrupted nor given a deadline. It has no state.
package wait

import "time"

// Within calls wait, and reports whether it returned within d. If not, the goroutine that called it
// remains until it returns, or the process ends.
func Within(d time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-done:
		return true
	case <-timeout.C:
		return false
	}
}
