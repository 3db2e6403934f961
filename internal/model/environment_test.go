package model

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// thesis is the sample configuration of thesis listing 4.1; its SSD has the RAM's threads.
func thesis() *Environment {
	ram := NewCurve(map[int]float64{1: 16550, 2: 21164, 3: 21186, 4: 21415})
	ssd := NewCurve(map[int]float64{1: 60, 2: 86})
	return &Environment{
		Compute: 100, Preprocess: 200, PeerBandwidth: 10000, SourceBandwidth: 2000,
		SourceThroughput: NewCurve(map[int]float64{
			1:   66,
			2:   86,
			4:   146,
			8:   326,
			16:  324,
			32:  324,
			64:  324,
			128: 324,
		}),
		Classes: []Class{
			{Capacity: 1024, Threads: 2, Read: ram, Write: ram},
			{Capacity: 50 * 1024, Threads: 2, Read: ram, Write: ram},
			{Capacity: 100 * 1024, Threads: 2, Read: ssd, Write: ssd},
		},
	}
}

func TestCurve(t *testing.T) {
	c := thesis().SourceThroughput
	for _, p := range []struct{ x, want float64 }{
		{0.5, 66},
		{1, 66},
		{1.5, 76},
		{2, 86},
		{3, 116},
		{4, 146},
		{6, 236},
		{8, 326},
		{12, 325},
		{128, 324},
		{1e6, 324},
	} {
		if got := c.At(p.x); math.Abs(got-p.want) > 1e-9 {
			t.Errorf("t(%v) = %v, want %v", p.x, got, p.want)
		}
	}
	if got := Constant(7).At(1000); got != 7 {
		t.Errorf("a constant 7 is %v", got)
	}
}

// TestTimes has the equations with figures worked out by hand.
func TestTimes(t *testing.T) {
	e := thesis()
	slowNet := thesis()
	slowNet.PeerBandwidth = 40
	slowNet.SourceBandwidth = 20
	slowNet.SourceLatency = 0.25
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"3.5, alone", e.FetchSource(132, 1), 2},
		{"3.5, one of four", e.FetchSource(73, 4), 2},
		{"3.5, one of three, interpolated", e.FetchSource(116.0/3, 3), 1},
		{"3.5, gamma 0 counts the reader", e.FetchSource(132, 0), 2},
		{"3.5, bounded by b_fs, with latency", slowNet.FetchSource(10, 1), 0.75},
		{"3.6, bounded by the peer's disk", e.FetchPeer(86, 2), 2},
		{"3.6, bounded by b_c", slowNet.FetchPeer(86, 2), 2.15},
		{"3.6, RAM over the network", e.FetchPeer(10000, 1), 1},
		{"3.7, RAM", e.FetchLocal(10582, 1), 1},
		{"3.7, disk", e.FetchLocal(43, 2), 1},
		{"write, bounded by beta", e.Write(100), 0.5},
		{"3.4", e.Read(100, 0.25), 0.75},
		{"D", e.LocalCapacity(), 150 * 1024},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	e.Preprocess = 1e9
	if got := e.Write(10582); math.Abs(got-1) > 1e-9 {
		t.Errorf("write, bounded by the staging buffer: %v, want 1", got)
	}
}

func TestTimeline(t *testing.T) {
	e := thesis()
	avail := e.Available(nil, []float64{2, 2, 4, 1})
	if diff := cmp.Diff([]float64{1, 2, 4, 4.5}, avail); diff != "" {
		t.Errorf("3.3 (-want +got):\n%s", diff)
	}
	// 200 MB take 2 s: the second sample waits for the first's computation, the third is waited
	// for.
	if diff := cmp.Diff([]float64{1, 3, 4, 4.5},
		e.Consume(nil, avail, []float64{200, 50, 50, 50})); diff != "" {
		t.Errorf("3.2 (-want +got):\n%s", diff)
	}
}

