// Package objectstest checks that a place of objects fulfils the contract of objects.Objects. The
// tests of each implementation call Run once.
package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// Fixture is an empty place that a factory has made. Its functions are called by the goroutine of
// the test.
type Fixture struct {
	Objects objects.Objects // closed by the suite
	// Put makes or replaces an object.
	Put func(name string, data []byte)
	// Remove removes an object.
	Remove func(name string)
	// Deny has an object that this process may not read; nil: not checked.
	Deny func(name string)
	// Unlisted is set if the place cannot be listed.
	Unlisted bool
	// UTF8 is set if all names are valid UTF-8.
	UTF8 bool
}

// Factory makes an empty place.
type Factory func(t *testing.T) Fixture

// Run checks the places that factory makes.
func Run(t *testing.T, factory Factory) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"Bytes": testBytes, "List": testList, "Changes": testChanges, "Missing": testMissing,
		"Probes": testProbes, "Parallel": testParallel, "Cancelled": testCancelled,
		"Closed": testClosed, "Ahead": testAhead,
	} {
		t.Run(name, func(t *testing.T) {
			p := factory(t)
			t.Cleanup(func() {
				if err := p.Objects.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, p)
		})
	}
}

// random returns the same n bytes each time.
func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(data) // it never fails
	return data
}

func stat(t *testing.T, p Fixture, name string) source.Object {
	t.Helper()
	o, err := p.Objects.Stat(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// testAhead: what is read ahead is read as it is otherwise, and what cannot be is no error.
func testAhead(t *testing.T, p Fixture) {
	ahead, ok := p.Objects.(objects.Ahead)
	if !ok {
		t.Skip("the place does not read ahead")
	}
	data := random(100_000)
	p.Put("a", data)
	o := stat(t, p, "a")
	ahead.Ahead(&o, 5000, 20_000)
	ahead.Ahead(&o, o.Size-1, 1<<20)
	ahead.Ahead(&source.Object{Name: "none", Size: 10}, 0, 10)
	part := make([]byte, 20_000)
	if _, err := p.Objects.Read(t.Context(), &o, 5000, [][]byte{part}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(part, data[5000:25_000]) {
		t.Error("other bytes")
	}
}

// testBytes reads ranges around the boundaries of pages, in one part and in several.
func testBytes(t *testing.T, p Fixture) {
	data := random(300_000)
	p.Put("a/object", data)
	o := stat(t, p, "a/object")
	if o.Name != "a/object" || o.Size != int64(len(data)) {
		t.Fatalf("%+v", o)
	}
	for _, at := range []int{0, 1, 511, 4095, 4096, 65536, len(data) - 1, len(data)} {
		for _, lengths := range [][]int{
			{},
			{0},
			{1},
			{4096},
			{65537},
			{1, 1},
			{0, 5, 0, 4096},
			{3, 70_000, 1},
			slices.Repeat([]int{3}, 2500),
		} {
			total := 0
			for _, n := range lengths {
				total += n
			}
			if at+total > len(data) {
				continue
			}
			parts := make([][]byte, len(lengths))
			for i, n := range lengths {
				parts[i] = make([]byte, n)
			}
			stamp, err := p.Objects.Read(t.Context(), &o, int64(at), parts)
			if err != nil || stamp != o.Stamp {
				t.Fatalf("%v at %d: stamp %x, not %x: %v", lengths, at, stamp, o.Stamp, err)
			}
			for i, part := range parts {
				if len(part) != lengths[i] {
					t.Fatalf("part %d has changed its length", i)
				}
			}
			if got := bytes.Join(parts, nil); !bytes.Equal(got, data[at:at+total]) {
				t.Fatalf("%v at %d: other bytes", lengths, at)
			}
		}
	}
	_, err := p.Objects.Read(t.Context(), &o, int64(len(data)-1), [][]byte{make([]byte, 2)})
	failed(t, "beyond the end", err, source.ErrShort)
}

// testProbes probes and drops ranges; an object stays readable.
func testProbes(t *testing.T, p Fixture) {
	data := random(70_000)
	p.Put("object", data)
	p.Put("gone", data)
	o, gone := stat(t, p, "object"), stat(t, p, "gone")
	p.Remove("gone")
	for _, at := range []int64{0, 1, 4096, int64(len(data)) - 1} {
		if err := p.Objects.Probe(t.Context(), &o, at); err != nil {
			t.Errorf("probe at %d: %v", at, err)
		}
		for _, n := range []int64{0, 1, int64(len(data)) - at} {
			if _, err := p.Objects.Drop(t.Context(), &o, at, n); err != nil {
				t.Errorf("drop %d bytes at %d: %v", n, at, err)
			}
		}
	}
	failed(t, "beyond the end", p.Objects.Probe(t.Context(), &o, int64(len(data))), source.ErrShort)
	failed(t, "missing", p.Objects.Probe(t.Context(), &gone, 0), source.ErrMissing)
	got := make([]byte, len(data))
	if _, err := p.Objects.Read(t.Context(), &o, 0, [][]byte{got}); err != nil ||
		!bytes.Equal(got, data) {
		t.Errorf("read after that: %v", err)
	}
}

func testList(t *testing.T, p Fixture) {
	if p.Unlisted {
		err := p.Objects.List(t.Context(), "", func(source.Object) error { return nil })
		failed(t, "list", err, source.ErrUnreadable)
		return
	}
	names := []string{
		"b", "a/2", "a/10", "a/b/c/d", "a-b", "a/b-", "train/\xfc.jpg", "train-1", "z/.hidden",
	}
	if p.UTF8 {
		names[6] = "train/\u00fc.jpg"
	}
	for i, name := range names {
		p.Put(name, random(i))
	}
	slices.Sort(names)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "tr", "none", "none/x", "z/."} {
		var want, got []string
		for _, name := range names {
			if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
				want = append(want, name)
			}
		}
		if err := p.Objects.List(t.Context(), prefix, func(o source.Object) error {
			got = append(got, o.Name)
			if now := stat(t, p, o.Name); now != o {
				t.Errorf("listed %+v, and it is %+v", o, now)
			}
			return nil
		}); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", prefix, diff)
		}
	}
	enough := errors.New("enough")
	calls := 0
	if err := p.Objects.List(t.Context(), "", func(source.Object) error {
		calls++
		return enough
	}); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%d calls: %v", calls, err)
	}
}

