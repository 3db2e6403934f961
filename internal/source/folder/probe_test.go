package folder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source"
)

func TestProbeReportsWhetherSamplesCanBeRead(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"a/0.jpg", "a/1.jpg", "a/2.jpg", "a/3.jpg", "a/4.jpg",
		"a/5.jpg",
	} {
		write(t, filepath.Join(root, name), "some bytes")
	}
	f, err := Open(t.Context(), root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	change := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	change(os.Remove(f.Path(1)),
		os.Truncate(f.Path(2), 0),
		os.Remove(f.Path(3)), unix.Mkfifo(f.Path(3), 0o600),
		os.Remove(f.Path(4)), os.Mkdir(f.Path(4), 0o755),
		os.Truncate(f.Path(5), 100_000))
	for id, want := range map[int]error{
		-1: source.ErrNoSample, 0: nil, 1: source.ErrMissing, 2: source.ErrEmpty,
		3: source.ErrUnreadable, 4: source.ErrUnreadable,
		5: nil, 6: source.ErrNoSample,
	} {
		err := f.Probe(t.Context(), id)
		var sample *source.SampleError
		if !errors.Is(err, want) || want != nil && (!errors.As(err, &sample) || sample.ID != id) {
			t.Errorf("sample %d: %v, want %v", id, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Probe(ended, 0); !errors.Is(err, source.ErrUnavailable) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Probe(t.Context(), 0); !errors.Is(err, source.ErrUnreadable) {
		t.Errorf("closed: %v", err)
	}
}

func TestDropDropsSamplesFromThePageCache(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/0.jpg"), "some bytes")
	write(t, filepath.Join(root, "a/1.jpg"), "some bytes")
	f, err := Open(t.Context(), root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(f.Path(1)); err != nil {
		t.Fatal(err)
	}
	unix.Sync() // unwritten pages stay in the cache
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		t.Fatal(err)
	}
	inMemory := st.Type == 0x01021994 // tmpfs
	if cached, err := f.Drop(t.Context(), 0); err != nil || cached != inMemory {
		t.Errorf("cached: %v, %v; the file system is in memory: %v", cached, err, inMemory)
	}
	if _, err := f.Drop(t.Context(), 1); !errors.Is(err, source.ErrMissing) {
		t.Errorf("missing: %v", err)
	}
}
