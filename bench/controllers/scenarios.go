package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/replay"
)

// scenario is a job on a machine: samples of 110 KB on average, batches of 32 for each rank. Rates
// are in MB/s.
type scenario struct {
	name         string
	nodes, ranks int     // ranks of each node
	class        string  // memory, file
	share        float64 // of the dataset that all caches together hold
	source, link float64
	disk         float64 // of a file class
	compute      float64 // of a rank
	threads      int     // of a node, which transform
	free         bool    // ranks do not wait for each other
	known        bool    // the tiers' rates were measured by an earlier job, the disk's wrongly
	policy       string  // default: cooperative
}

// scenarios have rates as the files in scenarios/ and the cells of bench/grid.py: sources of 40
// MB/s to 2 GB/s, links of 100 Mbit/s to 40 Gbit/s, magnetic disks and SSDs.
var scenarios = []scenario{
	{
		name: "1 node, half in memory", nodes: 1, ranks: 4, class: "memory", share: 0.5,
		source: 100, compute: 100,
	},
	{
		name: "1 node, all on a magnetic disk", nodes: 1, ranks: 1, class: "file", share: 1,
		source: 100, disk: 50, compute: 400,
	},
	{
		name: "1 node, half on an SSD, transforms", nodes: 1, ranks: 2, class: "file", share: 0.5,
		source: 200, disk: 530, compute: 400, threads: 4,
	},
	{
		name: "1 node, a disk that was faster before", nodes: 1, ranks: 1, class: "file", share: 1,
		source: 200, disk: 10, compute: 400, known: true,
	},
	{
		name: "2 nodes, all in memory, 10 Gbit/s", nodes: 2, ranks: 2, class: "memory", share: 1,
		source: 200, link: 1250, compute: 300,
	},
	{
		name: "2 nodes, half in files, free ranks", nodes: 2, ranks: 2, class: "file", share: 0.5,
		source: 50, link: 1250, disk: 80, compute: 200, free: true,
	},
	{
		name: "2 nodes, all in memory, 100 Mbit/s", nodes: 2, ranks: 1, class: "memory", share: 1,
		source: 40, link: 12.5, compute: 100,
	},
	{
		name: "4 nodes, all in memory, 100 Mbit/s, fast source", nodes: 4, ranks: 1, class: "memory",
		share: 1, source: 2000, link: 12.5, compute: 300,
	},
	{
		name: "4 nodes, half in memory, 1 Gbit/s", nodes: 4, ranks: 2, class: "memory", share: 0.5,
		source: 200, link: 125, compute: 100,
	},
	{
		name: "4 nodes, all in files, 1 Gbit/s", nodes: 4, ranks: 1, class: "file", share: 1,
		source: 200, link: 125, disk: 80, compute: 200,
	},
	{
		name: "4 nodes, all in memory, 40 Gbit/s", nodes: 4, ranks: 1, class: "memory", share: 1,
		source: 200, link: 5000, compute: 400,
	},
	{
		name: "4 nodes, all in memory, 1 Gbit/s", nodes: 4, ranks: 1, class: "memory", share: 1,
		source: 500, link: 125, compute: 400,
	},
	{
		name: "16 nodes, all in memory, 1 Gbit/s", nodes: 16, ranks: 1, class: "memory", share: 1,
		source: 500, link: 125, compute: 100,
	},
	{
		name: "2 nodes, three quarters on each, 100 Mbit/s", nodes: 2, ranks: 1, class: "memory",
		share: 1.5, source: 40, link: 12.5, compute: 100, policy: "frequency",
	},
	{
		name: "16 nodes, half in files, 10 Gbit/s", nodes: 16, ranks: 1, class: "file", share: 0.5,
		source: 1000, link: 1250, disk: 530, compute: 200,
	},
}

const (
	samples = 6000
	epochs  = 4
	batch   = 32 // of a rank
	mean    = 110_000
)

// outcome is what a scenario came to.
type outcome struct {
	Seconds float64 // of all epochs
	Later   float64 // of all but the first
	Source  float64 // MB
}

