package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pageTime is how long the store takes for a page of a listing, and pageSize how many names it has.
const (
	pageTime = 50 * time.Millisecond
	pageSize = 1000
)

// fake is a store in memory. Its functions, where they are not nil, replace what it would do.
type fake struct {
	Store
	data  []byte
	names []string // sorted

	get   func(ctx context.Context, attempt int64, a *Answer) (*Answer, error)
	gets  atomic.Int64
	head  func() (Version, error)
	list  func(page int64) error
	pages atomic.Int64
}

func (*fake) Path(name string) string { return "fake://" + name }
func (*fake) Close() error            { return nil }

var version = Version{Tag: "v1"}

func (f *fake) now() Version { return Version{Size: int64(len(f.data)), Tag: version.Tag} }

func (f *fake) Head(context.Context, string) (Version, error) {
	if f.head != nil {
		return f.head()
	}
	return f.now(), nil
}

func (f *fake) Get(ctx context.Context, _ string, offset, n int64) (*Answer, error) {
	attempt := f.gets.Add(1)
	a := &Answer{
		Version: f.now(), Offset: offset, Length: n,
		Body: io.NopCloser(bytes.NewReader(f.data[offset:][:n])),
	}
	if f.get != nil {
		return f.get(ctx, attempt, a)
	}
	return a, ctx.Err()
}

func (f *fake) List(ctx context.Context, prefix, after string, each func(string, Version) error,
) error {
	at, _ := slices.BinarySearch(f.names, max(prefix, after+"\x00"))
	for {
		time.Sleep(pageTime)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if page := f.pages.Add(1); f.list != nil {
			if err := f.list(page); err != nil {
				return err
			}
		}
		for i := range pageSize {
			if at+i == len(f.names) || !strings.HasPrefix(f.names[at+i], prefix) {
				return nil
			}
			if err := each(f.names[at+i], version); err != nil {
				return err
			}
		}
		at += pageSize
	}
}

// read reads 10 bytes from byte 5 on of an object of 100.
func read(t *testing.T, f *fake, o Options) ([]byte, *Objects, error) {
	t.Helper()
	f.data = []byte(strings.Repeat("0123456789", 10))
	p := New(f, o)
	listed := p.object("a", f.now())
	parts := [][]byte{make([]byte, 3), make([]byte, 7)}
	_, err := p.Read(t.Context(), &listed, 5, parts)
	return slices.Concat(parts...), p, err
}

func TestAnswersAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		get  func(a *Answer)
		kind error
		text string
	}{
		"other version": {func(a *Answer) { a.Tag = "v2" }, source.ErrChanged, ""},
		"no version":    {func(a *Answer) { a.Tag = "" }, source.ErrChanged, ""},
		"shorter":       {func(a *Answer) { a.Size = 12 }, source.ErrShort, "12 bytes, not 100"},
		"longer":        {func(a *Answer) { a.Size = 101 }, source.ErrLong, "101 bytes, not 100"},
		"empty":         {func(a *Answer) { a.Size = 0 }, source.ErrEmpty, ""},
		"other offset":  {func(a *Answer) { a.Offset = 0 }, source.ErrUnreadable, "from byte 0 on"},
		"other length":  {func(a *Answer) { a.Length = 9 }, source.ErrUnreadable, "sent 9 from"},
		"too many bytes": {
			func(a *Answer) { a.Length, a.Body = -1, body(11) }, source.ErrUnreadable, "more than",
		},
		"cut": {func(a *Answer) { a.Body = body(9) }, source.ErrUnavailable, "before all bytes"},
	} {
		f := &fake{get: func(_ context.Context, _ int64, a *Answer) (*Answer, error) {
			c.get(a)
			return a, nil
		}}
		_, p, err := read(t, f, Options{Attempts: 2, Pause: 1})
		var e *objects.Error
		if !errors.As(err, &e) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) ||
			e.Path != "fake://a" {
			t.Errorf("%s: %v", name, err)
		}
		want := int64(1)
		if errors.Is(c.kind, source.ErrUnavailable) {
			want = 2
		}
		if got := p.Requests().Gets; got != want {
			t.Errorf("%s: %d requests", name, got)
		}
	}
}

