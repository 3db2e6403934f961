package records

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// nodes passes indexes between the nodes of a test.
type nodes struct {
	makes   bool
	offered map[[16]byte]*offered
	names   [][16]byte // that were asked for
	change  func(image []byte) []byte
	fail    error // of Offer and Receive
}

// offered is an offer.
type offered struct {
	objects, steps int
	image          []byte
	failed         error
}

func (o *offered) Step()                 { o.steps++ }
func (o *offered) Ready(x *source.Index) { o.image = bytes.Clone(x.Encoded()) }
func (o *offered) Failed(why error)      { o.failed = why }

func (n *nodes) Makes() bool { return n.makes }

func (n *nodes) Offer(name [16]byte, objects int) (source.Offer, error) {
	if n.fail != nil {
		return nil, n.fail
	}
	o := &offered{objects: objects}
	n.offered[name] = o
	return o, nil
}

func (n *nodes) Receive(_ context.Context, name [16]byte, progress func(done, of int)) (
	io.ReadCloser, int64, error,
) {
	n.names = append(n.names, name)
	progress(0, 0)
	progress(1, 2)
	o := n.offered[name]
	if n.fail != nil {
		return nil, 0, n.fail
	}
	if o == nil {
		return nil, 0, errors.New("node 0 cannot be reached")
	}
	image := n.change(bytes.Clone(o.image))
	return io.NopCloser(bytes.NewReader(image)), int64(len(o.image)), nil
}

// TestAnIndexOfAnotherNode is used if it is what this node would make itself. Otherwise this node
// makes its own, and says so once.
func TestAnIndexOfAnotherNode(t *testing.T) {
	same := func(image []byte) []byte { return image }
	for what, c := range map[string]struct {
		change func([]byte) []byte
		fail   error
		meddle func(t *testing.T, o *opener) // between the two nodes
		want   string                        // what is told; "": it is used
	}{
		"it is used":      {change: same},
		"it is cut off":   {change: func(b []byte) []byte { return b[:len(b)-1] }, want: "truncated"},
		"it ends at once": {change: func([]byte) []byte { return nil }, want: "truncated"},
		"a bit is wrong": {change: func(b []byte) []byte {
			b[len(b)/2] ^= 1
			return b
		}, want: "not a usable dataset index"},
		"it is something else": {change: func(b []byte) []byte {
			return bytes.Repeat([]byte("x"), len(b))
		}, want: "magic number"},
		"node 0 is gone": {change: same, fail: errors.New("it is gone"), want: "it is gone"},
		"a shard was overwritten": {change: same, meddle: func(t *testing.T, o *opener) {
			must(t, os.WriteFile(filepath.Join(o.root, "b.txt"), []byte("4\n"), 0o644))
		}, want: "other versions of the shards"},
		"there is no memory for it": {change: same, meddle: func(_ *testing.T, o *opener) {
			o.memory = func() (int64, error) { return 1400, nil }
		}, want: "bytes of memory"},
	} {
		t.Run(what, func(t *testing.T) {
			o := newOpener(t, map[string]string{"a.txt": "1\n2\n", "b.txt": "3\n"})
			zero := &nodes{makes: true, offered: map[[16]byte]*offered{}, change: c.change, fail: c.fail}
			o.exchange = zero
			reads := 0
			var told, awaited []string
			tell := func(text string) { told = append(told, text) }
			src, err := o.formatAtURL(lines(&o.indexed), &reads, nil, tell)
			must(t, err)
			if c.fail == nil && len(told) > 0 || c.fail != nil && (len(told) != 1 ||
				!strings.Contains(told[0], "the other nodes of the job make the index themselves")) {
				t.Errorf("node 0 told %q", told)
			}
			told = nil
			want := src.Index().Fingerprint()
			must(t, src.Close())
			t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing in common
			if c.meddle != nil {
				c.meddle(t, o)
			}
			one := *zero
			one.makes = false
			o.exchange = &one
			o.await = func(text string) { awaited = append(awaited, text) }
			reads = 0
			src, err = o.formatAtURL(lines(&o.indexed), &reads, nil, tell)
			must(t, err)
			defer src.Close() //nolint:errcheck // it was only read
			if c.want == "" {
				if o.indexed.Load() != 1 || reads != 0 || len(told) > 0 ||
					src.Index().Fingerprint() != want || src.(*Opened).from != source.FromNode {
					t.Errorf("indexed %d times, %d reads, told %q, from %s", o.indexed.Load(), reads, told,
						src.(*Opened).from)
				}
			} else if o.indexed.Load() != 2 || len(told) != 1 || !strings.Contains(told[0], c.want) ||
				!strings.Contains(told[0], "this node makes the index itself") ||
				src.(*Opened).from != source.FromObjects {
				t.Errorf("indexed %d times, told %q, from %s", o.indexed.Load(), told,
					src.(*Opened).from)
			}
			if want := []string{
				"waiting for node 0's index", "waiting for node 0's index: 1 of 2 shards",
			}; !slices.Equal(awaited, want) {
				t.Errorf("awaited %q", awaited)
			}
			// The next start finds it, and asks no other node.
			o.memory = nil
			again, err := o.formatAtURL(lines(&o.indexed), &reads, nil)
			must(t, err)
			if again.(*Opened).from != source.FromKept || len(one.names) != 1 {
				t.Errorf("from %s, asked %d times", again.(*Opened).from, len(one.names))
			}
			must(t, again.Close())
		})
	}
}

