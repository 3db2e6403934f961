package clustersim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// rests is how long a member that rests does not run: longer than others wait for it.
const rests = time.Minute

// member is a job of a group, and what its process observed.
type member struct {
	script.Member
	*launch
	number int
	seen   judge.History
}

// members starts the jobs of the group in the first launch.
func (l *launch) members() {
	if l.number > 0 {
		return
	}
	for i, s := range l.script.Members {
		m := &member{Member: s, launch: l, number: i}
		l.group = append(l.group, m)
		l.ended.Go(func() { m.play(l.nodes[0]) })
	}
}

// judged returns what is wrong with what a member got: it is not what it would get alone.
func (m *member) judged() (wrong []string) {
	alone := m.script.Alone(m.Member)
	for _, e := range judge.Judge(alone, judge.Orders(alone, nil), m.seen.Events(), nil) {
		wrong = append(wrong, fmt.Sprintf("member %d: %s", m.number, e))
	}
	return wrong
}

// request returns the request of the member's job.
func (m *member) request() request.Open {
	r := m.alone()
	r.Job, r.Transforms = fmt.Sprint("member ", m.number), m.launch.request(0).Transforms
	r.Stream.Epochs, r.Stream.GlobalBatch = m.script.Epochs, m.Batch
	r.Stream.Shuffle = m.script.Shuffle
	r.Arguments["share"] = "group"
	return r
}

// play plays the member's process.
func (m *member) play(ctx context.Context) {
	if !sleep(ctx, m.Late.D()) {
		return
	}
	at := judge.Event{Kind: judge.Refused}
	note := func(k judge.Kind, text string) {
		at.Kind = k
		at.Text = text
		at.At = time.Since(m.began)
		m.seen.Add(at)
	}
	p, err := process.Open(ctx, process.Options{
		Node: m.box(0).Node, Request: m.request(),
		Content: func(id int) []byte { return m.script.Delivered(0, id) }, Label: m.script.Label,
		Decodes: func(int) bool { return true }, Lies: -1,
	})
	if err != nil {
		if ctx.Err() == nil {
			note(judge.Refused, err.Error())
		}
		return
	}
	defer p.Close()
	note(judge.Began, "")
	if err := p.Begin(0); err != nil {
		note(judge.Refused, err.Error())
		return
	}
	for taken := 1; ; taken++ {
		within, cancel := context.WithTimeout(ctx, most)
		b, err := p.Next(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			note(judge.Left, "")
			return
		case errors.Is(err, process.ErrEnd):
			at.Epoch, at.Step = m.script.Epochs, 0
			note(judge.Ended, "")
			return
		case errors.Is(err, process.ErrWrong):
			note(judge.Wrong, err.Error())
			return
		case err != nil:
			note(judge.Failed, err.Error())
			return
		}
		got := judge.Event{Kind: judge.Got, Epoch: b.Epoch, Step: b.Step, IDs: []int{}}
		for _, id := range b.IDs {
			got.IDs = append(got.IDs, int(id))
		}
		m.seen.Add(got)
		rest := m.Step.D()
		if taken == m.Rest {
			rest = rests
		}
		if !sleep(ctx, rest) || taken == m.Leave {
			note(judge.Left, "")
			return
		}
		if err := p.Trained(); err != nil {
			note(judge.Wrong, err.Error())
			return
		}
	}
}
