package top

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/hdmlp/hdmlp/internal/stats"
)

// Options say what Live and Print show.
type Options struct {
	// Ask returns the jobs. One call at a time; it returns when its context ends.
	Ask      func(context.Context) ([]*stats.ClusterReport, error)
	Interval time.Duration // between one answer and the next question
	Colour   bool
	Out      io.Writer
}

// window is how far back the time left is measured from.
const window = 15 * time.Second

// history is the snapshots of the last window, the newest last.
type history []*Snapshot

// add puts a snapshot behind the others, and forgets those that are too old, but for one.
func (h history) add(s *Snapshot) history {
	h = append(h, s)
	for len(h) > 2 && s.At.Sub(h[1].At) >= window {
		h = h[1:]
	}
	return h
}

// screen is the newest snapshot's.
func (h history) screen() Screen {
	switch len(h) {
	case 0:
		return Screen{}
	case 1:
		return Screen{Now: h[0]}
	}
	return Screen{Now: h[len(h)-1], Before: h[len(h)-2], Earlier: h[0]}
}

// Live shows the jobs in the terminal that In and Out are, until q, Ctrl-C or ctx's end. While
// nobody answers the screen says why, and goes on asking.
func Live(ctx context.Context, in io.Reader, o Options) error {
	m := &model{ctx: ctx, o: o}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(o.Out),
		tea.WithEnvironment(os.Environ()), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// model is Live's state; only the library's one goroutine touches it.
type model struct {
	ctx     context.Context
	o       Options
	heard   history
	problem string
	width   int
	height  int
	ranks   *bool // as r has chosen; nil: where there is room for them
	from    int
}

// heardMsg is an answer.
type heardMsg struct {
	snapshot *Snapshot
	err      error
}

// askMsg: it is time to ask.
type askMsg struct{}

func (m *model) Init() tea.Cmd { return m.ask }

func (m *model) ask() tea.Msg {
	jobs, err := m.o.Ask(m.ctx)
	return heardMsg{&Snapshot{time.Now(), jobs}, err}
}

// Update is tea.Model's.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case heardMsg:
		m.problem = ""
		if msg.err != nil {
			m.problem = msg.err.Error()
			m.heard = nil // whoever answers next may be another daemon
		} else {
			m.heard = m.heard.add(msg.snapshot)
		}
		return m, tea.Tick(m.o.Interval, func(time.Time) tea.Msg { return askMsg{} })
	case askMsg:
		return m, m.ask
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *model) key(key string) tea.Cmd {
	switch key {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "r":
		s := m.screen()
		shown := !s.Ranks
		m.ranks = &shown
	case "down", "j":
		m.from = min(m.from+1, m.hidden())
	case "up", "k":
		m.from = max(0, min(m.from, m.hidden())-1)
	}
	return nil
}

// hidden is how many lines there are too many.
func (m *model) hidden() int {
	s := m.screen()
	return s.tooMany()
}

func (m *model) screen() Screen {
	s := m.heard.screen()
	s.Problem, s.Width, s.Height, s.Colour, s.From = m.problem, m.width, m.height, m.o.Colour,
		m.from
	s.Keys = "q quit  r ranks  up/down"
	s.Ranks = true
	if m.ranks != nil {
		s.Ranks = *m.ranks
	} else if s.tooMany() > 0 {
		s.Ranks = false
	}
	return s
}

// View is tea.Model's.
func (m *model) View() tea.View {
	if m.width == 0 { // before the first WindowSizeMsg
		return tea.View{AltScreen: true}
	}
	s := m.screen()
	return tea.View{Content: s.Text(), AltScreen: true, WindowTitle: "hdmlp top"}
}
