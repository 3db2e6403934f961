package clustersim

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

const (
	startTimeout = 30 * time.Second
	// breaks is how long it takes until a process in an allreduce notices that another has failed.
	breaks = 5 * time.Second
	// errorTimeout is how long a process whose step failed elsewhere waits for its error.
	errorTimeout = 3 * time.Minute
)

// launch is a launch in progress.
type launch struct {
	*world
	script.Launch
	number int
	from   process.Position
	config string
	crew   *process.Crew
	life   context.Context
	kill   context.CancelCauseFunc
	nodes  []context.Context        // by node; ends with it
	before []judge.Amount           // by node, what it had read from the source
	held   map[int]map[string]int64 // as world.kept when the launch began
	ended  sync.WaitGroup           // the processes
}

// launch starts all ranks at a batch, and waits until they have ended. It returns where the next
// launch begins; over reports that the job has come to its end.
func (w *world) launch(number int, s script.Launch, from process.Position) (
	next process.Position, over bool, err error,
) {
	l := &launch{
		world: w, Launch: s, number: number, from: from, crew: process.NewCrew(s.WorldSize()),
		held: maps.Clone(w.kept),
	}
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
		samples, bytes := w.origin.Read(n)
		l.before = append(l.before, judge.Amount{Samples: samples, Bytes: bytes})
	}
	l.beside()
	l.members()
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
	var killer sync.WaitGroup
	if s.Kill > 0 {
		killer.Go(func() {
			if l.crew.Through(l.life, s.Kill) == nil {
				if s.Crash {
					for n := range s.Nodes {
						w.network.Kill(w.box(n).host)
					}
				}
				l.kill(errKilled)
			}
		})
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
	killer.Wait() // else it could strike in the next launch
	faults.Wait()
	for n := range s.Nodes {
		if s.Restart {
			w.end(n)
		}
		if s.Crash || stops[n] != nil && l.nodes[n].Err() != nil && w.script.Dies(number, n) {
			w.crash(n)
		}
	}
	for _, stop := range stops {
		stop()
	}
	if next, over = l.crew.Reached(); !over {
		return from, false, nil
	}
	return next, !slices.Contains(complete, false), nil
}

// add adds an event to the history.
func (l *launch) add(e judge.Event) {
	e.Launch, e.At = l.number, time.Since(l.began)
	l.history.Add(e)
}

// mismatched judges an error by which a rank differs from others.
func (l *launch) mismatched(rank int, err error) {
	if l.Nodes > 1 && l.Ranks > 1 { // the error has the setting of the node's first rank
		return
	}
	if wrong := process.Mismatched(err, l.request(rank)); wrong != "" {
		l.broken(rank, "%s", wrong)
	}
}

// options returns what a rank's process is opened with.
func (l *launch) options(rank int) process.Options {
	return process.Options{
		Node: l.box(rank / l.Ranks).Node, Request: l.request(rank), Part: l.part(rank),
		Content: l.content(rank), Label: l.script.Label,
		Decodes: l.decodes, Hold: l.script.Hold, Keeps: l.script.Keeps, Lies: l.lies(rank),
		Notes: l.script.Notes(), Calm: l.script.Calm(),
	}
}

// play plays the process of a rank, and reports whether it has taken all batches.
func (l *launch) play(rank int) (complete bool) {
	defer func() { l.crew.Leave(complete) }()
	n := rank / l.Ranks
	ctx := l.nodes[n]
	left := judge.Event{Kind: judge.Left, Rank: rank}
	if rank < len(l.Late) && !sleep(ctx, l.Late[rank].D()) {
		l.add(left)
		return false
	}
	var told []string
	o := l.options(rank)
	o.Told = func(what string) { told = append(told, what) }
	p, err := process.Open(ctx, o)
	switch {
	case ctx.Err() != nil:
		l.add(left)
		if err == nil {
			p.Close()
		}
		return false
	case err != nil:
		l.add(judge.Event{Kind: judge.Refused, Rank: rank, Text: err.Error()})
		l.mismatched(rank, err)
		l.crew.Fail(true)
		return false
	}
	t := &trainer{launch: l, rank: rank, Process: p, took: map[int]bool{}, heard: map[int]bool{}}
	defer t.close()
	l.add(judge.Event{Kind: judge.Opened, Rank: rank})
	l.waited(rank, told)
	if l.script.Twice {
		l.twice(rank)
	}
	l.warm(rank, p.State().Classes)
	t.position = l.crew.Opened(p.Steps(), l.from)
	defer t.early(ctx)()
	defer t.asked.Wait()
	err = t.train(ctx)
	for tries := 0; err != nil && ctx.Err() == nil && t.failed && tries < l.script.Again; tries++ {
		if err = t.again(ctx); err != nil {
			break
		}
		err = t.train(ctx)
	}
	if t.failed {
		t.review(ctx)
	}
	if ctx.Err() != nil && !t.over {
		l.add(left)
	}
	return err == nil && t.complete
}
