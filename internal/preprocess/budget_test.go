package preprocess

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform"
)

// pngOf is a PNG whose colours change along both axes.
func pngOf(t *testing.T, side int) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			m.SetNRGBA(x, y, color.NRGBA{byte(x >> 4), byte(y >> 4), byte(x ^ y), 255})
		}
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compiled(t *testing.T, list string) *transform.Program {
	t.Helper()
	p, err := transform.Compile([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const shrink = `[{"name": "Resize", "size": [8, 8]}, {"name": "ToTensor"}]`

// TestBudget: large samples among small ones, on several threads, become what they do without a limit; all of the budget is there
// again at the end.
func TestBudget(t *testing.T) {
	program := compiled(t, shrink)
	files := [][]byte{pngOf(t, 100), pngOf(t, 1500), pngOf(t, 90)} // the second takes 14 MB, and the rest of the budget is 16
	free := New(program, Options{Threads: 1})
	defer free.Close()
	var want [][]byte
	spent := make([]time.Duration, 3)
	for i, src := range files {
		dst := make([]byte, free.Size())
		if err := free.Apply(into(dst), src, 0, i, spent); err != nil {
			t.Fatal(err)
		}
		want = append(want, dst)
	}
	p := New(program, Options{Threads: 4, Memory: 32 << 20})
	defer p.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			spent := make([]time.Duration, 3)
			for range 3 {
				for i, src := range files {
					dst := make([]byte, p.Size())
					if err := p.Apply(into(dst), src, 0, i, spent); err != nil {
						t.Error(err)
					} else if !bytes.Equal(dst, want[i]) {
						t.Errorf("file %d has other pixels", i)
					}
				}
			}
		})
	}
	all.Wait()
	if !p.budget.rest.TryAcquire(p.budget.most - p.budget.allowance) {
		t.Error("a part of the budget is lost")
	}
}

// TestBudgetError: a sample that can never fit is an error with what it needs and what there is, and the budget that it advises is
// enough.
func TestBudgetError(t *testing.T) {
	src := pngOf(t, 2500) // 19 MB of pixels
	for _, threads := range []int{1, 2, 16} {
		p := New(compiled(t, shrink), Options{Threads: threads, Memory: 16 << 20})
		dst, spent := make([]byte, p.Size()), make([]time.Duration, 3)
		err := p.Apply(into(dst), src, 0, 0, spent)
		var e *BudgetError
		if !errors.As(err, &e) || e.Need < 3*2500*2500 || e.Most > 16<<20 || e.Total != 16<<20 ||
			!strings.Contains(err.Error(), "set decode_memory to") {
			t.Fatalf("%d threads: %v", threads, err)
		}
		if err := p.Apply(into(dst), pngOf(t, 50), 0, 1, spent); err != nil {
			t.Errorf("%d threads: the next sample: %v", threads, err)
		}
		p.Close()
		p = New(compiled(t, shrink), Options{Threads: threads, Memory: e.Enough})
		if err := p.Apply(into(dst), src, 0, 0, spent); err != nil {
			t.Errorf("%d threads, with decode_memory = %d: %v", threads, e.Enough, err)
		}
		p.Close()
	}
}

// TestBudgetWaits: a sample waits until what it needs is free, and others that need less than a thread's allowance do not.
func TestBudgetWaits(t *testing.T) {
	p := New(compiled(t, shrink), Options{Threads: 2, Memory: 32 << 20})
	defer p.Close()
	rest := p.budget.most - p.budget.allowance
	if !p.budget.rest.TryAcquire(rest) {
		t.Fatal("the budget is taken")
	}
	large, small := pngOf(t, 1500), pngOf(t, 100)
	done := make(chan error, 1)
	go func() { done <- p.Apply(into(make([]byte, p.Size())), large, 0, 0, make([]time.Duration, 3)) }()
	for range 3 {
		if err := p.Apply(into(make([]byte, p.Size())), small, 0, 1, make([]time.Duration, 3)); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-done:
		t.Errorf("the large sample was done without memory: %v", err)
	default:
	}
	p.budget.rest.Release(rest)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// into has results go to dst.
func into(dst []byte) func(int) ([]byte, error) { return func(int) ([]byte, error) { return dst, nil } }

// TestBudgetRagged: an image of its own size that has to wait for memory asks for the same room again, and comes as without a limit; one
// that is too large as it is in its file, without memory for its pixels.
func TestBudgetRagged(t *testing.T) {
	program := compiled(t, `[{"name": "Ragged", "largest": 2000000}]`)
	p, free := New(program, Options{Threads: 4, Memory: 16 << 20}), New(program, Options{Threads: 1})
	defer p.Close()
	defer free.Close()
	if p.Size() != 0 || p.Expected(100) <= 0 {
		t.Fatalf("%d bytes, %d expected", p.Size(), p.Expected(100))
	}
	for side, times := range map[int]int{50: 1, 800: 2, 3000: 1} {
		src := pngOf(t, side)
		var asked []int
		var got, want []byte
		room := func(size int) ([]byte, error) {
			asked, got = append(asked, size), make([]byte, size)
			return got, nil
		}
		spent := make([]time.Duration, 2)
		if err := p.Apply(room, src, 0, 0, spent); err != nil {
			t.Fatalf("%d x %d: %v", side, side, err)
		}
		if len(asked) != times || asked[0] != asked[len(asked)-1] {
			t.Errorf("%d x %d: room was asked for %v bytes, want %d times the same", side, side, asked, times)
		}
		if err := free.Apply(func(size int) ([]byte, error) { want = make([]byte, size); return want, nil }, src, 0, 0, spent); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) || side == 3000 && !bytes.HasSuffix(got, src) {
			t.Errorf("%d x %d: %d bytes, want %d", side, side, len(got), len(want))
		}
	}
}
