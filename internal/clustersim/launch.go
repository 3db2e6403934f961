package clustersim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/request"
)

const (
	startTimeout = 30 * time.Second
	// breaks is how long it takes until a process in an allreduce notices that another has failed.
	breaks = 5 * time.Second
	// patience is how long a process whose step failed elsewhere waits for its error.
	patience = 3 * time.Minute
)

// launch is a launch in progress.
type launch struct {
	*world
	script.Launch
	number int
	from   position
	config string
	crew   *crew
	life   context.Context
	kill   context.CancelCauseFunc
	nodes  []context.Context // by node; ends with it
	ended  sync.WaitGroup    // the processes
}

// launch starts all ranks at a batch, and waits until they have ended. It returns where the next
// launch begins; over reports that the job has come to its end.
func (w *world) launch(number int, s script.Launch, from position) (next position, over bool,
	err error,
) {
	l := &launch{world: w, Launch: s, number: number, from: from, crew: newCrew(s.WorldSize())}
	if l.config, err = w.configFile(); err != nil {
		return from, false, err
	}
	l.life, l.kill = context.WithCancelCause(context.Background())
	defer l.kill(nil)
	stops := make([]context.CancelFunc, s.Nodes)
	l.nodes = make([]context.Context, s.Nodes)
	for n := range s.Nodes {
		l.nodes[n], stops[n] = context.WithCancel(l.life)
		w.box(n)
	}
	faults := w.inject(l.life, number, func(n int) { // a node dies
		w.network.Kill(w.box(n % s.Nodes).host)
		stops[n%s.Nodes]()
	}, func() { l.kill(errKilled) }, s)
	complete := make([]bool, s.WorldSize())
	for rank := range s.WorldSize() {
		l.ended.Go(func() { complete[rank] = l.play(rank) })
	}
	done := make(chan struct{})
	go func() {
		l.ended.Wait()
		close(done)
	}()
	if s.Kill > 0 {
		go func() {
			if l.crew.wait(l.life, func() bool {
				return l.crew.steps > 0 && l.crew.through >= l.crew.first+s.Kill
			}) == nil {
				if s.Crash {
					for n := range s.Nodes {
						w.network.Kill(w.box(n).host)
					}
				}
				l.kill(errKilled)
			}
		}()
	}
	select {
	case <-done:
	case <-time.After(deadline):
		l.add(judge.Event{Kind: judge.Broken, Text: "the launch does not end"})
		l.kill(errKilled)
		select {
		case <-done:
		case <-time.After(deadline):
			stacks := make([]byte, 1<<20)
			return from, false, fmt.Errorf("launch %d cannot be ended:\n%s", number,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
	l.kill(nil)
	faults.Wait()
	for n := range s.Nodes {
		if s.Crash || stops[n] != nil && l.nodes[n].Err() != nil && w.died(n, number, s) {
			w.crash(n)
		}
	}
	for _, stop := range stops {
		stop()
	}
	if next, over = l.crew.reached(); !over {
		return from, false, nil
	}
	return next, !slices.Contains(complete, false), nil
}

// died reports whether a node died in a launch.
func (w *world) died(n, launch int, s script.Launch) bool {
	for _, e := range w.script.Events {
		if e.Kind == script.Die && e.Launch == launch && e.Node%s.Nodes == n {
			return true
		}
	}
	return false
}

// add adds an event to the history.
func (l *launch) add(e judge.Event) {
	e.Launch, e.At = l.number, time.Since(l.began)
	l.history.Add(e)
}

// play plays the process of a rank, and reports whether it has taken all batches.
func (l *launch) play(rank int) (complete bool) {
	defer func() { l.crew.leave(complete) }()
	n := rank / l.Ranks
	ctx := l.nodes[n]
	left := judge.Event{Kind: judge.Left, Rank: rank}
	if rank < len(l.Late) && !sleep(ctx, l.Late[rank].D()) {
		l.add(left)
		return false
	}
	p, err := process.Open(ctx, process.Options{
		Node: l.box(n).Node, Request: l.request(rank), Content: l.script.Delivered,
		Hold: l.script.Hold,
	})
	switch {
	case ctx.Err() != nil:
		l.add(left)
		if err == nil {
			p.Close()
		}
		return false
	case err != nil:
		l.add(judge.Event{Kind: judge.Refused, Rank: rank, Text: err.Error()})
		l.crew.fail()
		return false
	}
	defer p.Close()
	l.add(judge.Event{Kind: judge.Opened, Rank: rank})
	t := &trainer{launch: l, rank: rank, Process: p}
	t.position = l.crew.opened(p.Steps(), l.from)
	err = t.train(ctx)
	for tries := 0; err != nil && ctx.Err() == nil && t.failed && tries < l.script.Again; tries++ {
		if t.position, err = l.crew.gather(ctx, t.position); err != nil {
			break
		}
		err = t.train(ctx)
	}
	if ctx.Err() != nil && !t.over {
		l.add(left)
	}
	return err == nil && t.complete
}

// request returns the request to open the job as a rank.
func (l *launch) request(rank int) request.Open {
	s := l.script
	seed := s.Seed
	m := request.Open{
		Job: "job", Rank: rank, WorldSize: l.WorldSize(),
		Stream: request.Stream{
			Seed: &seed, Epochs: s.Epochs, GlobalBatch: s.Batch, DropLast: s.DropLast,
			Shuffle: s.Shuffle, Scheme: s.Scheme, Tail: s.Tail,
		},
		Verify: s.Verify,
		Settings: request.Settings{ConfigFile: l.config, Arguments: map[string]any{
			"memory": fmt.Sprintf("%dB", s.Memory), "staging_buffer": fmt.Sprintf("%dB", s.Staging),
			"policy": s.Policy, "on_error": s.OnError,
			"source_timeout": s.Timeout.D().String(), "start_timeout": startTimeout.String(),
		}},
	}
	m.Dataset.Kind, m.Dataset.Path = "simulated", "/simulated"
	if s.Prefetch > 0 {
		m.Arguments["prefetch_batches"] = s.Prefetch
	}
	if s.Threads > 0 {
		m.Arguments["source_threads"] = s.Threads
	}
	if s.Disk > 0 {
		m.Arguments["cache_dir"] = l.cacheDir(rank / l.Ranks)
		m.Arguments["cache_size"] = fmt.Sprintf("%dB", s.Disk)
	}
	if s.Transforms {
		m.Transforms = fmt.Appendf(nil, `[
			{"name": "Reshape", "w": %d, "h": 1, "c": 1, "dtype": "uint8"},
			{"name": "ScaleShift16", "scale": 0.5, "shift": [1]}]`, s.Largest)
	}
	if l.Nodes > 1 {
		m.Cluster = &request.Cluster{
			Nodes: l.Nodes, Node: rank / l.Ranks, LocalWorldSize: l.Ranks,
			Address: ip(0) + ":6000", Secret: "0123456789abcdef0123456789abcdef",
		}
	}
	return m
}

// trainer is a process in training.
type trainer struct {
	*launch
	*process.Process
	rank     int
	position int  // of the next batch
	failed   bool // the stream ended with an error
	over     bool // the process has nothing more to do
	complete bool // all batches were taken
}

func (t *trainer) note(k judge.Kind, ids []int, text string) {
	t.add(judge.Event{
		Kind: k, Rank: t.rank, Epoch: t.position / t.Steps(), Step: t.position % t.Steps(),
		IDs: ids, Text: text,
	})
}

// train takes batches from t.position on, and trains on them.
func (t *trainer) train(ctx context.Context) error {
	t.failed = false
	t.note(judge.Began, nil, "")
	if t.position == t.script.Epochs*t.Steps() { // another launch has come to the end
		t.note(judge.Ended, nil, "")
		t.over, t.complete = true, true
		return nil
	}
	if err := t.Begin(t.position); err != nil {
		return t.fail(judge.Refused, err)
	}
	broken := false // another process has failed
	for {
		within, cancel := ctx, context.CancelFunc(func() {})
		if broken {
			within, cancel = context.WithTimeout(ctx, patience)
		}
		if f := t.paused(t.rank, t.WorldSize()); f != nil {
			select {
			case <-f.over:
			case <-ctx.Done():
			}
		}
		b, err := t.Next(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && broken:
			return t.fail(judge.Stuck, err)
		case errors.Is(err, process.ErrEnd):
			t.note(judge.Ended, nil, "")
			t.over, t.complete = true, true
			return nil
		case errors.Is(err, process.ErrWrong):
			return t.fail(judge.Wrong, err)
		case err != nil:
			t.failed = true
			return t.fail(judge.Failed, err)
		}
		ids := []int{}
		for _, id := range b.IDs {
			ids = append(ids, int(id))
		}
		t.note(judge.Got, ids, "")
		if broken {
			return t.fail(judge.Stuck, errors.New("a batch instead of the error of another rank"))
		}
		if !sleep(ctx, t.script.Step.D()) {
			return ctx.Err()
		}
		if err := t.Trained(); err != nil {
			return t.fail(judge.Wrong, err)
		}
		t.position++
		if t.script.Apart {
			t.crew.advance(t.rank, t.position)
			continue
		}
		ok, err := t.crew.finish(ctx, t.position-1)
		if err != nil {
			return err
		}
		if broken = !ok; broken && !sleep(ctx, breaks) {
			return ctx.Err()
		}
	}
}

// fail notes how the process fails, of which the others learn.
func (t *trainer) fail(k judge.Kind, err error) error {
	t.note(k, nil, err.Error())
	t.over = k != judge.Failed || t.script.Again == 0
	t.crew.fail()
	return err
}
