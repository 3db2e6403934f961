package simulate

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// reference is the profile Thesis as the thesis's simulator computes it: maps, whole logs,
// sorting, nothing skipped. It is for tiny jobs, and what RunThesis is held against.
type reference struct {
	job    *Job
	policy string
	// of frequency: in_order = false, and cleanup_read
	byFrequency, cleanup bool
	n, f                 int
	nodes                []*referenceNode
	rr                   int
	stall                float64
	res                  *Result
}

type referenceNode struct {
	r       []int // R_i
	batchOf []int
	u, p    []float64
	entries map[int]referenceEntry // by position
	copies  map[int]referenceCopy  // by file
	dropped map[int]referenceCopy
	charged map[int]bool
	used    float64
	clock   []float64
	k       int

	order   []int // HDMLP's list, how far it has come, and its classes
	listed  int
	classes []*referenceClass
}

type referenceEntry struct {
	avail float64
	place string
}

type referenceCopy struct {
	class int
	avail float64
}

type referenceClass struct {
	clock []float64
	used  float64
	reads int
}

func (x *reference) size(k int) float64 { return x.job.Sizes[k] }

func (x *reference) write(s float64) float64 {
	c := x.job.Env.Classes[0]
	return max(s/x.job.Env.Preprocess, s/(c.Read.At(float64(c.Threads))/float64(c.Threads)))
}

func (x *reference) pfs(s float64, g int) float64 {
	return x.job.Env.SourceLatency +
		s/min(x.job.Env.SourceBandwidth, x.job.Env.SourceThroughput.At(float64(g))/float64(g))
}

func (x *reference) rate(j int) float64 {
	c := x.job.Env.Classes[j]
	return c.Read.At(float64(c.Threads))
}

// reads reports whether the policy's staging prefetcher reads from what besides local copies.
func (x *reference) reads(what string) bool {
	return slices.Contains(map[string][]string{
		"staging": {"source"}, "frequency": {"source"}, "locality": {"source", "remote"},
		"deepio_ordered": {"remote"}, "deepio_opportunistic": {"remote"},
		"lbann_dynamic": {"remote"}, "lbann_preloading": {"remote"},
	}[x.policy], what)
}