func body(n int) io.ReadCloser { return io.NopCloser(strings.NewReader(strings.Repeat("x", n))) }

func TestFailuresForTheMomentAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{get: func(_ context.Context, attempt int64, a *Answer) (*Answer, error) {
			if attempt < 4 {
				return nil, &Error{Kind: source.ErrUnavailable, Err: errors.New("slow down")}
			}
			return a, nil
		}}
		begin := time.Now()
		got, p, err := read(t, f, Options{})
		if err != nil || string(got) != "5678901234" {
			t.Fatalf("%q: %v", got, err)
		}
		if took, want := time.Since(begin), 7*DefaultPause; took != want {
			t.Errorf("it took %v, not %v", took, want)
		}
		if c := p.Requests(); c.Gets != 4 || c.Again != 3 || c.Bytes != 10 {
			t.Errorf("%+v", c)
		}
	})
}

func TestASilentServerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{get: func(_ context.Context, _ int64, a *Answer) (*Answer, error) {
			r, w := io.Pipe()
			go func() { _, _ = w.Write([]byte("5678")) }()
			a.Body = struct {
				io.Reader
				io.Closer
			}{r, closer(func() { _ = r.Close() })}
			go func() { time.Sleep(DefaultQuiet + time.Second); _ = w.Close() }()
			return a, nil
		}}
		_, _, err := read(t, f, Options{Attempts: 1})
		if !errors.Is(err, source.ErrUnavailable) ||
			!strings.Contains(err.Error(), "nothing was transferred for 30s") {
			t.Error(err)
		}
	})
}

type closer func()

func (c closer) Close() error { c(); return nil }

// TestSlowRequestsAreMadeTwice measures what hedging brings, in virtual time: 20 ms a request, of
// which 1 % take 500 ms longer.
func TestSlowRequestsAreMadeTwice(t *testing.T) {
	for _, c := range []struct {
		slow   float64
		off    bool
		most   time.Duration // of the 99.9th percentile
		hedges float64       // at most, of all requests
	}{
		{0.01, false, 90 * time.Millisecond, 0.02},
		{0.01, true, time.Hour, 0},
		{0.05, false, time.Hour, 0.05},
		{0, false, 21 * time.Millisecond, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			draw := rand.New(rand.NewPCG(1, 2))
			f := new(fake)
			f.get = func(ctx context.Context, _ int64, a *Answer) (*Answer, error) {
				mu.Lock()
				late := draw.Float64() < c.slow
				mu.Unlock()
				takes := 20 * time.Millisecond
				if late {
					takes += 500 * time.Millisecond
				}
				select {
				case <-time.After(takes):
					return a, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			f.data = make([]byte, 4096)
			p := New(f, Options{NoHedges: c.off})
			o := p.object("a", f.now())
			const readers, each = 32, 400
			took := make([]time.Duration, readers*each)
			var reading sync.WaitGroup
			for r := range readers {
				reading.Go(func() {
					for i := range each {
						begin := time.Now()
						if _, err := p.Read(t.Context(), &o, 0, [][]byte{make([]byte, 4096)}); err != nil {
							t.Error(err)
						}
						took[r*each+i] = time.Since(begin)
					}
				})
			}
			reading.Wait()
			const first = 20 // of each reader: what is slow is not known yet
			for r := range readers {
				clear(took[r*each:][:first])
			}
			slices.Sort(took)
			high := took[len(took)-(len(took)-readers*first)/1000]
			n := p.Requests()
			t.Logf("%.0f %% slow, off %v: median %v, 99.9 %% %v, %d hedges of %d requests, %d first",
				100*c.slow, c.off, took[len(took)/2], high, n.Hedges, n.Gets, n.Won)
			if high > c.most || float64(n.Hedges) > c.hedges*float64(len(took)) {
				t.Errorf("99.9 %%: %v, %d hedges", high, n.Hedges)
			}
			if (n.Hedges > 0) != (c.hedges > 0) {
				t.Errorf("%d hedges", n.Hedges)
			}
		})
	}
}

func TestListInParallel(t *testing.T) {
	sets := map[string]func(i int) string{
		"numbers": func(i int) string { return fmt.Sprintf("train/img_%07d.jpg", i) },
		"classes": func(i int) string { return fmt.Sprintf("train/n%08d/%d.jpg", i%97, i) },
		"hashes": func(i int) string {
			return fmt.Sprintf("train/%x", rand.New(rand.NewPCG(uint64(i), 0)).Uint64())
		},
		"no ASCII": func(i int) string {
			return fmt.Sprintf("train/\u00e9\u00e8%c%d", rune(0x4e00+i%50), i)
		},
		"control": func(i int) string { return fmt.Sprintf("train/\x01%d\x7f", i) },
	}
	for set, name := range sets {
		for _, n := range []int{0, 1, pageSize - 1, pageSize, pageSize + 1, 100_000} {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{names: []string{"a", "test/b", "train-", "zz"}}
				var want []string
				for i := range n {
					want = append(want, name(i))
				}
				slices.Sort(want)
				f.names = append(f.names, want...)
				slices.Sort(f.names)
				f.list = func(page int64) error {
					if page%50 == 7 {
						return &Error{Kind: source.ErrUnavailable, Err: errors.New("slow down")}
					}
					return nil
				}
				p := New(f, Options{})
				begin := time.Now()
				var got []string
				if err := p.List(t.Context(), "train/", func(o source.Object) error {
					got = append(got, o.Name)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s: %d names, not %d", set, len(got), len(want))
				}
				pages := int64(n/pageSize + 1)
				took := time.Since(begin)
				t.Logf("%s, %d names: %v, %d pages", set, n, took, f.pages.Load())
				if f.pages.Load() > 3*pages+60 {
					t.Errorf("%s, %d names: %d pages", set, n, f.pages.Load())
				}
				if most := time.Duration(pages) * pageTime / 2; pages > 50 && took > most {
					t.Errorf("%s, %d names: it took %v", set, n, took)
				}
			})
		}
	}
}

