package remedy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/model"
)

// machine is a node in MB and MB/s; a class of 0 MB/s is not there.
type machine struct {
	nodes                   int
	memory, file, disk      float64 // MB of memory, MB of the directory, MB/s of its disk
	source, network         float64 // MB/s: of the source for all nodes, of a link
	compute, beta           float64 // MB/s: of the training per node, of a thread that transforms
	transformers            int
	processors              int // if transform_threads was given
	whole, once, cachesNone bool
}

// run returns a job on 1000 MB of samples of 0.1 MB on equal machines.
func (m machine) run() *Run {
	given := func(mbps float64) model.Known { return model.GivenRate(mbps, 0) }
	r := &Run{
		Known: model.Node{
			Compute: model.Value{Number: m.compute, Origin: model.Measured},
			Source:  given(m.source / float64(m.nodes)),
			Streams: 16,
		},
		Nodes: m.nodes, Data: 1000e6, Epoch: int64(1000e6 / float64(m.nodes)), Sample: 0.1e6,
		Transformers: m.transformers, Processors: m.processors, Caches: !m.cachesNone,
		Whole: m.whole, Once: m.once,
	}
	if m.beta > 0 {
		r.Known.Preprocess = model.Value{Number: m.beta, Origin: model.Measured}
	}
	if m.network > 0 {
		r.Known.Network = given(m.network)
	}
	if m.whole {
		r.Epoch = r.Data
	}
	if m.memory > 0 {
		r.Known.Classes = append(r.Known.Classes,
			model.NodeClass{Name: "memory", Read: given(5000), Write: given(5000)})
		r.Capacity = append(r.Capacity, int64(m.memory*1e6))
	}
	if m.disk > 0 {
		r.Known.Classes = append(r.Known.Classes,
			model.NodeClass{Name: "file", Path: "/d", Read: given(m.disk), Write: given(m.disk)})
		r.Capacity = append(r.Capacity, int64(m.file*1e6))
	}
	if m.cachesNone { // and nothing is held
		clear(r.Capacity)
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(math.Abs(a), math.Abs(b)) }

// TestDiagnose compares with cases computed by hand. A remedy is KEY=AMOUNT[@SPEED]: AFTER, LIMIT.
func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine machine
		limit   string
		epoch   float64
		next    string
		source  float64 // MB
		want    []string
	}{
		{
			// The source reads 600 MB in 60 s. In the 40 s of the computation it reads 400.
			name:    "the source limits: memory for exactly the missing bytes",
			machine: machine{nodes: 1, memory: 400, source: 10, compute: 25},
			limit:   "source", epoch: 60, next: "compute", source: 600,
			// Of the file class, 15 MB/s deliver 600 MB in 40 s; 200 MB of it take 5 MB/s. Two
			// nodes hold 800 MB; a link that was not measured does not limit.
			want: []string{
				"memory=600000000: 40 s, compute", "cache=200000000@5: 40 s, compute",
				"nodes=2: 20 s, compute", "source=15: 40 s, compute",
			},
		},
		{
			// 2 threads of 5 MB/s transform 1000 MB in 100 s; 40 s take 5 threads.
			name: "transforms limit: threads",
			machine: machine{
				nodes: 1, memory: 400, source: 20, compute: 25, beta: 5, transformers: 2,
			},
			limit: "preprocessing", epoch: 100, next: "compute", source: 600,
			want: []string{"threads=5: 40 s, compute"},
		},
		{
			// With 16 threads, transforms would still limit: computation takes 1 s.
			name: "one thread was given: the processors of the machine",
			machine: machine{
				nodes: 1, memory: 400, source: 1000, compute: 1000, beta: 5, transformers: 1,
				processors: 4,
			},
			limit: "preprocessing", epoch: 200, next: "compute", source: 600,
			want: []string{"threads=4: 50 s, preprocessing"},
		},
		{
			name: "all processors transform already",
			machine: machine{
				nodes: 1, memory: 400, source: 1000, compute: 1000, beta: 5, transformers: 4,
				processors: 4,
			},
			limit: "preprocessing", epoch: 50, next: "compute", source: 600,
		},
		{
			// 40 and 200 MB/s together deliver 1000 MB in 25/6 s: the class is bypassed for 5 of 6
			// bytes, which it holds. Computation allows 2 s, in which the source reads 400 MB: of
			// memory, 520 MB, beside 80 from the disk; or 300 MB/s from a disk.
			name: "a slow class is bypassed",
			machine: machine{
				nodes: 1, memory: 1, file: 1000, disk: 40, source: 200, compute: 500,
			},
			limit: "source", epoch: 999.0 / 240, next: "file", source: 999.0 / 240 * 200,
			want: []string{
				"memory=520000000: 2 s, compute", "cache=1000000000@300: 2 s, compute",
				"source=460: 2 s, compute",
			},
		},
		{
			// Each node consumes 500 MB, of which it holds a half and the other node the other
			// half: 15 MB/s from link and source together deliver 250 MB in 50/3 s. In the 10 s of
			// the computation, they deliver 150, so that 350 of 500 must be the node's own: 700 MB
			// of 1000, more than half of which the other node holds as well.
			name: "a slow link: memory for copies on each node",
			machine: machine{
				nodes: 2, memory: 500, source: 10, network: 10, compute: 50,
			},
			limit: "network", epoch: 50.0 / 3, next: "source", source: 500.0 / 3,
			want: []string{
				"memory=700000000: 10 s, compute", "cache=200000000@10: 10 s, compute",
				"source=30: 10 s, compute", "network=20: 10 s, compute",
			},
		},
		{
			name:    "computation limits: nothing",
			machine: machine{nodes: 1, memory: 400, source: 20, compute: 25},
			limit:   "compute", epoch: 40, next: "source", source: 600,
		},
		{
			// no cache: 600 MB on a disk of 15 MB/s
			name:    "no class",
			machine: machine{nodes: 1, source: 10, compute: 25},
			limit:   "source", epoch: 100, next: "compute", source: 1000,
			want: []string{
				"memory=600000000: 40 s, compute", "cache=600000000@15: 40 s, compute",
				"source=25: 40 s, compute",
			},
		},
		{
			name:    "a policy without caches",
			machine: machine{nodes: 1, memory: 900, source: 10, compute: 25, cachesNone: true},
			limit:   "source", epoch: 100, next: "compute", source: 1000,
			want: []string{
				"memory=600000000: 40 s, compute", "cache=600000000@15: 40 s, compute",
				"source=25: 40 s, compute",
			},
		},
		{
			name:    "one epoch only: memory does not help",
			machine: machine{nodes: 1, memory: 900, source: 10, compute: 25, once: true},
			limit:   "source", epoch: 100, next: "compute", source: 1000,
			want: []string{"source=25: 40 s, compute"},
		},
		{
			// each node reads all: 500 MB of its own, 500 from the other and the source, 15 MB/s
			name: "whole epochs on each node",
			machine: machine{
				nodes: 2, memory: 500, source: 10, network: 10, compute: 50, whole: true,
			},
			limit: "network", epoch: 100.0 / 3, next: "source", source: 1000.0 / 3,
			want: []string{
				"memory=700000000: 20 s, compute", "cache=200000000@10: 20 s, compute",
				"source=30: 20 s, compute", "network=20: 20 s, compute",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.machine.run()
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			now, remedies := Diagnose(r)
			if now.Resource != c.limit || !near(now.Epoch, c.epoch) || now.Next == nil ||
				now.Next.Resource != c.next || !near(float64(now.Source)/1e6, c.source) {
				t.Errorf("%s limits, %v s, next %v, %d bytes of the source", now.Resource,
					now.Epoch, now.Next, now.Source)
			}
			var got []string
			for _, r := range remedies {
				text := fmt.Sprintf("%s=%.0f", r.Key, r.Amount)
				if r.Speed > 0 {
					text += fmt.Sprintf("@%g", r.Speed)
				}
				got = append(got, fmt.Sprintf("%s: %.6g s, %s", text, r.After, r.Resource))
			}
			if a, b := strings.Join(got, "\n"), strings.Join(c.want, "\n"); a != b {
				t.Errorf("remedies\n%s\nwant\n%s", a, b)
			}
			t.Log(now.Sentence(remedies))
			t.Log(now.Line(remedies))
		})
	}
}

