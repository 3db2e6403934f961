package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/transform"
)

func newKindsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kinds",
		Short: "List the kinds of sources, storage classes and transforms",
		Long: `List what this program supports: the kinds of sources of a dataset with their
options, which commands take as --option KEY=VALUE, the kinds of storage classes
for a [[storage_class]] entry of the configuration, fastest first, and the
transforms that the daemon applies.

EXIT STATUS
  0  success
  2  wrong input`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, _ := cmd.Flags().GetBool("json")
			return runKinds(asJSON, cmd.OutOrStdout())
		},
	}
}

// kindsView is what `hdmlp kinds --json` prints.
type kindsView struct {
	Sources    []kindView `json:"sources"`
	Classes    []kindView `json:"storage_classes"`
	Transforms []string   `json:"transforms"`
}

type kindView struct {
	Name string `json:"name"`
	Help string `json:"help"`
	// Options are those of a source; of a storage class, hdmlp config lists them.
	Options []optionView `json:"options,omitempty"`
}

// optionView is an option of a source.
type optionView struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Help    string `json:"help"`
}

func optionViews(options []option.Option) []optionView {
	views := make([]optionView, len(options))
	for i, o := range options {
		views[i] = optionView{o.Key, string(o.Kind), o.Default, o.Help}
	}
	return views
}

func runKinds(asJSON bool, out io.Writer) error {
	v := kindsView{Transforms: transform.Names()}
	for _, k := range sources() {
		v.Sources = append(v.Sources, kindView{k.Name, k.Help, optionViews(k.Options)})
	}
	for _, k := range describedClasses() {
		v.Classes = append(v.Classes, kindView{Name: k.Name, Help: k.Help})
	}
	if asJSON {
		return printJSON(out, v)
	}
	for _, part := range []struct {
		title string
		kinds []kindView
	}{{"Sources", v.Sources}, {"Storage classes, fastest first", v.Classes}} {
		fmt.Fprintln(out, part.title)
		for _, k := range part.kinds {
			fmt.Fprintf(out, "  %-10s %s\n", k.Name, k.Help)
			for _, o := range k.Options {
				fmt.Fprintf(out, "  %10s   %-11s %s\n", "", o.Key, o.Help)
			}
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "Transforms: as in torchvision, except where the line says more")
	for _, name := range v.Transforms {
		line := fmt.Sprintf("  %-21s %s", name, transform.Help(name))
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	return nil
}
