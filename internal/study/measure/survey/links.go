package survey

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/cluster"
	"github.com/hdmlp/hdmlp/internal/peers/cluster/agent"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
	"github.com/hdmlp/hdmlp/internal/study/measure"
)

// job is the name of what the nodes form.
const job = "hdmlp probe"

// Fact is what must be the same on all nodes.
type Fact = cluster.Fact

// Options describe this node.
type NodesOptions struct {
	Node, Nodes int
	Address     string // where node 0 listens, or where to reach it
	Interface   string // where the other nodes reach this one; "": the address that node 0 sees
	Secret      []byte
	Facts       []Fact
	// Sample is the size of samples that nodes send, in bytes.
	Sample   int64
	Wait     time.Duration // for the other nodes
	Progress func(string)
	Network  cluster.Network // nil: the system's
}

// Group is this node among the others.
type Group struct {
	Node, Nodes int

	cluster *agent.Agent
	server  *exchange.Server
	client  *exchange.Client // of the next node
	samples holder
	serving sync.WaitGroup
	meeting int
}

// Page is the size in bytes of the small samples that nodes send, to measure the latency.
const Page = 4096

// Join finds the other nodes. They must have the same facts.
func Join(ctx context.Context, o NodesOptions) (_ *Group, err error) {
	local, err := cluster.Local(o.Node, o.Interface)
	if err != nil {
		return nil, err
	}
	listener, err := cluster.Listen(ctx, o.Network, o.Node, "samples", local, 0)
	if err != nil {
		return nil, err
	}
	form := cluster.Options{
		Job: job, Node: o.Node, Nodes: o.Nodes, WorldSize: o.Nodes, Ranks: []int{o.Node},
		Exchange: net.JoinHostPort(local, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)),
		Secret:   o.Secret, Deadline: o.Wait, Whole: true, Facts: o.Facts, Network: o.Network,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Progress: o.Progress,
	}
	if o.Node == 0 {
		form.Listen = o.Address
	} else {
		form.Join = o.Address
	}
	formed, err := agent.Form(ctx, form)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	g := &Group{
		Node: o.Node, Nodes: o.Nodes, cluster: formed, samples: newHolder(Page, o.Sample),
	}
	id := exchange.Identity{Job: job, Node: o.Node, Nodes: o.Nodes, Secret: o.Secret}
	g.server = exchange.NewServer(id, &g.samples, exchange.ServerOptions{})
	g.serving.Go(func() { _ = g.server.Serve(context.WithoutCancel(ctx), listener) })
	next := (o.Node + 1) % o.Nodes
	g.client = exchange.NewClient(id, next, func(ctx context.Context) (net.Conn, error) {
		return formed.Dial(ctx, next)
	}, exchange.ClientOptions{})
	return g, nil
}

// Watch calls f with each node that is lost, or was before, from one goroutine, and maybe more than
// once; f must not call Close.
func (g *Group) Watch(f func(node int)) {
	g.cluster.Notify(func(node int, alive bool) {
		if !alive {
			f(node)
		}
	})
}

// Close leaves the group.
func (g *Group) Close() error {
	err := errors.Join(g.client.Close(), g.server.Close())
	g.serving.Wait()
	return errors.Join(err, g.cluster.Close())
}

// holder holds samples of random bytes.
type holder struct {
	samples [][]byte
	digests []uint32
}

func newHolder(sizes ...int64) (h holder) {
	for _, size := range sizes {
		data := make([]byte, size)
		_, _ = crand.Read(data) // never fails
		h.samples, h.digests = append(h.samples, data), append(h.digests, digest.Of(data))
	}
	return h
}

// Held implements exchange.Holder.
func (h *holder) Held(id int32, _ exchange.Want) (c exchange.Copy, held bool) {
	if int(id) >= len(h.samples) {
		return c, false
	}
	return exchange.Copy{Data: h.samples[id], Digest: h.digests[id]}, true
}

// Sample implements exchange.Holder.
func (h *holder) Sample(context.Context, int32, exchange.Want,
	func(exchange.Copy, bool) error,
) error {
	return exchange.ErrNotHeld
}

// Together waits until all nodes have come to the same step, and returns what each gave, by number.
func (g *Group) Together(ctx context.Context, mine []byte) ([][]byte, error) {
	g.meeting++
	return g.cluster.Gather(ctx, "step "+strconv.Itoa(g.meeting), mine)
}

// Tell is Together for values that are written as JSON.
func Tell[T any](ctx context.Context, g *Group, mine T) ([]T, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	given, err := g.Together(ctx, text)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(given))
	for n, text := range given {
		if err := json.Unmarshal(text, &all[n]); err != nil {
			return nil, fmt.Errorf("node %d: %w", n, err)
		}
	}
	return all, nil
}