// TestSentence checks what people read.
func TestSentence(t *testing.T) {
	measured := machine{nodes: 1, memory: 400, source: 10, compute: 25}.run()
	measured.Measured = 61.5
	entries := machine{nodes: 1, memory: 400, source: 10, compute: 25}.run()
	entries.Entries = true
	python := machine{nodes: 1, memory: 400, source: 20, compute: 25}.run()
	python.Measured, python.Python = 80, 30
	guessed := machine{nodes: 2, memory: 400, source: 10, compute: 25}.run()
	guessed.Known.Network = model.GuessedPeer
	threads := machine{
		nodes: 1, memory: 400, source: 1000, compute: 25, beta: 10, transformers: 1, processors: 4,
	}.run()
	none := machine{nodes: 1, memory: 400, source: 10, cachesNone: true}.run()
	for _, c := range []struct {
		run            *Run
		sentence, line string
	}{
		{
			measured,
			"The source limits later epochs: by the model they take 60.0 s (measured: 61.5 s). The " +
				"cheapest remedy is memory=572.3 MiB per node instead of 381.5 MiB: they would take " +
				"40.0 s, and computation would limit.",
			"limit: source, 60.0 s an epoch by the model; next compute 40.0 s; memory=572.3 MiB per " +
				"node instead of 381.5 MiB: 40.0 s",
		},
		{
			entries,
			"The source limits later epochs: by the model they take 60.0 s. The cheapest remedy is " +
				"a [[storage_class]] of kind memory with 572.3 MiB per node instead of 381.5 MiB: " +
				"they would take 40.0 s, and computation would limit.",
			"limit: source, 60.0 s an epoch by the model; next compute 40.0 s; a [[storage_class]] " +
				"of kind memory with 572.3 MiB per node instead of 381.5 MiB: 40.0 s",
		},
		{
			python,
			"Python code that makes batches limits later epochs: increase num_workers, or use " +
				"transforms that the daemon can run.",
			"limit: python; next compute 40.0 s",
		},
		{
			guessed,
			"Computation limits later epochs: by the model they take 20.0 s, and faster loading " +
				"would not shorten them. Not measured yet: network.",
			"limit: compute, 20.0 s an epoch by the model; next source 20.0 s",
		},
		{
			threads,
			"Transforming samples limits later epochs: by the model they take 100 s. The cheapest " +
				"remedy is transform_threads=3 instead of 1: they would take 40.0 s, and computation " +
				"would limit.",
			"limit: preprocessing, 100 s an epoch by the model; next compute 40.0 s; " +
				"transform_threads=3 instead of 1: 40.0 s",
		},
		{
			none,
			"The source limits later epochs: by the model they take 100 s. The cheapest remedy is " +
				"memory=951.8 MiB per node instead of none and a policy that caches, such as " +
				"cooperative: they would take 0.2 s, and storage class memory would limit. Not " +
				"measured yet: compute (taken as unlimited).",
			"limit: source, 100 s an epoch by the model; memory=951.8 MiB per " +
				"node instead of none and a policy that caches, such as cooperative: 0.2 s",
		},
	} {
		now, remedies := Diagnose(c.run)
		if got := now.Sentence(remedies); got != c.sentence {
			t.Errorf("got\n%s\nwant\n%s", got, c.sentence)
		}
		if got := now.Line(remedies); got != c.line {
			t.Errorf("got\n%s\nwant\n%s", got, c.line)
		}
	}
}

