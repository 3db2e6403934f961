package policies

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policytest"
)

// benchJob returns a job in the thesis's environment (5.2.1), with class capacities scaled by
// `scale`.
func benchJob(b *testing.B, f, epochs, nodeCount, globalBatch int,
	mu, sigma, scale float64,
) plan.Input {
	b.Helper()
	class := func(capacity float64, read model.Curve) model.Class {
		return model.Class{Capacity: capacity, Threads: 2, Read: read, Write: read}
	}
	ram, ssd := model.NewCurve(map[int]float64{2: 21164}),
		model.NewCurve(map[int]float64{2: 86})
	env := &model.Environment{
		Compute: 100, Preprocess: 200, PeerBandwidth: 10000, SourceBandwidth: 2000,
		SourceThroughput: model.NewCurve(map[int]float64{1: 66, 2: 86, 3: 129, 4: 146}),
		Classes: []model.Class{
			class(1024, ram), class(51200*scale, ram),
			class(102400*scale, ssd),
		},
	}
	draw := rand.New(rand.NewPCG(1, 0))
	sizes := make([]float64, f)
	for k := range sizes {
		sizes[k] = max(0, mu+sigma*draw.NormFloat64())
	}
	capacity := []int64{int64(51200 * scale * 1e6), int64(102400 * scale * 1e6)}
	return plan.Input{
		Stream: policytest.Stream(b, access.Spec{
			Samples: f, Seed: 1, Epochs: epochs, WorldSize: nodeCount, GlobalBatch: globalBatch,
			DropLast: true, Scheme: access.Uniform, Tail: access.Keep,
		}),
		Nodes: policytest.Nodes(nodeCount, capacity...), Env: env,
		Size: func(k int) int64 { return max(1, int64(math.Ceil(sizes[k]*1e6))) },
	}
}

// BenchmarkPlan plans three jobs: the thesis's scenario 4 at a tenth of its samples and capacities;
// ImageNet-22k on four nodes; ImageNet-22k over 90 epochs on 1024 nodes whose classes together hold
// all of it, or half. It reports the CPU time and the peak memory of the process, which is that of
// the benchmark if it runs alone:
//
//	go test ./internal/plan/policies -run '^$' -benchtime 1x \
//	    -bench 'Plan/imagenet-22k/1024_nodes/all/cooperative'
func BenchmarkPlan(b *testing.B) {
	bench := func(name string, job func(*testing.B) plan.Input, policies ...plan.Policy) {
		b.Run(name, func(b *testing.B) {
			var in plan.Input
			for _, p := range policies {
				b.Run(p.Name(), func(b *testing.B) {
					if in.Stream == nil {
						in = job(b)
					}
					reads := float64(in.Stream.Delivered() * in.Stream.Spec().Epochs)
					debug.FreeOSMemory()
					forgetPeak()
					cpu := cpuTime(b)
					for b.Loop() {
						made, err := p.Plan(in)
						if err != nil {
							b.Skip(err)
						}
						runtime.KeepAlive(made)
					}
					n := float64(b.N)
					b.ReportMetric(b.Elapsed().Seconds()/n*1e9/reads, "ns/read")
					b.ReportMetric((cpuTime(b)-cpu).Seconds()/n, "cpu-s/op")
					b.ReportMetric(float64(peak(b))/1e6, "peak-MB")
				})
			}
		})
	}
	all := append([]plan.Policy{Cooperative{}, Frequency{}, Partitioned{}}, simulatorOnly()...)
	bench("thesis-4", func(b *testing.B) plan.Input {
		in := benchJob(b, 40_000, 5, 4, 100, 3, 0.2, 0.1)
		// as the simulator does
		drawn, err := access.NewListed(in.Stream.Spec(), in.Stream.Orders(5))
		if err != nil {
			b.Fatal(err)
		}
		in.Stream = drawn
		return in
	}, all...)
	const f = 14_197_122
	bench("imagenet-22k/4_nodes", func(b *testing.B) plan.Input {
		return benchJob(b, f, 5, 4, 100, 0.0916, 0.0305, 1)
	}, all...)
	for _, c := range []struct {
		name  string
		share float64
	}{{"all", 1}, {"half", 0.5}} {
		bench("imagenet-22k/1024_nodes/"+c.name, func(b *testing.B) plan.Input {
			return benchJob(b, f, 90, 1024, 25_600, 0.0916, 0.0305,
				c.share*f*0.0916/1024/(51200+102400))
		}, all...)
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// forgetPeak resets the process's peak resident memory to its current value, if Linux permits.
func forgetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peak returns the process's peak resident memory in bytes.
func peak(b *testing.B) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb),
				"kB")), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n * 1024
		}
	}
	b.Fatal(fmt.Errorf("no VmHWM in /proc/self/status"))
	return 0
}
