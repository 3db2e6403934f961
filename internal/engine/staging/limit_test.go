package staging

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReturnAcceptsSentSlotsOnce checks that a process can return the slots that it was sent, once,
// and no others.
func TestReturnAcceptsSentSlotsOnce(t *testing.T) {
	b, err := New(4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s, _, err := b.Alloc(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Return(s.ID); err == nil ||
		!strings.Contains(err.Error(), "was not sent") {
		t.Errorf("a slot that is still being filled was returned: %v", err)
	}
	b.MarkSent([]uint32{s.ID})
	if _, err := b.Return(s.ID); err != nil {
		t.Error(err)
	}
	if _, err := b.Return(s.ID); err == nil || !strings.Contains(err.Error(), "not in use") {
		t.Errorf("a slot was returned twice: %v", err)
	}
	if used, _ := b.Usage(); used != 0 {
		t.Errorf("%d bytes in use", used)
	}
}

// TestLimitErrors checks that an error names the system limit, what is needed, and what is
// available.
func TestLimitErrors(t *testing.T) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err         error
		need, limit int64
		words       string
	}{
		{unix.EMFILE, int64(files.Cur) + 1, int64(files.Cur), "RLIMIT_NOFILE"},
		{unix.ENFILE, 1, 0, "fs.file-max"},
		{unix.ENOMEM, 4096, 0, "4096 bytes are needed"},
		{unix.EFBIG, 4096, 0, "RLIMIT_FSIZE"},
	} {
		err := limited("create a buffer", 4096, c.err)
		var l *LimitError
		if !errors.As(err, &l) || !errors.Is(err, c.err) || l.Need != c.need ||
			(c.limit > 0 && l.Limit != c.limit) {
			t.Errorf("%v: %+v", c.err, err)
		} else if !strings.Contains(err.Error(), c.words) ||
			!strings.Contains(err.Error(), "create a buffer") {
			t.Errorf("%v: %q does not say %q", c.err, err, c.words)
		}
	}
	var l *LimitError
	if err := limited("create a buffer", 1, unix.EPERM); errors.As(err, &l) ||
		!errors.Is(err, unix.EPERM) {
		t.Errorf("EPERM is no limit: %v", err)
	}
	// A real failure: more than any address space.
	if _, err := New(1<<48, 0); !errors.As(err, &l) || l.Need != 1<<48+returnsSize {
		t.Errorf("a buffer of 2^48 bytes: %v", err)
	}
	b, err := New(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, _, err := b.allocExtraNow(1 << 48); !errors.As(err, &l) || l.Need != 1<<48 {
		t.Errorf("an extra segment of 2^48 bytes: %v", err)
	}
	for _, forbidden := range []error{unix.EPERM, unix.EACCES, unix.ENOSYS} {
		if err := notMade("make it", 1, forbidden); !errors.As(err, &l) ||
			!strings.Contains(err.Error(), "seccomp") {
			t.Errorf("memfd_create is not allowed: %v", err)
		}
	}
	if m, err := newMemory(strings.Repeat("x", 300), 1); !errors.Is(err, unix.EINVAL) {
		t.Errorf("memory with an invalid name: %v, %v", m, err)
	}
}
