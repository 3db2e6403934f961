package runner

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// TestBudget: large samples among small ones, on several threads, become what they do without a
// limit; all of the budget is there again at the end.
func TestBudget(t *testing.T) {
	program := compiled(t, shrink)
	// the second takes 14 MB, and the rest of the budget is 16
	files := [][]byte{pngOf(t, 100), pngOf(t, 1500), pngOf(t, 90)}
	free := newField(program, Options{Threads: 1})
	defer free.Close()
	var want [][]byte
	spent := make([]time.Duration, 3)
	for i, src := range files {
		dst := make([]byte, free.Size(0))
		if err := free.Apply(into(dst), [][]byte{src}, 0, 0, i, 0, false, spent); err != nil {
			t.Fatal(err)
		}
		want = append(want, dst)
	}
	p := newField(program, Options{Threads: 4, Memory: 32 << 20})
	defer p.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			spent := make([]time.Duration, 3)
			for range 3 {
				for i, src := range files {
					dst := make([]byte, p.Size(0))
					if err := p.Apply(into(dst), [][]byte{src}, 0, 0, i, 0, false, spent); err != nil {
						t.Error(err)
					} else if !bytes.Equal(dst, want[i]) {
						t.Errorf("file %d has other pixels", i)
					}
				}
			}
		})
	}
	all.Wait()
	wholeBudget(t, p)
}

// wholeBudget fails where a part of what threads share is not there.
func wholeBudget(t *testing.T, p *Field) {
	t.Helper()
	rest := p.budget.most - p.budget.allowance
	if !p.budget.rest.TryAcquire(rest) {
		t.Fatal("a part of the budget is lost")
	}
	p.budget.rest.Release(rest)
}

// TestBudgetOfBadSamples: what a large sample took that cannot be transformed is there for others.
func TestBudgetOfBadSamples(t *testing.T) {
	p := newField(compiled(t, shrink), Options{Threads: 2, Memory: 12 << 20})
	defer p.Close()
	dst, spent := make([]byte, p.Size(0)), make([]time.Duration, 3)
	sound := pngOf(t, 900)
	bad := bytes.Clone(sound)
	bad[len(bad)/2] ^= 0x40
	full := errors.New("full")
	for range 3 {
		if err := p.Apply(into(dst), [][]byte{bad}, 0, 0, 0, 0, false, spent); err == nil {
			t.Fatal("a damaged sample is taken")
		}
		wholeBudget(t, p)
		asked := 0
		err := p.Apply(func(int, int) ([]byte, error) {
			if asked++; asked == 1 {
				return dst, nil
			}
			return nil, full // once it has the memory
		}, [][]byte{sound}, 0, 0, 0, 0, false, spent)
		if !errors.Is(err, full) {
			t.Fatalf("%v, want %v", err, full)
		}
		wholeBudget(t, p)
	}
}

// TestBudgetIsShared: what all threads have for good and what they share is no more than there is,
// however many they are.
func TestBudgetIsShared(t *testing.T) {
	for _, o := range []Options{
		{Threads: 1, Most: 8},
		{Threads: 3, Most: 8},
		{Most: 4},
		{Most: 16},
		{Most: 1},
	} {
		o.Memory = 32 << 20
		threads := int64(o.Threads)
		if threads == 0 {
			threads = int64(o.Most)
		}
		p := newField(compiled(t, shrink), o)
		b := p.budget
		if all := threads*b.allowance + (b.most - b.allowance); all > o.Memory || all < o.Memory/2 {
			t.Errorf("%+v: %d threads may take %d bytes", o, threads, all)
		}
		p.Close()
	}
}

// TestBudgetIsReturnedAfterALargeSample: a thread that used much memory for one sample has to
// acquire it again for the next.
func TestBudgetIsReturnedAfterALargeSample(t *testing.T) {
	p := newField(compiled(t, shrink), Options{Threads: 1, Memory: 8 << 20})
	defer p.Close()
	large := pngOf(t, 900)
	dst := make([]byte, p.Size(0))
	spent := make([]time.Duration, 3)
	for range 2 {
		if err := p.Apply(into(dst), [][]byte{large}, 0, 0, 0, 0, false, spent); err != nil {
			t.Fatal(err)
		}
		p.gate.mu.Lock()
		w := p.gate.take()
		p.gate.mu.Unlock()
		var short *transform.MemoryError
		err := w.fields[0].ApplyTo(into(dst), [][]byte{large}, transform.Key{})
		if !errors.As(err, &short) {
			t.Errorf("without asking: %v", err)
		}
		p.gate.mu.Lock()
		p.gate.put(w)
		p.gate.mu.Unlock()
	}
}

