package model

import (
	"math"
	"testing"
)

// TestWork: threads add a core each up to the physical cores, 0.3 of one up to the hyperthreads,
// and nothing beyond; nothing ever gets slower with more threads, cores or hyperthreads.
func TestWork(t *testing.T) {
	for cores := range 20 {
		for extra := range 20 {
			p := Processors{Cores: cores}
			if cores > 0 && extra > 0 {
				p.Hyperthreads = cores + extra
			}
			for threads := 1; threads < 50; threads++ {
				want := float64(threads)
				if cores > 0 && threads > cores {
					want = float64(cores) + 0.3*float64(min(threads-cores, extra))
				}
				if got := p.Work(threads); math.Abs(got-want) > 1e-9 {
					t.Fatalf("%+v: %d threads do the work of %v cores, want %v", p, threads, got, want)
				}
				if p.Work(threads+1) < p.Work(threads) {
					t.Fatalf("%+v: %d threads do more than %d", p, threads, threads+1)
				}
			}
		}
	}
}

func TestProcessorsThatCannotBe(t *testing.T) {
	class := Class{Capacity: 1, Threads: 8, Read: Constant(1), Write: Constant(1)}
	env := Environment{
		Compute: 1, Preprocess: 10, PeerBandwidth: 1, SourceBandwidth: 1,
		SourceThroughput: Constant(1), Classes: []Class{class},
	}
	for p, valid := range map[Processors]bool{
		{}: true, {Cores: 4}: true, {Cores: 4, Hyperthreads: 4}: true,
		{Cores: 4, Hyperthreads: 8}: true, {Cores: 4, Hyperthreads: 3}: false,
		{Cores: -1}: false, {Hyperthreads: 4}: false, {Cores: 4, Hyperthreads: -8}: false,
	} {
		env.Processors = p
		if err := env.Validate(); (err == nil) != valid {
			t.Errorf("%+v: %v", p, err)
		}
	}
	env.Processors = Processors{Cores: 4}
	if got := env.ThreadRate(); got != 5 {
		t.Errorf("8 threads on 4 cores, of 10 MB/s each, do %v MB/s each, want 5", got)
	}
	if got := env.Write(10); got != 80 { // all 8 threads write 1 MB/s together
		t.Errorf("10 MB take %v s, want 80", got)
	}
}
