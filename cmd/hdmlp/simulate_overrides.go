package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
)

// overrides returns the values of flags that override the file's.
func (opts simulateOptions) overrides() ([]scenario.Override, error) {
	var set []scenario.Override
	var errs []error
	for _, text := range opts.set {
		o, err := scenario.ParseOverride(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--set %w", err))
			continue
		}
		set = append(set, o)
	}
	if opts.policies != nil {
		quoted := make([]string, len(opts.policies))
		for i, name := range opts.policies {
			quoted[i] = strconv.Quote(strings.TrimSpace(name))
		}
		set = append(set, scenario.Override{
			Key:   "simulate.policies",
			Value: "[" + strings.Join(quoted, ", ") + "]",
			Given: "--policy",
		})
	}
	if opts.policyFiles != nil {
		quoted := make([]string, len(opts.policyFiles))
		for i, file := range opts.policyFiles { // paths in the scenario are relative to its file
			path, err := filepath.Abs(file)
			if err != nil {
				errs = append(errs, fmt.Errorf("--policy-file %s: %w", file, err))
			}
			quoted[i] = strconv.Quote(path)
		}
		set = append(set, scenario.Override{
			Key:   "simulate.policy_files",
			Value: "[" + strings.Join(quoted, ", ") + "]",
			Given: "--policy-file",
		})
	}
	if opts.profile != "" {
		set = append(set,
			scenario.Override{
				Key:   "simulate.profile",
				Value: strconv.Quote(opts.profile),
				Given: "--profile",
			})
	}
	if opts.seed != "" {
		set = append(set, scenario.Override{Key: "simulate.seed", Value: opts.seed, Given: "--seed"})
	}
	for _, o := range set {
		key := scenario.FullKey(o.Key)
		same := func(s scenario.Override) bool { return scenario.FullKey(s.Key) == key }
		if first := set[slices.IndexFunc(set, same)]; first.Given != o.Given {
			errs = append(errs, fmt.Errorf("--set %s=%s: conflicts with %s; give one of them",
				first.Key, first.Value, o.Given))
		}
	}
	return set, errors.Join(errs...)
}

// sweeps returns the keys to vary, with their values.
func (opts simulateOptions) sweeps() ([]scenario.Sweep, error) {
	if opts.scaling != "" {
		if opts.sweep != nil {
			return nil, errors.New("--scaling and --sweep are mutually exclusive; --sweep " +
				"nodes=1,2,4 can be combined with a second --sweep")
		}
		s, err := scenario.ParseSweep("environment.nodes=" + opts.scaling)
		if err != nil {
			return nil, fmt.Errorf("--scaling %w", err)
		}
		return []scenario.Sweep{s}, nil
	}
	if len(opts.sweep) > 2 {
		return nil, fmt.Errorf("--sweep is given %d times; allowed: once or twice", len(opts.sweep))
	}
	var sweeps []scenario.Sweep
	for _, text := range opts.sweep {
		s, err := scenario.ParseSweep(text)
		if err != nil {
			return nil, fmt.Errorf("--sweep %w", err)
		}
		if slices.ContainsFunc(sweeps, func(o scenario.Sweep) bool { return o.Key == s.Key }) {
			return nil, fmt.Errorf("--sweep %s is given twice; give another key, or all "+
				"values at once", s.Key)
		}
		sweeps = append(sweeps, s)
	}
	return sweeps, nil
}
