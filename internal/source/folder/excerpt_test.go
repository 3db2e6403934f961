package folder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/tree"
)

// TestChanceOf checks when files that keep failing are bad, and not their source.
func TestChanceOf(t *testing.T) {
	for _, c := range []struct {
		attempts, good, faults int
		least, most            float64
	}{
		{mostAttempts, 0, 0, lastDoubt, 1},    // nothing was read
		{mostAttempts, 1, 0, lastDoubt, 1},    // hardly anything was
		{7, 63, 0, 0, contentDoubt},           // all others were, at once
		{2, 63, 0, contentDoubt, lastDoubt},   // the same, on a disk that takes its time
		{mostAttempts, 63, 90, 0, lastDoubt},  // the others needed two or three attempts
		{mostAttempts, 60, 700, lastDoubt, 1}, // the others needed a dozen
	} {
		if got := chanceOf(c.attempts, c.good, c.faults); got < c.least || got > c.most {
			t.Errorf("%+v: %g", c, got)
		}
	}
}

// TestDigestCoversEachByteOfItsPieces changes the bytes of a file one at a time. Each read of it
// may hang, and is monitored.
func TestDigestCoversEachByteOfItsPieces(t *testing.T) {
	dir := t.TempDir()
	root, err := tree.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	pieces := []source.Extent{
		{Offset: 0, Length: 3}, {Offset: 5, Length: 2}, {Offset: 8, Length: 1},
	}
	covered := []bool{true, true, true, false, false, true, true, false, true}
	call := new(recordedCalls)
	of := func(content []byte) [16]byte {
		write(t, filepath.Join(dir, "x"), string(content))
		sum, _, why, err := digest(root, call, "x", pieces)
		if err != nil || why != nil {
			t.Fatal(why, err)
		}
		return sum
	}
	content := []byte("012345678")
	whole := of(content)
	for i, is := range covered {
		content[i] ^= 1
		if changed := of(content) != whole; changed != is {
			t.Errorf("byte %d: covered: %v, want %v", i, changed, is)
		}
		content[i] ^= 1
	}
	if want := 1 + len(content); len(call.begun) != want || call.begun[0] != "read x" || call.busy {
		t.Errorf("of %d reads of x, these are monitored: %q, and have ended: %v", want, call.begun,
			!call.busy)
	}
}

// recordedCalls records what is monitored.
type recordedCalls struct {
	begun []string
	busy  bool
}

func (c *recordedCalls) Begin(op, dir, name string) {
	c.begun = append(c.begun, op+" "+filepath.Join(dir, name))
	c.busy = true
}

func (c *recordedCalls) End() { c.busy = false }

// TestVersionCoversTheEndsOfFiles: the first and the last byte of a file that is read as a whole,
// and of one of which pieces are read, where names, sizes and times are the same.
func TestVersionCoversTheEndsOfFiles(t *testing.T) {
	dir := t.TempDir()
	then := time.Unix(1_500_000_000, 0)
	for name, size := range map[string]int{"a/small.jpg": 100, "a/large.jpg": 1 << 20} {
		path := filepath.Join(dir, name)
		content := make([]byte, size)
		version := func() [16]byte {
			write(t, path, string(content))
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
			return open(t, dir, Options{Rescan: true, IndexDir: t.TempDir()}).Index().Fingerprint()
		}
		before := version()
		for _, at := range []int{0, size - 1} {
			content[at] = 1
			if version() == before {
				t.Errorf("%s: byte %d of %d does not count", name, at, size)
			}
			content[at] = 0
		}
	}
}