// failed checks that err is an *objects.Error of this kind.
func failed(t *testing.T, what string, err, kind error) {
	t.Helper()
	var e *objects.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) {
		t.Errorf("%s: %v, not %v", what, err, kind)
	}
}

// testChanges replaces an object between its listing and a read: it is found out, as often as it is
// read, and what is there now can be read as what it is.
func testChanges(t *testing.T, p Fixture) {
	data := random(5000)
	for _, c := range []struct {
		name string
		now  []byte
		kind error
	}{
		{"shorter", data[:4999], source.ErrShort},
		{"longer", append(slices.Clone(data), 1), source.ErrLong},
		{"empty", nil, source.ErrEmpty},
		{"other", random(5000)[1:], source.ErrShort},
		{"rewritten", append(random(4999), 7), source.ErrChanged},
	} {
		p.Put(c.name, data)
		listed := stat(t, p, c.name)
		read := func(o *source.Object, n int) ([]byte, error) {
			part := make([]byte, n)
			_, err := p.Objects.Read(t.Context(), o, 0, [][]byte{part})
			return part, err
		}
		if got, err := read(&listed, 5000); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: before: %v", c.name, err)
		}
		p.Put(c.name, c.now)
		for range 2 {
			_, err := read(&listed, 10)
			failed(t, c.name, err, c.kind)
		}
		now := stat(t, p, c.name)
		if got, err := read(&now, len(c.now)); err != nil || !bytes.Equal(got, c.now) {
			t.Errorf("%s: afterwards: %v", c.name, err)
		}
	}
}

func testMissing(t *testing.T, p Fixture) {
	p.Put("a", random(10))
	o := stat(t, p, "a")
	p.Remove("a")
	_, err := p.Objects.Stat(t.Context(), "a")
	failed(t, "stat", err, source.ErrMissing)
	_, err = p.Objects.Read(t.Context(), &o, 0, [][]byte{make([]byte, 1)})
	failed(t, "read", err, source.ErrMissing)
	p.Put("dir/b", random(3))
	_, err = p.Objects.Stat(t.Context(), "dir/b/c")
	failed(t, "below an object", err, source.ErrMissing)
	if p.Deny != nil {
		p.Deny("dir/b")
		o := source.Object{Name: "dir/b", Size: 3}
		_, err := p.Objects.Read(t.Context(), &o, 0, [][]byte{make([]byte, 1)})
		failed(t, "denied", err, source.ErrUnreadable)
	}
}

// testParallel reads more objects at once than stay open.
func testParallel(t *testing.T, p Fixture) {
	const (
		count   = 40
		readers = 8
		rounds  = 60
	)
	var all [count]source.Object
	for i := range count {
		name := fmt.Sprintf("%02d", i)
		p.Put(name, random(1000+i))
		all[i] = stat(t, p, name)
	}
	var reading sync.WaitGroup
	for r := range readers {
		reading.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(r), 0))
			for range rounds {
				o := &all[draw.IntN(count)]
				part := make([]byte, o.Size)
				if _, err := p.Objects.Read(t.Context(), o, 0, [][]byte{part}); err != nil {
					t.Error(err)
				} else if want := random(int(o.Size)); !bytes.Equal(part, want) {
					t.Errorf("%s: other bytes", o.Name)
				}
			}
		})
	}
	reading.Wait()
}

func testCancelled(t *testing.T, p Fixture) {
	p.Put("a", random(10))
	o := stat(t, p, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Objects.Read(ctx, &o, 0, [][]byte{make([]byte, 1)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if _, err := p.Objects.Stat(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("stat: %v", err)
	}
	if err := p.Objects.List(ctx, "", func(source.Object) error {
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
}

func testClosed(t *testing.T, p Fixture) {
	p.Put("a", random(10))
	o := stat(t, p, "a")
	for range 2 {
		if err := p.Objects.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.Objects.Read(t.Context(), &o, 0, [][]byte{make([]byte, 1)})
	failed(t, "read", err, source.ErrUnreadable)
	_, err = p.Objects.Stat(t.Context(), "a")
	failed(t, "stat", err, source.ErrUnreadable)
}