// TestAnIndexOfOtherOptions has another name, and is refused under the right one.
func TestAnIndexOfOtherOptions(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n", "b.txt": "2\n"})
	zero := &nodes{
		makes: true, offered: map[[16]byte]*offered{}, change: func(b []byte) []byte { return b },
	}
	o.exchange = zero
	f, reads := lines(&o.indexed), 0
	f.Pattern = "a.txt"
	src, err := o.formatAtURL(f, &reads, nil)
	must(t, err)
	must(t, src.Close())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	one := *zero
	one.makes = false
	o.exchange = &one
	for _, forged := range []bool{false, true} {
		if forged {
			for _, foreign := range zero.offered {
				one.offered = map[[16]byte]*offered{one.names[0]: foreign}
			}
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
		}
		var told []string
		src, err := o.formatAtURL(lines(&o.indexed), &reads, nil,
			func(text string) { told = append(told, text) })
		must(t, err)
		want := "cannot be reached"
		if forged {
			want = "other shards or with other options"
		}
		if len(told) != 1 || !strings.Contains(told[0], want) || src.Index().Len() != 2 {
			t.Errorf("told %q", told)
		}
		must(t, src.Close())
	}
}

// TestANodeThatMakesIndexes tells how far it is, and why there is none.
func TestANodeThatMakesIndexes(t *testing.T) {
	o := newOpener(t, map[string]string{"a.txt": "1\n", "b.txt": "2\n", "c.txt": "3\n"})
	zero := &nodes{makes: true, offered: map[[16]byte]*offered{}}
	o.exchange = zero
	only := func() *offered {
		for _, o := range zero.offered {
			return o
		}
		return nil
	}
	var found []string
	broken := errors.New("it breaks off")
	f, reads := keepingLines(&found), 0
	whole := f.Index
	f.Index = func(ctx context.Context, place objects.Objects, names []string, opts formats.Options,
	) (*source.Index, error) {
		_, err := whole(ctx, place, names[:2], opts)
		return nil, errors.Join(err, broken)
	}
	if _, err := o.formatAtURL(f, &reads, nil); err == nil {
		t.Fatal("the dataset was opened")
	}
	if o := only(); o.objects != 3 || o.steps != 2 || o.image != nil ||
		!strings.Contains(o.failed.Error(), broken.Error()) {
		t.Errorf("%+v", o)
	}
	f.Index = whole
	for round, want := range []int{3, 0} { // the second one finds the index
		src, err := o.formatAtURL(f, &reads, nil)
		must(t, err)
		if o := only(); o.objects != 3 || o.steps != want || o.failed != nil ||
			!bytes.Equal(o.image, src.Index().Encoded()) {
			t.Errorf("round %d: %+v", round, o)
		}
		must(t, src.Close())
	}
	if len(zero.offered) != 1 {
		t.Error("one dataset has several names")
	}
}
