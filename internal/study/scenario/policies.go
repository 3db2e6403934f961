package scenario

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/policyfile"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// Policies returns the names of all policies, in the order in which they are shown.
func Policies() []string { return policies.Names(policies.All()) }

// Policy returns the scenario's policy of that name; nil if it has none.
func (s *Scenario) Policy(name string) plan.Policy { return s.values[name] }

// about describes a policy of the scenario.
func (s *Scenario) about(name string) plan.About {
	if p := s.values[name]; p != nil {
		return p.About()
	}
	return plan.About{}
}

// Needs returns what the policy requires of the machine and the machine lacks, or "".
func (s *Scenario) Needs(policy string) string {
	class := func(j int) float64 {
		if j < len(s.Env.Classes) {
			return s.Env.Classes[j].Capacity
		}
		return 0
	}
	about := s.about(policy)
	switch {
	case about.Needs == plan.FirstClass && class(1) == 0:
		return policy + " keeps samples in storage class 1, which has no capacity"
	case about.Needs == plan.SomeClass && s.Env.LocalCapacity() == 0:
		return policy + " keeps samples in the storage classes from 1, which have no capacity"
	case about.Stages && class(0) == 0:
		return policy + " prefetches to the staging buffer, storage class 0, which has no capacity"
	}
	return ""
}

// texts returns the texts of a key that is a text or a list of texts. ok is false if a fault was
// noted.
func (r *reader) texts(key string, value any, allowed string) (texts []string, ok bool) {
	switch v := value.(type) {
	case string:
		return []string{v}, true
	case []any:
		ok = true
		for i, entry := range v {
			text, is := entry.(string)
			if !is {
				r.fault(fmt.Sprintf("%s.%d", key, i), entry, "not a text", allowed)
				ok = false
			}
			texts = append(texts, text)
		}
		return texts, ok
	}
	r.fault(key, value, "not a list of texts", allowed)
	return nil, false
}

func (r *reader) policies(key string, value any) {
	names, ok := r.texts(key, value, `"all", or names of `+human.List(Policies()))
	if !ok {
		return
	}
	chosen, err := ChoosePolicies(names)
	if err != nil {
		r.faults = append(r.faults, err.(Faults)...)
		return
	}
	r.scenario.Policies = chosen
	if !slices.Contains(names, "all") {
		r.scenario.named = true
	}
}

