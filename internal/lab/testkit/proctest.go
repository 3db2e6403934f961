package testkit

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// Address returns an address of loopback, host:port, where one listener of package net can listen.
// Until the test ends the system gives the port to no other socket that asks for any port, as it
// may give away one that was free a moment ago.
func Address(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	// A bound socket that does not listen reserves its port, except for those that name the port
	// and have this option as well, as package net's listeners do.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.(*unix.SockaddrInet4).Port))
}
