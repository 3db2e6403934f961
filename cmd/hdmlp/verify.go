package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/blake2b"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/audit"
)

func newVerifyCommand() *cobra.Command {
	var subset, key string
	cmd := &cobra.Command{
		Use:   "verify STATE...",
		Short: "Prove from loaders' states that a run delivered each sample once",
		Long: `Prove from the states of a run's loaders, afterwards and without the dataset,
that the ranks were given each sample of each epoch exactly once, whatever
interrupted the run and with whatever number of ranks it went on.

A STATE is a JSON file with what loader.state_dict() returned, alone or
somewhere in it, as json.dump writes it; -: standard input. Give the last states
of all ranks, and the states of all ranks from which a launch went on: each
carries what its rank was given. Others of the same run may be given too. Steps
that a rank went through again, as a loop does without set_epoch, came twice.

Sums of what was given to each rank are compared with those of the order, which
follows from the seed. If the loader was one of torch.utils.data.Subset, give
its indices with --indices. If files have states of several loaders, give the
key of one with --key, as in {"train": STATE, "validation": STATE}.

EXIT STATUS
  0  every sample came exactly once
  1  it is not proved; each reason is printed
  2  wrong input: no states, changed ones, or those of different runs`,
		Example: `  hdmlp verify checkpoints/loader-*.json
  hdmlp verify step-500/rank-*.json last/rank-*.json --json
  hdmlp verify checkpoint.json --key train`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badInput("verify: give the files with the states, as in hdmlp verify " +
					"checkpoints/loader-*.json")
			}
			asJSON, _ := cmd.Flags().GetBool("json")
			return runVerify(args, subset, key, asJSON, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&subset, "indices", "",
		"`FILE` with the indices of the loader's Subset, a JSON list")
	cmd.Flags().StringVar(&key, "key", "", "take only states that are under this `KEY` in the files")
	return cmd
}

func runVerify(paths []string, subset, key string, asJSON bool, in io.Reader, out io.Writer) error {
	states, err := readStates(paths, key, in)
	if err != nil {
		return err
	}
	spec, err := specOf(states, subset)
	if err != nil {
		return err
	}
	var pieces []audit.Piece
	for _, s := range states {
		own, err := s.pieces()
		if err != nil {
			return err
		}
		pieces = append(pieces, own...)
	}
	if len(pieces) == 0 {
		return badInput("%s: nothing was delivered before the state was saved: give the states at the "+
			"end of the run, and those from which a launch went on", states[0].file)
	}
	proof, err := audit.Prove(spec, pieces)
	if err != nil {
		return badInput("the states do not fit together: %w", err)
	}
	if proof.Steps != states[0].Steps {
		return badInput("%s: steps is %d, and an epoch of this order has %d: the state was changed",
			states[0].file, states[0].Steps, proof.Steps)
	}
	if asJSON {
		err = printProofJSON(out, proof)
	} else {
		printProof(out, proof)
	}
	if err == nil && !proof.Proved() {
		err = errNotProved
	}
	return err
}

// errNotProved ends the command with exit status 1 after its output has said why.
var errNotProved = errors.New("it is not proved that each sample came exactly once")

// specOf returns the order of states of one run. The world size is left open.
func specOf(states []runState, subset string) (access.Spec, error) {
	first := states[0]
	for _, s := range states[1:] {
		for _, c := range []struct {
			key        string
			mine, this any
		}{
			{"fingerprint", first.Fingerprint, s.Fingerprint},
			{"samples", first.Samples, s.Samples},
			{"seed", first.Seed, s.Seed},
			{"shuffle", first.Shuffle, s.Shuffle},
			{"scheme", first.Scheme, s.Scheme},
			{"tail", first.Tail, s.Tail},
			{"drop_last", first.DropLast, s.DropLast},
			{"global_batch", first.GlobalBatch, s.GlobalBatch},
			{"steps", first.Steps, s.Steps},
			{"subset", text(first.Subset), text(s.Subset)},
			{"mix", mixOf(&first), mixOf(&s)},
		} {
			if !reflect.DeepEqual(c.mine, c.this) {
				choose := ""
				if !slices.Equal(first.keys, s.keys) {
					choose = fmt.Sprintf("; those of one loader can be chosen by its --key (states are "+
						"under %q and %q)", strings.Join(first.keys, "."), strings.Join(s.keys, "."))
				}
				return access.Spec{}, badInput("the states are of different runs: %s is %v in %s, and %v "+
					"in %s%s", c.key, c.mine, first.file, c.this, s.file, choose)
			}
		}
	}
	spec := first.spec()
	switch {
	case first.Subset == nil && subset != "":
		return spec, badInput("--indices: the loader was one of the whole dataset; leave it out")
	case first.Subset != nil && subset == "":
		return spec, badInput("%s: the loader was one of some of the samples: give their indices, a "+
			"JSON list as json.dump(list(subset.indices), file) writes it, with --indices", first.file)
	case subset != "":
		data, err := files.Read(subset, 1<<30)
		if err != nil {
			return spec, badInput("--indices: %s: %w", subset, withoutPath(err))
		}
		if err := json.Unmarshal(data, &spec.Subset); err != nil || spec.Subset == nil {
			return spec, badInput("--indices: %s: not a JSON list of whole numbers, as "+
				"json.dump(list(subset.indices), file) writes it%s", subset, whyNotJSON(err))
		}
		if got := subsetDigest(spec.Subset); got != *first.Subset {
			return spec, badInput("--indices: %s: they are not the loader's: their digest is %s, and "+
				"%s in %s", subset, got, *first.Subset, first.file)
		}
	}
	return spec, nil
}