// TestSecondNodeNeedsANetwork: if the network was not measured, the remedy states it.
func TestSecondNodeNeedsANetwork(t *testing.T) {
	r := machine{nodes: 1, memory: 400, source: 10, compute: 25}.run()
	r.Known.Network = model.GuessedPeer
	now, remedies := Diagnose(r)
	if len(now.Guessed) != 0 {
		t.Errorf("one node needs %v", now.Guessed)
	}
	for _, m := range remedies {
		if m.Key == Nodes && m.Text != "2 nodes instead of 1 (not measured: network)" {
			t.Errorf("%q", m.Text)
		}
	}
}

// TestTimesAGuessIsAGuess: a multiple of what was not measured is not known, other than an amount.
func TestTimesAGuessIsAGuess(t *testing.T) {
	m := machine{nodes: 2, memory: 400, source: 10, network: 10}
	r := m.run()
	r.Known.Source.Origin, r.Known.Network.Origin = model.Guessed, model.Guessed
	for text, want := range map[string]string{
		"source=2x,network=2x,compute=2x":    "compute (taken as unlimited), source, network",
		"source=20,network=20,compute=2GB/s": "",
	} {
		changes, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Ask(r, changes).Then.Guessed, ", "); got != want {
			t.Errorf("%s rests on %q, want %q", text, got, want)
		}
	}
}

// TestTheOrderOfChangesDoesNotMatter: a multiple is one of what the other changes leave.
func TestTheOrderOfChangesDoesNotMatter(t *testing.T) {
	m := machine{nodes: 1, memory: 100, source: 10, compute: 1000}
	r := m.run()
	r.Known.Source = model.Known{ // 16 streams of 0.1 MB in 0.2 s: a node gets 8 MB/s at most
		Coefficients: model.Coefficients{Latency: 0.19, PerMB: 0.1, Queued: 1e-3},
		Origin:       model.Measured,
	}
	epoch := func(text string) float64 {
		changes, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return Ask(r, changes).Then.Epoch
	}
	if a, b := epoch("source=2x,nodes=4"), epoch("nodes=4,source=2x"); a != b {
		t.Errorf("%v s, and in the other order %v s", a, b)
	}
}

// TestDealingIsProposed: where the network limits, and a node holds its part, dealing batches to
// owners is proposed; where it saves little, where batches are dealt already or cannot be, it is
// not.
func TestDealingIsProposed(t *testing.T) {
	for _, c := range []struct {
		name    string
		network float64 // MB/s
		change  func(*Run)
		want    bool
	}{
		{"a slow network", 10, func(*Run) {}, true},
		{"a fast network", 1e4, func(*Run) {}, false},
		{"dealt already", 10, func(r *Run) { r.Dealt = true }, false},
		{"an order that cannot be dealt", 10, func(r *Run) { r.Batch = 0 }, false},
	} {
		r := machine{nodes: 8, memory: 200, source: 10, network: c.network, compute: 100}.run()
		r.Batch = 32
		c.change(r)
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		_, remedies := Diagnose(r)
		i := slices.IndexFunc(remedies, func(r Remedy) bool { return r.Key == Deal })
		if (i >= 0) != c.want {
			t.Errorf("%s: %+v", c.name, remedies)
		}
		if i < 0 {
			continue
		}
		if d := remedies[i]; d.From < 0.7 || d.Amount > 0.07 || d.After > d.Before/2 ||
			!strings.Contains(d.Text, "6.5 % of their samples from others instead of 71.1 %") {
			t.Errorf("%s: %+v: %s", c.name, d, d.Text)
		}
	}
}
