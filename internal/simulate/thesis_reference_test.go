package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// reference is the profile Thesis as simulator-semantics section 1 words it: maps, whole logs, sorting, nothing
// skipped. It is for tiny jobs, and what RunThesis is held against.
type reference struct {
	job    *Job
	policy string
	n, f   int
	nodes  []*referenceNode
	rr     int
	stall  float64
	res    *Result
}

type referenceNode struct {
	r       []int // R_i
	batchOf []int
	u, p    []float64
	entries map[int]referenceEntry // by position
	copies  map[int]referenceCopy  // by file
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
	return x.job.Env.SourceLatency + s/min(x.job.Env.SourceBandwidth, x.job.Env.SourceThroughput.At(float64(g))/float64(g))
}

func (x *reference) rate(j int) float64 {
	c := x.job.Env.Classes[j]
	return c.Read.At(float64(c.Threads))
}

// reads says what the policy's staging prefetcher reads besides local copies.
func (x *reference) reads(what string) bool {
	return slices.Contains(map[string][]string{
		"staging": {"source"}, "frequency": {"source"}, "locality": {"source", "remote"},
		"deepio_ordered": {"remote"}, "deepio_opportunistic": {"remote"}, "lbann_dynamic": {"remote"}, "lbann_preloading": {"remote"},
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
		source, ready, read, rate := "", 0.0, 0.0, 0.0
		if c, ok := n.copies[k]; ok {
			source, ready, rate = strconv.Itoa(c.class), c.avail, x.rate(c.class)
		}
		if x.reads("remote") {
			for j := x.n - 1; j >= 0; j-- {
				c, ok := x.nodes[j].copies[k]
				if !ok || j == i {
					continue
				}
				if r := min(x.job.Env.PeerBandwidth, x.rate(c.class)); source == "" || rate < r {
					source, ready, rate = "remote", c.avail, r
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
			if t := x.pfs(s, x.clients(now, i)) + x.write(s); source == "" || ready > now || t < read {
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

// preload has node i load files while bounded says so, and returns the loaded ones and when the last thread ended.
func (x *reference) preload(i, class int, files []int, bounded bool) (loaded []int, end float64) {
	c := x.job.Env.Classes[class]
	clock := make([]float64, c.Threads)
	used := 0.0
	for at, k := range files {
		s := x.size(k)
		if bounded && used+s > c.Capacity {
			break
		}
		used += s
		clock[at%c.Threads] += x.pfs(s, x.n) + x.write(s)
		x.nodes[i].p = append(x.nodes[i].p, clock[at%c.Threads])
		x.nodes[i].copies[k] = referenceCopy{class, 0}
		x.res.SourceTotal += s
		loaded = append(loaded, k)
	}
	return loaded, slices.Max(clock)
}

func span(from, to int) (all []int) {
	for k := from; k < to; k++ {
		all = append(all, k)
	}
	return all
}

func (x *reference) setUp() {
	each := x.f / x.n
	bucket := func(i int) []int { return span(i*each, (i+1)*each) }
	own := make([][]int, x.n)
	total := 0.0
	for k := range x.f {
		total += x.size(k)
	}
	next := 0
	for i, n := range x.nodes {
		switch x.policy {
		case "deepio_ordered", "deepio_opportunistic":
			if total/float64(x.n) > x.job.Env.Classes[1].Capacity {
				own[i], x.stall = x.preload(i, 1, span(next, x.f), true)
				next += len(own[i])
			} else if i == x.n-1 {
				own[i], x.stall = x.preload(i, 1, span(i*each, x.f), false)
			} else {
				own[i], x.stall = x.preload(i, 1, bucket(i), false)
			}
		case "lbann_preloading":
			_, x.stall = x.preload(i, 1, bucket(i), false)
		case "lbann_dynamic":
			c := x.job.Env.Classes[1]
			clock := make([]float64, c.Threads)
			for at, k := range n.r[:min(each, len(n.r)/x.job.Epochs)] {
				clock[at%c.Threads] += x.pfs(x.size(k), x.n) + x.write(x.size(k))
				n.p = append(n.p, clock[at%c.Threads])
				n.copies[k] = referenceCopy{1, clock[at%c.Threads]}
			}
		case "locality":
			_, x.stall = x.preload(i, 2, bucket(i), true)
		case "sharded":
			c := x.job.Env.Classes[2]
			var end float64
			own[i], end = x.preload(i, 2, bucket(i), true)
			used := 0.0
			for _, k := range own[i] {
				used += x.size(k)
			}
			clock := slices.Repeat([]float64{end}, c.Threads)
			for k := 0; k < i*each && used+x.size(k) <= c.Capacity; k++ {
				used += x.size(k)
				clock[k%c.Threads] += x.size(k)/min(x.job.Env.PeerBandwidth, x.rate(2)) + x.write(x.size(k))
				n.copies[k] = referenceCopy{2, 0}
			}
			x.stall = slices.Max(clock)
		case "frequency":
			n.order = x.frequencyOrder(n)
			for j := 1; j < len(x.job.Env.Classes); j++ {
				n.classes = append(n.classes, &referenceClass{clock: make([]float64, x.job.Env.Classes[j].Threads)})
			}
			x.fillClasses(n, 0)
		}
		if x.policy == "frequency" || x.policy == "staging" {
			x.fill(i, 0)
		}
	}
	rng := rand.New(rand.NewPCG(x.job.Seed, drawOfRewrite))
	pick := func(files []int) int { return files[rng.IntN(max(1, len(files)-1))] }
	for i, n := range x.nodes {
		for f := range n.r {
			switch {
			case x.policy == "sharded":
				n.r[f] = pick(own[i])
			case x.policy == "deepio_opportunistic" && (i == 0 || rng.IntN(x.n-1) == 0):
				n.r[f] = pick(own[i])
			case x.policy == "deepio_opportunistic":
				n.r[f] = pick(own[i-1])
			}
		}
	}
	for i := range x.nodes {
		if x.policy != "naive" && x.policy != "frequency" && x.policy != "staging" {
			x.fill(i, 0)
		}
	}
}

func (x *reference) frequencyOrder(n *referenceNode) []int {
	often, first := map[int]int{}, map[int]int{}
	for f, k := range n.r {
		if often[k]++; often[k] == 1 {
			first[k] = f
		}
	}
	order := span(0, x.f)
	slices.SortStableFunc(order, func(a, b int) int { return often[b] - often[a] })
	from := 0
	for _, c := range x.job.Env.Classes {
		to, size := from, 0.0
		for to < x.f && size <= c.Capacity {
			size += x.size(order[to])
			to++
		}
		slices.SortStableFunc(order[from:to], func(a, b int) int {
			if (often[a] > 0) != (often[b] > 0) {
				return often[b] - often[a]
			}
			return cmp.Compare(first[a], first[b])
		})
		from = to
	}
	return order
}

// fillClasses is one pass over the classes, from where the last pass ended.
func (x *reference) fillClasses(n *referenceNode, time float64) {
	for at, c := range n.classes {
		j := at + 1
		for n.listed < x.f-1 {
			k := n.order[n.listed]
			s := x.size(k)
			if c.used+s > x.job.Env.Classes[j].Capacity {
				break
			}
			thread := &c.clock[c.reads%len(c.clock)]
			begin := max(*thread, time)
			*thread = begin + (x.pfs(s, x.n) + x.write(s))
			n.p = append(n.p, begin)
			n.copies[k] = referenceCopy{j, *thread}
			c.used += s
			c.reads++
			n.listed++
		}
	}
}

// runReference runs a job with the scheme Uniform.
func runReference(job *Job, policy string) *Result {
	x := &reference{job: job, policy: policy, n: job.Nodes, f: len(job.Sizes), res: &Result{Supported: true}}
	x.res.Reads.Local = map[string]Amount{}
	stream, err := streamOf(job)
	if err != nil {
		panic(err)
	}
	for range x.n {
		x.nodes = append(x.nodes, &referenceNode{
			entries: map[int]referenceEntry{}, copies: map[int]referenceCopy{}, charged: map[int]bool{},
			clock: make([]float64, job.Env.Classes[0].Threads),
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
	if policy != "perfect" {
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
		for k, c := range n.copies {
			if s := x.size(k); (x.policy == "frequency" || x.policy == "lbann_dynamic") && c.avail-(x.pfs(s, x.n)+x.write(s)) < g-1e-9 {
				x.res.SourceTotal += s
			}
		}
	}
}