func (x *reference) clients(t float64, i int) int {
	qualifies := func(l []float64) bool {
		if len(l) == 0 || !(l[len(l)-1] > t-0.1) {
			return false
		}
		lo, hi := 0, len(l) // Python's bisect_left
		for lo < hi {
			mid := (lo + hi) / 2
			if l[mid] < t {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo < len(l)
	}
	g := 1
	for j, n := range x.nodes {
		if j != i && (qualifies(n.u) || qualifies(n.p)) {
			g++
		}
	}
	return g
}

func (x *reference) tell(place string, s float64) {
	switch place {
	case "source":
		x.res.Reads.Source.Samples++
		x.res.Reads.Source.MB += s
	case "remote":
		x.res.Reads.Remote.Samples++
		x.res.Reads.Remote.MB += s
	default:
		a := x.res.Reads.Local[place]
		x.res.Reads.Local[place] = Amount{a.Samples + 1, a.MB + s}
	}
}

func (x *reference) consume(i, f int, now float64) float64 {
	n := x.nodes[i]
	k := n.r[f]
	s := x.size(k)
	e, staged := n.entries[f]
	a := math.Inf(1)
	if staged {
		a = e.avail
	}
	done, place := now, e.place
	if a > now {
		done = a
		fetch, from := x.pfs(s, x.clients(now, i)), "source"
		if c, ok := n.copies[k]; ok && c.avail <= now && s/x.rate(c.class) < fetch {
			fetch, from = s/x.rate(c.class), strconv.Itoa(c.class)
		}
		for j := x.n - 1; j >= 0; j-- {
			if c, ok := x.nodes[j].copies[k]; ok && j != i && c.avail <= now {
				if t := s / min(x.job.Env.PeerBandwidth, x.rate(c.class)); t < fetch {
					fetch, from = t, "remote"
				}
				break
			}
		}
		if demand := now + (fetch + x.write(s)); demand < a {
			x.tell(from, s)
			if from == "source" {
				n.u = append(n.u, now)
				x.res.SourceTotal += s
			}
			return demand
		}
	}
	x.tell(place, s)
	if place == "source" {
		n.u = append(n.u, done)
	}
	return done
}

func (x *reference) fill(i int, time float64) {
	n := x.nodes[i]
	d := x.job.Env.Classes[0]
	for c := range n.clock {
		n.clock[c] = max(n.clock[c], time)
	}
	for n.k < len(n.r) && n.used+x.size(n.r[n.k]) <= d.Capacity {
		now := n.clock[x.rr]
		k := n.r[n.k]
		s := x.size(k)
		source := ""
		ready := 0.0
		read := 0.0
		rate := 0.0
		if c, ok := n.copies[k]; ok {
			source = strconv.Itoa(c.class)
			ready = c.avail
			rate = x.rate(c.class)
		}
		if x.reads("remote") {
			for j := x.n - 1; j >= 0; j-- {
				c, ok := x.nodes[j].copies[k]
				if !ok || j == i {
					continue
				}
				if r := min(x.job.Env.PeerBandwidth, x.rate(c.class)); source == "" || rate < r {
					source = "remote"
					ready = c.avail
					rate = r
				}
				break
			}
			if source == "remote" && ready > now && x.reads("source") {
				return
			}
		}
		read = s/rate + x.write(s)
		done := max(now, ready) + read
		if x.reads("source") {
			if t := x.pfs(s, x.clients(now, i)) + x.write(s); source == "" || ready > now ||
				t < read {
				source, done = "source", now+t
			}
		}
		if source != "" {
			n.clock[x.rr] = done
			n.entries[n.k] = referenceEntry{done, source}
			if !n.charged[k] {
				n.charged[k] = true
				n.used += s
			}
			if source == "source" {
				n.p = append(n.p, now)
				x.res.SourceTotal += s
			}
		}
		n.k++
		x.rr = (x.rr + 1) % d.Threads
	}
}

// free drops the entries of batch b, the newest of which node i has read something.
func (x *reference) free(i, b int) {
	n := x.nodes[i]
	for f := range n.r {
		if e, ok := n.entries[f]; ok && e.place != "" && n.batchOf[f] == b {
			n.used -= x.size(n.r[f])
			delete(n.entries, f)
		}
	}
}

// runReference runs a job with the scheme Uniform.
func runReference(job *Job, policy string) *Result {
	name, options, _ := strings.Cut(policy, ":")
	x := &reference{
		job:    job,
		policy: name,

		byFrequency: strings.Contains(options, "in_order=false"),
		cleanup:     strings.Contains(options, "cleanup_read=true"),

		n:   job.Nodes,
		f:   len(job.Sizes),
		res: &Result{Supported: true},
	}
	x.res.Reads.Local = map[string]Amount{}
	stream, err := streamOf(job, 0)
	if err != nil {
		panic(err)
	}
	for range x.n {
		x.nodes = append(x.nodes, &referenceNode{
			entries: map[int]referenceEntry{}, copies: map[int]referenceCopy{},
			dropped: map[int]referenceCopy{},
			charged: map[int]bool{},
			clock:   make([]float64, job.Env.Classes[0].Threads),
		})
	}
	steps := stream.Steps()
	for e := range job.Epochs {
		for step := range steps {
			batch := stream.Epoch(e).Global(nil, step)
			share := (len(batch) + x.n - 1) / x.n
			for i, n := range x.nodes {
				for f := i * share; f < min((i+1)*share, len(batch)); f++ {
					n.r = append(n.r, int(batch[f]))
					n.batchOf = append(n.batchOf, e*steps+step)
				}
			}
		}
	}
	if x.policy != "perfect" {
		x.setUp()
	}
	x.run(steps)
	return x.res
}

func (x *reference) run(steps int) {
	at := make([]int, x.n)
	g := x.stall
	for h := range x.job.Epochs * steps {
		end := g
		for i, n := range x.nodes {
			now := g
			for at[i] < len(n.r) && n.batchOf[at[i]] == h {
				f := at[i]
				at[i]++
				s := x.size(n.r[f])
				done := now
				if x.policy == "perfect" {
					x.tell("0", s)
				} else {
					done = x.consume(i, f, now)
				}
				now = done + s/x.job.Env.Compute
				if x.policy != "perfect" && x.policy != "naive" {
					if f > 0 && n.batchOf[f-1] != h { // the first request of the batch
						x.free(i, n.batchOf[f-1])
					}
					if x.cleanup {
						x.cleanUp(n, f)
					}
					x.fillClasses(n, done)
					x.fill(i, done)
				}
			}
			end = max(end, now)
		}
		x.res.Batches = append(x.res.Batches, end-g)
		g = end
	}
	x.res.Runtime, x.res.BeforeTraining = g, x.stall
	for _, n := range x.nodes { // what is read into classes during training, once it has begun
		for k, c := range n.dropped {
			if s := x.size(k); c.avail-(x.pfs(s, x.n)+x.write(s)) < g-1e-9 {
				x.res.SourceTotal += s
			}
		}
		for k, c := range n.copies {
			if s := x.size(k); (x.policy == "frequency" || x.policy == "lbann_dynamic") &&
				c.avail-(x.pfs(s, x.n)+x.write(s)) < g-1e-9 {
				x.res.SourceTotal += s
			}
		}
	}
}