// TestProperties: what holds whatever the numbers.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 1e5)
		curve := func(label string) Curve {
			return NewCurve(rapid.MapOfN(rapid.IntRange(1, 64), rate, 1, 6).Draw(t, label))
		}
		e := &Environment{
			Compute: rate.Draw(t, "c"), Preprocess: rate.Draw(t, "beta"),
			PeerBandwidth: rate.Draw(t, "b_c"), SourceBandwidth: rate.Draw(t, "b_fs"),
			SourceThroughput: curve("t"),
			SourceLatency:    rapid.Float64Range(0, 1).Draw(t, "latency"),
		}
		for range 2 {
			e.Classes = append(e.Classes,
				Class{
					Capacity: 1,
					Threads:  rapid.IntRange(1, 80).Draw(t, "p"),
					Read:     curve("r"),
					Write:    curve("w"),
				})
		}
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		x := rapid.Float64Range(0, 100).Draw(t, "x")
		lo, hi := math.Inf(1), 0.0
		for _, p := range e.SourceThroughput {
			lo, hi = min(lo, p.MBps), max(hi, p.MBps)
			if got := e.SourceThroughput.At(float64(p.Clients)); math.Abs(got-p.MBps) > 1e-6 {
				t.Fatalf("t(%d) = %v, the point says %v", p.Clients, got, p.MBps)
			}
		}
		if got := e.SourceThroughput.At(x); got < lo-1e-6 || got > hi+1e-6 {
			t.Fatalf("t(%v) = %v is outside [%v, %v]", x, got, lo, hi)
		}
		size := rapid.Float64Range(0.001, 100).Draw(t, "size")
		gamma := rapid.IntRange(1, 100).Draw(t, "gamma")
		if e.FetchLocal(size, 1) > e.FetchPeer(size, 1) {
			t.Fatal("a peer's class is faster than the same class of one's own")
		}
		if e.FetchSource(size, gamma) < e.SourceLatency+size/e.SourceBandwidth-1e-9 {
			t.Fatal("the source is faster than the network to it")
		}
		if e.FetchLocal(2*size, 1) < e.FetchLocal(size, 1) ||
			e.Read(size, 1) < 1+size/e.Preprocess-1e-9 {
			t.Fatal("more bytes take less time")
		}

		sizes := rapid.SliceOfN(rapid.Float64Range(0.1, 10), 1, 30).Draw(t, "sizes")
		var reads []float64
		for _, s := range sizes {
			reads = append(reads, e.Read(s, e.FetchSource(s, gamma)))
		}
		avail := e.Available(nil, reads)
		at := e.Consume(nil, avail, sizes)
		for f := range at {
			if at[f] < avail[f] || f > 0 && at[f] < at[f-1]+sizes[f-1]/e.Compute-1e-9 {
				t.Fatalf("sample %d is consumed at %v: available at %v", f, at[f], avail[f])
			}
			if f > 0 && at[f] > avail[f]+1e-9 && at[f] > at[f-1]+sizes[f-1]/e.Compute+1e-9 {
				t.Fatalf("sample %d waits for nothing", f)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	if err := thesis().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Environment){
		"c is 0 MB/s": func(e *Environment) { e.Compute = 0 },
		"beta is -1":  func(e *Environment) { e.Preprocess = -1 },
		"b_c is NaN": func(e *Environment) {
			e.PeerBandwidth = math.NaN()
		},
		"b_fs is +Inf": func(e *Environment) {
			e.SourceBandwidth = math.Inf(1)
		},
		"t has no points": func(e *Environment) { e.SourceThroughput = nil },
		"t has a point for 1 clients after 1": func(e *Environment) {
			e.SourceThroughput = Curve{{1, 5}, {1, 6}}
		},
		"t has a point for 0 clients": func(e *Environment) {
			e.SourceThroughput = Curve{{0, 5}}
		},
		"latency of the source is -1": func(e *Environment) { e.SourceLatency = -1 },
		"classes: none":               func(e *Environment) { e.Classes = nil },
		"d_2 is -5 MB":                func(e *Environment) { e.Classes[2].Capacity = -5 },
		"p_1 is 0 threads":            func(e *Environment) { e.Classes[1].Threads = 0 },
		"r_1 is 0 MB/s for 3 clients": func(e *Environment) {
			e.Classes[1].Read = Curve{{3, 0}}
		},
		"w_0 has no points": func(e *Environment) { e.Classes[0].Write = nil },
	} {
		e := thesis()
		spoil(e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	// All that is wrong is said at once.
	err := (&Environment{}).Validate()
	for _, key := range []string{"c is", "beta is", "b_c is", "b_fs is", "t has", "classes"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not mention %q", err, key)
		}
	}
}