func TestMiddle(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	letters := []rune(" !09AZaz~\u00e9\u4e00\x01")
	text := func() string {
		var b strings.Builder
		for range draw.IntN(6) {
			b.WriteRune(letters[draw.IntN(len(letters))])
		}
		return b.String()
	}
	found := 0
	for range 100_000 {
		prefix := text()
		after, end := prefix+text(), prefix+text()
		if draw.IntN(4) == 0 {
			end = ""
		} else if end <= after {
			continue
		}
		mid := middle(after, end, prefix)
		if mid == "" {
			continue
		}
		found++
		if mid <= after || end != "" && mid >= end || !strings.HasPrefix(mid, prefix) {
			t.Fatalf("%q between %q and %q below %q", mid, after, end, prefix)
		}
	}
	if found < 50_000 {
		t.Errorf("only %d", found)
	}
}

func TestCallersErrorsEndAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fake)
		for i := range 5000 {
			f.names = append(f.names, fmt.Sprintf("%05d", i))
		}
		p := New(f, Options{})
		own := errors.New("enough")
		if err := p.List(t.Context(), "", func(o source.Object) error {
			if o.Name == "01234" {
				return own
			}
			return nil
		}); !errors.Is(err, own) {
			t.Error(err)
		}
		f.list = func(page int64) error {
			return &Error{Kind: source.ErrUnreadable, Err: errors.New("no permission")}
		}
		if err := p.List(t.Context(), "x", func(source.Object) error {
			return nil
		}); !errors.Is(err, source.ErrUnreadable) || !strings.Contains(err.Error(), "fake://x") {
			t.Error(err)
		}
	})
}

func TestManyAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{head: func() (Version, error) { return version, nil }}
		var names []string
		for i := range 3000 {
			name := fmt.Sprintf("train/%05d", i)
			if names = append(names, name); i != 1234 {
				f.names = append(f.names, name)
			}
		}
		p := New(f, Options{})
		var mu sync.Mutex
		seen := map[int]int{}
		if err := p.Stats(t.Context(), names, func(i int, o source.Object, err error) {
			mu.Lock()
			defer mu.Unlock()
			if seen[i]++; err != nil || o.Name != names[i] {
				t.Error(i, o, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if c := p.Requests(); len(seen) != len(names) || c.Heads != 1 || !p.Versioned() {
			t.Errorf("%d of %d, %+v", len(seen), len(names), c)
		}
	})
}