// ChoosePolicies returns the named policies, each once, in the order in which they are first named.
// The name "all" stands for every policy. Options follow a name, as policies.ForSimulator has them.
// It returns Faults if a name is unknown or names is empty.
func ChoosePolicies(names []string) ([]string, error) {
	known := Policies()
	var chosen []string
	var faults Faults
	for _, name := range names {
		if name == "all" {
			chosen = append(chosen, known...)
			continue
		}
		_, err := policies.ForSimulator(name)
		wrong, unknown := (*plan.WrongOption)(nil), (*policies.Unknown)(nil)
		switch {
		case errors.As(err, &unknown):
			faults = append(faults, Fault{
				Key: "simulate.policies", Value: envfile.Text(name),
				Wrong:   "unknown policy" + human.Nearest(unknown.Name, known),
				Allowed: "all, or " + human.List(known),
			})
		case errors.As(err, &wrong):
			faults = append(faults, Fault{
				Key: "simulate.policies", Value: envfile.Text(name), Wrong: wrong.Wrong,
				Allowed: wrong.Allowed,
			})
		default:
			chosen = append(chosen, name)
		}
	}
	if len(names) == 0 {
		faults = append(faults,
			Fault{Key: "simulate.policies", Wrong: "empty", Allowed: "all, or " + human.List(known)})
	}
	if faults != nil {
		return nil, faults
	}
	var once []string
	for _, name := range chosen {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, nil
}

// tableLines are the lines in plots of policies that are tables, by their place among them.
var tableLines = []plan.Line{
	{Colour: 0xb5179e},
	{Colour: 0x2a9d8f},
	{Colour: 0xb5179e, Dashed: true},
	{Colour: 0x2a9d8f, Dashed: true},
}

// policyFiles reads the policies that are tables, each a path with options after it. They are
// resolved after everything else (tables), because the scenario's policies may be set before or
// after.
func (r *reader) policyFiles(key string, value any) {
	allowed := "paths of tables, relative to the scenario file"
	texts, ok := r.texts(key, value, allowed)
	if !ok {
		return
	}
	for _, text := range texts {
		path, options, wrong := tableOptions(text)
		if wrong != "" {
			r.fault(key, text, wrong, "read_once=true or preload=true after a path and a colon")
			continue
		}
		if path == "" {
			r.fault(key, text, "not the name of a file", allowed)
			continue
		}
		table, err := r.file.tableOf(r.file.resolve(path))
		if err != nil {
			r.tableFault(text, err)
			continue
		}
		base := filepath.Base(path)
		r.loaded = append(r.loaded, loadedTable{
			text: text, table: table, options: options,
			name: strings.TrimSuffix(base, filepath.Ext(base)) + strings.TrimPrefix(text, path),
		})
	}
}

// loadedTable is a policy file that was read.
type loadedTable struct {
	text    string // as it was given
	name    string // of the policy: the file's, without its directory and extension
	table   *policyfile.Table
	options policyfile.Options
}

// tableOptions separates a path from the options after it. wrong is what is wrong with them, or "".
func tableOptions(text string) (path string, options policyfile.Options, wrong string) {
	path = text
	for {
		at := strings.LastIndexByte(path, ':')
		name, value, is := strings.Cut(path[at+1:], "=")
		if at < 0 || !is {
			return path, options, ""
		}
		to, ok := map[string]*bool{
			"read_once": &options.ReadOnce, "preload": &options.Preload,
		}[name]
		if !ok || value != "true" && value != "false" {
			return path, options, fmt.Sprintf("a table has no option %q", name+"="+value)
		}
		*to = value == "true"
		path = path[:at]
	}
}

// tableFault notes what is wrong with a policy file, by line. Long paths would be cut at their end.
func (r *reader) tableFault(text string, err error) {
	name := filepath.Base(text)
	wrong := (policyfile.Faults)(nil)
	if !errors.As(err, &wrong) {
		r.fault("simulate.policy_files", name, err.Error(), "")
		return
	}
	for _, f := range wrong {
		r.fault("simulate.policy_files", name, f.Error(), "")
	}
}

// tables adds the policies that are tables to the scenario's, and gives every policy its value.
func (r *reader) tables() {
	s := r.scenario
	s.values = map[string]plan.Policy{}
	for _, name := range s.Policies {
		p, err := policies.ForSimulator(name)
		if err != nil {
			continue // it was reported
		}
		s.values[name] = p
		if f, ok := p.(policies.FrequencyWith); ok && f.CleanupRead && s.Jobs > 1 && !s.Share {
			r.fault("simulate.policies", name, fmt.Sprintf("cleanup_read drops samples after the last "+
				"read of one job, and job.jobs = %d read them", s.Jobs), "one job, or job.share = true")
		}
	}
	s.Policies = slices.Clone(s.Policies)
	for i, l := range r.loaded {
		if slices.Contains(Policies(), l.name) || slices.Contains(s.files, l.name) {
			r.fault("simulate.policy_files", filepath.Base(l.text),
				fmt.Sprintf("another policy has the name %s, which the file gives to its own", l.name),
				"a file with another name")
			continue
		}
		s.Policies, s.files = append(s.Policies, l.name), append(s.files, l.name)
		s.values[l.name] = l.table.New(l.name, s.ClassNames, tableLines[i%len(tableLines)], l.options)
	}
}

// tableOf reads a policy file, once.
func (f *File) tableOf(path string) (*policyfile.Table, error) {
	c := &f.known
	c.mu.Lock()
	defer c.mu.Unlock()
	if table, ok := c.tables[path]; ok || c.fault[path] != nil {
		return table, c.fault[path]
	}
	file, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	table, err := policyfile.Read(file)
	if err != nil {
		c.fault[path] = err
		return nil, err
	}
	c.tables[path] = table
	return table, nil
}

// Placeable checks that the machine holds what tables place, which requires drawing the sizes. An
// error about a table is of type Faults.
func (s *Scenario) Placeable() error {
	if s.files == nil {
		return nil
	}
	job, err := s.Job()
	if err != nil {
		return err
	}
	in, err := simulate.Input(job)
	if err != nil {
		return err
	}
	var faults Faults
	for _, name := range s.files {
		table := s.values[name].(*policyfile.Policy)
		wrong := (policyfile.Faults)(nil)
		err := table.Check(len(in.Nodes), len(job.Sizes), in.Size, in.Nodes[0].Capacity)
		if errors.As(err, &wrong) {
			for _, f := range wrong {
				faults = append(faults, Fault{
					Key: "simulate.policy_files", Value: envfile.Text(name), Wrong: f.Error(),
				})
			}
		}
	}
	if faults != nil {
		return faults
	}
	return nil
}
