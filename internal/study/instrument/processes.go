package instrument

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt has processes whose parents end become children of this one, so that all are found that the
// script leaves.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// look is how often processes are looked at.
const look = 20 * time.Millisecond

// stop ends all descendants of this process: those that are ending have some time for that, the
// others get SIGTERM, and then SIGKILL. done is closed when the first child has ended; stop itself
// waits for the others.
func stop(ctx context.Context, done <-chan struct{}) {
	wait := func(within time.Duration) (gone bool) {
		tick := time.NewTicker(look)
		defer tick.Stop()
		late := time.NewTimer(within)
		defer late.Stop()
		for {
			if closed(done) {
				reap()
				if len(descendants()) == 0 {
					return true
				}
			}
			select {
			case <-tick.C:
			case <-late.C:
				return false
			}
		}
	}
	if closed(done) && ctx.Err() == nil && wait(abrupt) {
		return // a daemon that the script started ends with the last process that uses it
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, pid := range descendants() {
			_ = syscall.Kill(pid, signal)
		}
		if wait(abrupt) {
			return
		}
	}
}

// reap takes note of the end of adopted processes.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}

// descendants returns the processes that descend from this one, without those that have ended.
func descendants() []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	children := map[int][]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		// After the name, which may contain anything: the state and the parent.
		rest := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(rest) < 2 || rest[0] == "Z" {
			continue
		}
		if parent, err := strconv.Atoi(rest[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	found := slices.Clone(children[os.Getpid()])
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}
