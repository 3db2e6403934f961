package top

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/hdmlp/hdmlp/internal/report"
)

// Options configure Live and Print.
type Options struct {
	// Ask returns the jobs' reports. It must return when its context ends. Calls do not overlap.
	Ask      func(context.Context) ([]*report.ClusterReport, error)
	Interval time.Duration // between an answer of Ask and its next call
	Colour   bool
	Out      io.Writer
}

// window is the time over which the speed for the remaining time is measured.
const window = 15 * time.Second

// history holds the snapshots of the last window, the newest last.
type history []*Snapshot

// add appends a snapshot, and drops those older than the window, except one.
func (h history) add(s *Snapshot) history {
	h = append(h, s)
	for len(h) > 2 && s.At.Sub(h[1].At) >= window {
		h = h[1:]
	}
	return h
}

// screen returns the screen of the newest snapshot.
func (h history) screen() Screen {
	switch len(h) {
	case 0:
		return Screen{}
	case 1:
		return Screen{Now: h[0]}
	}
	return Screen{Now: h[len(h)-1], Before: h[len(h)-2], Earlier: h[0]}
}

// Live shows the jobs in a terminal, whose input is in and output o.Out, until the user quits or
// ctx ends. While Ask fails, the screen shows the error, and Live continues to call it.
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

// model is Live's state. It is used only by the library's goroutine.
type model struct {
	ctx     context.Context
	o       Options
	history history
	problem string
	width   int
	height  int
	ranks   *bool // the user's choice with r; nil: show ranks if they fit
	from    int   // first line shown
}

// answerMsg is an answer of Ask.
type answerMsg struct {
	snapshot *Snapshot
	err      error
}

// askMsg is sent when it is time to call Ask.
type askMsg struct{}

func (m *model) Init() tea.Cmd { return m.ask }

func (m *model) ask() tea.Msg {
	jobs, err := m.o.Ask(m.ctx)
	return answerMsg{&Snapshot{time.Now(), jobs}, err}
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case answerMsg:
		m.problem = ""
		if msg.err != nil {
			m.problem = msg.err.Error()
			m.history = nil // the next answer may be another daemon's
		} else {
			m.history = m.history.add(msg.snapshot)
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

// hidden returns the number of lines that do not fit.
func (m *model) hidden() int {
	s := m.screen()
	return s.overflow()
}

func (m *model) screen() Screen {
	s := m.history.screen()
	s.Problem = m.problem
	s.Width = m.width
	s.Height = m.height
	s.Colour = m.o.Colour
	s.From = m.from
	s.Keys = "q quit  r ranks  up/down"
	s.Ranks = true
	if m.ranks != nil {
		s.Ranks = *m.ranks
	} else if s.overflow() > 0 {
		s.Ranks = false
	}
	return s
}

// View implements tea.Model.
func (m *model) View() tea.View {
	if m.width == 0 { // before the first WindowSizeMsg
		return tea.View{AltScreen: true}
	}
	s := m.screen()
	return tea.View{Content: s.Text(), AltScreen: true, WindowTitle: "hdmlp top"}
}