// StepError reports that a step failed on a node. All nodes get it, and can go on with the next
// step.
type StepError struct {
	Node int
	Why  string
}

func (e *StepError) Error() string { return fmt.Sprintf("node %d: %s", e.Node, e.Why) }

// answer is what a node measured in a step.
type answer struct {
	Rates []float64 // of windows
	Error string    // "": none
}

// at measures the load on the first so many nodes at the same time, and returns each one's rates.
func (g *Group) at(ctx context.Context, nodes int, l measure.Load,
	o measure.SteadyOptions,
) ([][]float64, error) {
	var mine answer
	began := false
	o.Begin = func(ctx context.Context) error {
		began = true
		_, err := g.Together(ctx, nil)
		return err
	}
	if g.Node < nodes {
		rates, err := measure.Steady(ctx, l, o)
		if mine.Rates = rates; err != nil {
			mine.Error = err.Error()
		}
	}
	if !began { // it was not prepared, or has no part
		if err := o.Begin(ctx); err != nil {
			return nil, err
		}
	}
	all, err := Tell(ctx, g, mine)
	if err != nil {
		return nil, err
	}
	rates := make([][]float64, nodes)
	for n := range nodes {
		if all[n].Error != "" {
			return nil, &StepError{n, all[n].Error}
		}
		rates[n] = all[n].Rates
	}
	return rates, nil
}

// Total is a throughput of several nodes together.
type Total struct {
	Nodes int           `json:"nodes"`
	Point measure.Point `json:"rate"` // its streams are those of a node
}

// Sources measures t(gamma): 1, 2, 4, ... and all nodes read at the same time, as Steady does. What
// was measured until an error is returned with it.
func (g *Group) Sources(ctx context.Context, l measure.Load, o measure.SteadyOptions,
	progress func(nodes int),
) (all []Total, err error) {
	for nodes := 1; ; nodes = min(2*nodes, g.Nodes) {
		progress(nodes)
		rates, err := g.at(ctx, nodes, l, o)
		if err != nil {
			return all, err
		}
		total := Total{Nodes: nodes, Point: measure.Point{Streams: o.Streams}}
		for w := 0; ; w++ { // all nodes' windows began at about the same time
			sum, whole := 0.0, true
			for _, of := range rates {
				if whole = whole && w < len(of); whole {
					sum += of[w]
				}
			}
			if !whole {
				break
			}
			total.Point.Rounds = append(total.Point.Rounds, sum)
		}
		if len(total.Point.Rounds) > 0 {
			total.Point.Rate = measure.EstimateOf(total.Point.Rounds)
			all = append(all, total)
		}
		if nodes == g.Nodes {
			return all, nil
		}
	}
}

// Steps returns how many steps Sources has.
func Steps(nodes int) int {
	steps := 1
	for n := 1; n < nodes; n = min(2*n, nodes) {
		steps++
	}
	return steps
}

// NetworkStreams are the numbers of streams that Network measures.
var NetworkStreams = []int{1, 4, 16, 64}

// Network measures b_c: all nodes read from the next one at the same time. It returns the curves of
// this node, of small samples with one stream and of samples of the usual size.
func (g *Group) Network(ctx context.Context, window time.Duration, windows int,
	progress func(streams int),
) ([]measure.Curve, error) {
	buffers := make([][]byte, NetworkStreams[len(NetworkStreams)-1])
	for i := range buffers {
		buffers[i] = make([]byte, max(len(g.samples.samples[0]), len(g.samples.samples[1])))
	}
	fetch := func(id int32) measure.Load {
		size := len(g.samples.samples[id])
		return measure.Load{Do: func(ctx context.Context, stream, _ int) (int64, error) {
			_, err := g.client.Fetch(ctx, id, buffers[stream][:size], exchange.Want{Size: size})
			return int64(size), err
		}}
	}
	curves := []measure.Curve{
		{Size: float64(Page) / 1e6}, {Size: float64(len(g.samples.samples[1])) / 1e6},
	}
	one := func(id int32, streams int) error {
		progress(streams)
		rates, err := g.at(ctx, g.Nodes, fetch(id),
			measure.SteadyOptions{Streams: streams, Window: window, Windows: windows})
		if err != nil {
			return err
		}
		curves[id].Points = append(curves[id].Points, measure.Point{
			Streams: streams, Rounds: rates[g.Node], Rate: measure.EstimateOf(rates[g.Node]),
		})
		return nil
	}
	if err := one(0, 1); err != nil {
		return nil, err
	}
	for _, streams := range NetworkStreams {
		if err := one(1, streams); err != nil {
			return curves, err
		}
	}
	return curves, nil
}