// subsetDigest is the digest of a state's subset: BLAKE2b of 8 bytes over little-endian int32.
func subsetDigest(indices []int32) string {
	digest, err := blake2b.New(8, nil)
	if err != nil {
		panic(err) // of a size that it has
	}
	_ = binary.Write(digest, binary.LittleEndian, indices) // a hash returns no error
	return hex.EncodeToString(digest.Sum(nil))
}

// mixOf describes how a state's loader mixed datasets.
func mixOf(s *runState) string {
	if s.Mix == nil {
		return "null"
	}
	return fmt.Sprintf("%+v", *s.Mix)
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// stretch is a stretch of a run in words.
func stretch(steps int, s audit.Span) string {
	first, last := s.From/steps, (s.To-1)/steps
	begin, end := s.From%steps, (s.To-1)%steps
	whole := begin == 0 && end == steps-1
	switch {
	case whole && first == last:
		return fmt.Sprintf("epoch %d", first)
	case whole:
		return fmt.Sprintf("epochs %d to %d", first, last)
	case first == last && begin == end:
		return fmt.Sprintf("step %d of epoch %d", begin, first)
	case first == last:
		return fmt.Sprintf("steps %d to %d of epoch %d", begin, end, first)
	}
	return fmt.Sprintf("step %d of epoch %d to step %d of epoch %d", begin, first, end, last)
}

func printProof(out io.Writer, p *audit.Proof) {
	for _, l := range p.Launches {
		fmt.Fprintf(out, "%s: %s\n", count(l.Ranks, "rank"), stretch(p.Steps, l.Span))
	}
	for _, w := range p.Wrong {
		fmt.Fprintf(out, "wrong: rank %d of %d, %s: %d samples that sum to %016x, and the order has "+
			"%d that sum to %016x", w.Rank, w.WorldSize,
			stretch(p.Steps, audit.Span{From: w.From, To: w.To}), w.Samples, w.Sum, w.Count, w.Want)
		if w.Samples < w.Count {
			fmt.Fprint(out, " (on_error leaves samples out that cannot be read or decoded, and a batch "+
				"does not come if a transform or collate_fn raised for it)")
		}
		fmt.Fprintln(out)
	}
	for _, g := range p.Gaps {
		if len(g.Missing) == 0 {
			fmt.Fprintf(out, "missing: %s: no state says that it was delivered\n",
				stretch(p.Steps, g.Span))
		}
		for _, ranks := range slices.Sorted(maps.Keys(g.Missing)) {
			fmt.Fprintf(out, "missing: %s: no state says that it was delivered to %s of %d\n",
				stretch(p.Steps, g.Span), numbers(g.Missing[ranks]), ranks)
		}
	}
	for _, s := range p.Twice {
		fmt.Fprintf(out, "twice: %s: samples came %d times; a pass began again at an epoch that had "+
			"come (set_epoch was not called, or with an earlier epoch), or a state is one from which "+
			"the run did not go on: leave that out\n", stretch(p.Steps, s.Span), s.Times)
	}
	for _, d := range p.Dropped {
		fmt.Fprintf(out, "missing: what rank %d of %d was given before it was given %s: a state keeps "+
			"the latest 256 passes, and %d more are gone; give states that were saved earlier, too\n",
			d.Rank, d.WorldSize, stretch(p.Steps, audit.Span{From: d.From, To: d.To}), d.Dropped)
	}
	if p.Proved() {
		end := p.Launches[len(p.Launches)-1].To
		for _, l := range p.Launches {
			end = max(end, l.To)
		}
		fmt.Fprintf(out, "proved: in %s, %s, each sample came exactly once, as the order has it\n",
			stretch(p.Steps, audit.Span{From: 0, To: end}), count(int(p.Samples), "sample"))
	}
}

func numbers(ranks []int) string {
	words := make([]string, len(ranks))
	for i, rank := range ranks {
		words[i] = strconv.Itoa(rank)
	}
	if len(words) == 1 {
		return "rank " + words[0]
	}
	return "ranks " + human.And(words)
}

func printProofJSON(out io.Writer, p *audit.Proof) error {
	place := func(at int) [2]int { return [2]int{at / p.Steps, at % p.Steps} }
	span := func(s audit.Span) map[string]any {
		return map[string]any{"from": place(s.From), "to": place(s.To)}
	}
	report := map[string]any{"proved": p.Proved(), "samples": p.Samples, "steps": p.Steps}
	launches, wrong := []map[string]any{}, []map[string]any{}
	gaps, twice := []map[string]any{}, []map[string]any{}
	dropped := []map[string]any{}
	for _, l := range p.Launches {
		one := span(l.Span)
		one["world_size"] = l.Ranks
		launches = append(launches, one)
	}
	for _, w := range p.Wrong {
		one := span(audit.Span{From: w.From, To: w.To})
		one["rank"], one["world_size"] = w.Rank, w.WorldSize
		one["samples"], one["expected_samples"] = w.Samples, w.Count
		one["sum"], one["expected_sum"] = fmt.Sprintf("%016x", w.Sum), fmt.Sprintf("%016x", w.Want)
		wrong = append(wrong, one)
	}
	for _, g := range p.Gaps {
		one := span(g.Span)
		one["missing"] = g.Missing
		gaps = append(gaps, one)
	}
	for _, s := range p.Twice {
		one := span(s.Span)
		one["times"] = s.Times
		twice = append(twice, one)
	}
	report["launches"], report["wrong"] = launches, wrong
	for _, d := range p.Dropped {
		one := span(audit.Span{From: d.From, To: d.To})
		one["rank"], one["world_size"] = d.Rank, d.WorldSize
		one["dropped"] = d.Dropped
		dropped = append(dropped, one)
	}
	report["gaps"], report["twice"] = gaps, twice
	report["dropped"] = dropped
	return printJSON(out, report)
}