// TestWaitingThreadHoldsNoMemory: a thread gives up what it keeps before it waits, so that none
// waits for it.
func TestWaitingThreadHoldsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newField(compiled(t, shrink), Options{Threads: 1, Memory: 8 << 20})
		defer p.Close()
		spent := make([]time.Duration, 3)
		dst := make([]byte, p.Size(0))
		if err := p.Apply(into(dst), [][]byte{pngOf(t, 300)}, 0, 0, 0, 0, false, spent); err != nil {
			t.Fatal(err)
		}
		w := p.gate.spare[0]
		if w.memory() == 0 {
			t.Fatal("the worker keeps nothing from one sample to the next")
		}
		rest := p.budget.most - p.budget.allowance
		if !p.budget.rest.TryAcquire(rest) {
			t.Fatal("the budget is taken")
		}
		done := make(chan error, 1)
		large := pngOf(t, 900)
		go func() {
			done <- p.Apply(into(make([]byte, p.Size(0))), [][]byte{large}, 0, 0, 0, 0, false, spent)
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the large sample was done without memory: %v", err)
		default:
		}
		if kept := w.memory(); kept != 0 {
			t.Errorf("a worker that waits keeps %d bytes", kept)
		}
		p.budget.rest.Release(rest)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestBudgetError: a sample that can never fit is an error with what it needs and what there is,
// and the budget that it advises is enough.
func TestBudgetError(t *testing.T) {
	src := pngOf(t, 2500) // 19 MB of pixels
	for _, threads := range []int{1, 2, 16} {
		p := newField(compiled(t, shrink), Options{Threads: threads, Memory: 16 << 20})
		dst, spent := make([]byte, p.Size(0)), make([]time.Duration, 3)
		err := p.Apply(into(dst), [][]byte{src}, 0, 0, 0, 0, false, spent)
		var e *BudgetError
		if !errors.As(err, &e) || e.Need < 3*2500*2500 || e.Most > 16<<20 || e.Total != 16<<20 ||
			!strings.Contains(err.Error(), "set decode_memory to") {
			t.Fatalf("%d threads: %v", threads, err)
		}
		if err := p.Apply(into(dst), [][]byte{pngOf(t, 50)}, 0, 0, 1, 0, false, spent); err != nil {
			t.Errorf("%d threads: the next sample: %v", threads, err)
		}
		p.Close()
		p = newField(compiled(t, shrink), Options{Threads: threads, Memory: e.Enough})
		if err := p.Apply(into(dst), [][]byte{src}, 0, 0, 0, 0, false, spent); err != nil {
			t.Errorf("%d threads, with decode_memory = %d: %v", threads, e.Enough, err)
		}
		p.Close()
	}
}

// TestBudgetWaits: a sample waits until what it needs is free, and others that need less than a
// thread's allowance do not.
func TestBudgetWaits(t *testing.T) {
	p := newField(compiled(t, shrink), Options{Threads: 2, Memory: 32 << 20})
	defer p.Close()
	rest := p.budget.most - p.budget.allowance
	if !p.budget.rest.TryAcquire(rest) {
		t.Fatal("the budget is taken")
	}
	large, small := pngOf(t, 1500), pngOf(t, 100)
	done := make(chan error, 1)
	go func() {
		done <- p.Apply(into(make([]byte, p.Size(0))), [][]byte{large}, 0, 0, 0, 0, false,
			make([]time.Duration, 3))
	}()
	for range 3 {
		if err := p.Apply(into(make([]byte, p.Size(0))), [][]byte{small}, 0, 0, 1, 0, false,
			make([]time.Duration, 3)); err != nil {
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
func into(dst []byte) func(int, int) ([]byte, error) {
	return func(int, int) ([]byte, error) { return dst, nil }
}

// TestBudgetRagged: an image of its own size that has to wait for memory asks for the same alloc
// again, and comes as without a limit; one that is too large as it is in its file, without memory
// for its pixels.
func TestBudgetRagged(t *testing.T) {
	program := compiled(t, `[{"name": "Ragged", "largest": 2000000}]`)
	p, free := newField(program, Options{Threads: 4, Memory: 16 << 20}),
		newField(program, Options{Threads: 1})
	defer p.Close()
	defer free.Close()
	if p.Size(0) != 0 || p.Expected(100) <= 0 {
		t.Fatalf("%d bytes, %d expected", p.Size(0), p.Expected(100))
	}
	for side, times := range map[int]int{50: 1, 800: 2, 3000: 1} {
		src := pngOf(t, side)
		var asked []int
		var got, want []byte
		alloc := func(_, size int) ([]byte, error) {
			asked, got = append(asked, size), make([]byte, size)
			return got, nil
		}
		spent := make([]time.Duration, 2)
		if err := p.Apply(alloc, [][]byte{src}, 0, 0, 0, 0, false, spent); err != nil {
			t.Fatalf("%d x %d: %v", side, side, err)
		}
		if len(asked) != times || asked[0] != asked[len(asked)-1] {
			t.Errorf("%d x %d: alloc was asked for %v bytes, want %d times the same", side, side,
				asked, times)
		}
		if err := free.Apply(func(_, size int) ([]byte, error) {
			want = make([]byte, size)
			return want, nil
		}, [][]byte{src}, 0, 0, 0, 0, false, spent); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) || side == 3000 && !bytes.HasSuffix(got, src) {
			t.Errorf("%d x %d: %d bytes, want %d", side, side, len(got), len(want))
		}
	}
}
