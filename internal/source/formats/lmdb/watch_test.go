package lmdb

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects/directory"
	"github.com/hdmlp/hdmlp/internal/source/objects/objectstest"
	"github.com/hdmlp/hdmlp/internal/source/records"
)

func TestConformance(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objectstest.Fixture {
		root := t.TempDir()
		at := func(name string) string { return filepath.Join(root, name) }
		d := must[*directory.Directory](t)(directory.Open(root, directory.Options{Open: 8}))
		return objectstest.Fixture{
			Objects: Objects(d),
			Put: func(name string, data []byte) {
				must[any](t)(nil, os.MkdirAll(filepath.Dir(at(name)), 0o755))
				must[any](t)(nil, os.WriteFile(at(name), data, 0o644))
			},
			Remove: func(name string) { must[any](t)(nil, os.Remove(at(name))) },
		}
	})
}

// commit has the effect of a transaction on a file: it replaces all bytes x by y, in place, if the
// index is at least two transactions old.
func commit(data []byte) {
	a, b := u64(data[144:]), u64(data[512+144:])
	older := 0
	if b < a {
		older = 512
	}
	binary.LittleEndian.PutUint64(data[older+144:], max(a, b)+1)
	copy(data[1024:], bytes.ReplaceAll(data[1024:], []byte("x"), []byte("y")))
}

// TestNoReadReturnsBytesOfAnotherTransaction, whenever that is committed.
func TestNoReadReturnsBytesOfAnotherTransaction(t *testing.T) {
	fresh := built(512, record{key: "k", value: bytes.Repeat([]byte("x"), 700)})
	o := one(t, bytes.Clone(fresh))
	x := must[*source.Index](t)(Index(t.Context(), o, []string{"data.mdb"}, values()))
	s := records.New(Objects(o), x)
	value := make([]byte, 700)
	for read := range 4 { // 0: before all of them, 1: between the bytes and the check
		o.files["data.mdb"] = bytes.Clone(fresh)
		o.before = func() {
			if read == 0 {
				commit(o.files["data.mdb"])
			}
			read--
		}
		_, err := s.Read(t.Context(), 0, value)
		if late := read >= 0; late != (err == nil) || !late && !errors.Is(err, source.ErrChanged) {
			t.Errorf("%d reads are left: %v", read+1, err)
		}
		if err == nil && !bytes.Equal(value, bytes.Repeat([]byte("x"), 700)) {
			t.Error("other bytes")
		}
	}
	o.before = nil
	o.files["data.mdb"] = bytes.Clone(fresh)
	s.Doubt()
	must[source.Stamp](t)(s.Stat(t.Context(), 0))
	commit(o.files["data.mdb"])
	s.Doubt()
	if _, err := s.Stat(t.Context(), 0); !errors.Is(err, source.ErrChanged) {
		t.Errorf("a copy is confirmed after a commit: %v", err)
	}
	want := "the last transaction was number 7 then, and is 8 now"
	if _, err := s.Read(t.Context(), 0, value); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

// TestAnIndexIsOfOneTransaction: a commit while it is made is an error that says so, also if pages
// look damaged because of it.
func TestAnIndexIsOfOneTransaction(t *testing.T) {
	fresh := built(512, numbered(200, strings.Repeat("x", 100))...)
	o := one(t, fresh)
	must[*source.Index](t)(Index(t.Context(), o, []string{"data.mdb"}, values()))
	// The first two reads are of the meta pages, and so are the last two: a commit between these
	// comes after all others.
	for at := int64(1); at < o.reads.Load()-1; at++ {
		o := one(t, bytes.Clone(fresh))
		o.before = func() {
			if o.reads.Load() == at {
				commit(o.files["data.mdb"])
				clear(o.files["data.mdb"][4096:8192])
			}
		}
		_, err := Index(t.Context(), o, []string{"data.mdb"}, values())
		if !errors.Is(err, source.ErrChanged) {
			t.Errorf("a commit before read %d: %v", at, err)
		}
	}
}

// writer is a program that replaces all values of an environment, once per line of its input.
const writer = `
import sys, lmdb
env = lmdb.open(sys.argv[1], map_size=1 << 26, writemap=True, sync=False)
count = int(sys.argv[2])
for n, line in enumerate([0] * 2 + [1] * 200):
    if line == 0:
        sys.stdin.readline()
    with env.begin(write=True) as txn:
        for i in range(count):
            txn.put(b"%06d" % i, b"%d" % n * 3000)
    if line == 0 or n == 201:
        print(n, flush=True)
sys.stdin.readline()
`

// TestALiveWriterIsNoticed reads while py-lmdb replaces the values through a map, which changes
// neither the file's size nor, until it is written back, its times: a read returns the bytes of the
// index's transaction, or fails.
func TestALiveWriterIsNoticed(t *testing.T) {
	python := pyLMDB(t)
	const count = 50
	root := t.TempDir()
	cmd := exec.Command(python, "-c", writer, root, fmt.Sprint(count))
	cmd.Stderr = os.Stderr
	in := must[io.WriteCloser](t)(cmd.StdinPipe())
	out := bufio.NewScanner(must[io.ReadCloser](t)(cmd.StdoutPipe()))
	must[any](t)(nil, cmd.Start())
	next := func() {
		must[int](t)(io.WriteString(in, "\n"))
		if !out.Scan() {
			t.Fatal("the writer has ended")
		}
	}
	next()
	d := must[*directory.Directory](t)(directory.Open(root, directory.Options{}))
	o := Objects(d)
	x := must[*source.Index](t)(Index(t.Context(), o, []string{"data.mdb"}, values()))
	s := records.New(o, x)
	want := bytes.Repeat([]byte("0"), 3000)
	value := make([]byte, 3000)
	for id := range count {
		must[source.Stamp](t)(s.Read(t.Context(), id, value))
		if !bytes.Equal(value, want) {
			t.Fatalf("record %d: other bytes", id)
		}
	}
	must[int](t)(io.WriteString(in, "\n")) // it goes on by itself
	right := 0
	var last error
	for n := 0; n < 20_000; n++ {
		_, err := s.Read(t.Context(), n%count, value)
		var e *source.SampleError
		switch {
		case err == nil && !bytes.Equal(value, want):
			t.Fatalf("after %d reads: other bytes without an error", n)
		case err == nil:
			right++
		case !errors.As(err, &e):
			t.Fatal(err)
		default:
			last = err
		}
	}
	for out.Scan() {
		if out.Text() == "201" {
			break
		}
	}
	if _, err := s.Read(t.Context(), 0, value); err == nil {
		t.Error("no error after 200 transactions")
	}
	t.Logf("%d reads before the first commit; then: %v", right, last)
	must[any](t)(nil, in.Close())
	must[any](t)(nil, cmd.Wait())
	must[any](t)(nil, s.Close())
}
