// Package requesttest makes, for tests, the descriptors that processes pass with requests.
package requesttest

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// List returns a descriptor with lists of samples, one after the other, as a process passes it. It
// is closed when the test ends.
func List(t *testing.T, lists ...[]int32) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("list", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "list")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(Encoded(lists...)); err != nil {
		t.Fatal(err)
	}
	return f
}

// Encoded returns the bytes of List's descriptor.
func Encoded(lists ...[]int32) (b []byte) {
	for _, list := range lists {
		for _, v := range list {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	return b
}