// run runs a scenario, with a plan that is made by an environment; nil: by none.
func (s *scenario) run(seed uint64, env *model.Environment) (o outcome, err error) {
	job, err := s.job(seed, env)
	if err != nil {
		return o, fmt.Errorf("%s: %w", s.name, err)
	}
	r, err := replay.Simulate(context.Background(), job)
	if err != nil {
		return o, fmt.Errorf("%s: %w", s.name, err)
	}
	for k, seconds := range r.Epochs {
		o.Seconds += seconds
		if k > 0 {
			o.Later += seconds
		}
	}
	o.Source = r.Source
	return o, nil
}

// job returns the job, whose plan is made by an environment; nil: by none.
func (s *scenario) job(seed uint64, env *model.Environment) (*replay.Job, error) {
	world := s.nodes * s.ranks
	stream, err := access.New(access.Spec{
		Samples: samples, Seed: seed, Epochs: epochs, WorldSize: world, GlobalBatch: batch * world,
		Shuffle: access.Torch, Scheme: access.Strided, Tail: access.Pad,
	})
	if err != nil {
		return nil, err
	}
	j := &replay.Job{
		Stream: stream, Epochs: epochs, Source: s.source, Link: max(s.link, 1), Free: s.free,
		Steps: []float64{batch * mean / 1e6 / s.compute}, Timeout: 60,
	}
	chance, bytes := rand.New(rand.NewPCG(seed, 1)), int64(0)
	for range samples {
		size := int64(mean * (0.5 + chance.Float64()))
		j.Sizes = append(j.Sizes, size)
		bytes += size
	}
	if s.known {
		rate := func(mbps float64) model.Known {
			k := model.GivenRate(mbps, 0)
			k.Origin = model.Probed
			return k
		}
		j.Known.Source = rate(s.source)
		j.Known.Classes = []model.NodeClass{{Name: s.class, Read: rate(20 * s.disk)}}
	}
	var nodes []plan.Node
	for n := range s.nodes {
		of := plan.Node{Capacity: []int64{int64(s.share * float64(bytes) / float64(s.nodes))}}
		for r := range s.ranks {
			of.Ranks = append(of.Ranks, n*s.ranks+r)
		}
		nodes = append(nodes, of)
		j.Nodes = append(j.Nodes, s.node(of.Ranks))
	}
	policy, err := policies.ByName(cmp.Or(s.policy, "cooperative"))
	if err != nil {
		return nil, err
	}
	j.Plan, err = policy.Plan(plan.Input{
		Stream: stream, Epochs: epochs, Nodes: nodes, Size: func(k int) int64 { return j.Sizes[k] },
		Env: env,
	})
	return j, err
}

// environment returns what the scenario's machine is believed to be: rates are wrong by factors.
func (s *scenario) environment(source, link, disk float64) *model.Environment {
	read := model.Constant(s.disk * disk)
	if s.class == "memory" {
		read = model.Constant(memoryRate)
	}
	staging := model.Constant(memoryRate)
	capacity := s.share * samples * mean / 1e6 / float64(s.nodes) // MB
	return &model.Environment{
		Compute: s.compute * float64(s.ranks), Preprocess: memoryRate,
		PeerBandwidth: max(s.link, 1) * link, SourceBandwidth: s.source * source,
		SourceThroughput: model.Constant(s.source * source),
		Classes: []model.Class{
			{Capacity: 100, Threads: 1, Read: staging, Write: staging},
			{Capacity: capacity, Threads: 1, Read: read, Write: read},
		},
	}
}

// memoryRate is that of memory, in MB/s.
const memoryRate = 10_000

func (s *scenario) node(ranks []int) replay.Node {
	class := replay.Class{Name: s.class, Memory: s.class == "memory", Rate: s.disk}
	if !class.Memory {
		class.Write = s.disk
	}
	n := replay.Node{
		Ranks: ranks, Classes: []replay.Class{class},
		InForce: []replay.InForce{{Ahead: 16}},
		Streams: []replay.Change{{To: 16}}, Staging: []replay.Change{{To: 128}},
	}
	if s.threads > 0 {
		n.Threads = []replay.Change{{To: float64(s.threads)}}
		n.InForce[0].Transform = 1.0 / 53 // a core of scenarios/coordl-ssd-v100.toml
	}
	return n
}
