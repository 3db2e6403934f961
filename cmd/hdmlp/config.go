package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
)

func newConfigCommand() *cobra.Command {
	var (
		path    string
		set     []string
		example bool
		convert string // a libconfig file
		dir     string // of the dataset
		flags   datasetFlags
	)
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force, and where each value comes from",
		Long: `Show the configuration of a job started here and now, and where each value comes
from: arguments (--set) override HDMLP_* variables, which override the file,
which overrides defaults that are derived from or measured on this machine.

The file is --file, or the one that HDMLP_CONFIG names, or
~/.config/hdmlp/config.toml if it exists. It is TOML; if its name ends in .cfg,
it is a libconfig file as that of the HDMLP thesis, which --convert prints as
TOML.

With --dataset, the performance model is the one that the next job on that
dataset begins with: what an earlier job or hdmlp probe stored beside its index,
unless the configuration gives the number. Give --kind and --option as for hdmlp
dataset, if jobs ask for more than the names of the files say. With --kind
records, DIR is the directory that the listed files have in common.

EXIT STATUS
  0  success
  2  wrong input: each wrong value is reported`,
		Example: `  hdmlp config
  hdmlp config --set memory=64GiB --set cache_dir=/nvme/hdmlp
  hdmlp config --dataset /data/imagenet
  hdmlp config --dataset /data/shards --option fields=jpg,cls
  hdmlp config --example > ~/.config/hdmlp/config.toml
  hdmlp config --convert hdmlp.cfg > ~/.config/hdmlp/config.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			asJSON, _ := cmd.Flags().GetBool("json")
			if err := alone(cmd.Flags(), "example", "prints a file of all keys"); err != nil {
				return err
			}
			err := alone(cmd.Flags(), "convert", "prints a file as TOML")
			if err != nil {
				return err
			}
			if example {
				_, err := io.WriteString(out, config.Example(describedClasses()))
				return err
			}
			if convert != "" {
				return convertConfig(convert, out)
			}
			arguments, err := parseSettings(set)
			if err != nil {
				return err
			}
			if err := makeAbsolute(arguments); err != nil {
				return err
			}
			environment := hdmlpEnvironment()
			input := config.Input{
				Arguments: arguments, Scope: config.Job, Environment: environment,
				File: cmp.Or(path, config.DefaultFile(environment)),
				Machine: config.Machine{
					AvailableMemory: availableMemory, Disk: disk, Directory: host.Directory,
				},
				Classes: describedClasses(),
			}
			return runConfig(cmd.Context(), input, dir, flags, asJSON, out)
		},
	}
	cmd.Flags().StringVar(&dir, "dataset", "",
		"show what the next job on the dataset in `DIR` begins with")
	flags.add(cmd.Flags())
	cmd.Flags().StringVar(&path, "file", "", "configuration file")
	cmd.Flags().StringArrayVar(&set, "set", nil,
		"set a key as an argument of a job would, as `KEY=VALUE`; may be repeated")
	cmd.Flags().BoolVar(&example, "example", false,
		"print a configuration file with all keys commented out")
	cmd.Flags().StringVar(&convert, "convert", "",
		"print `FILE`, a libconfig file as in listing 4.7 of the thesis, as TOML")
	return cmd
}

// alone checks that no other flag is given with one that does something of its own.
func alone(flags *pflag.FlagSet, name, does string) (err error) {
	if !flags.Changed(name) {
		return nil
	}
	flags.Visit(func(other *pflag.Flag) {
		if other.Name != name && err == nil {
			err = badInput("--%s and --%s: give one of them; --%s %s, and reads nothing else",
				other.Name, name, name, does)
		}
	})
	return err
}

// mostConfig is the most bytes of a file that is converted.
const mostConfig = 1 << 20

// convertConfig prints a libconfig file as TOML.
func convertConfig(path string, out io.Writer) error {
	text, err := files.ReadText(path, mostConfig)
	if err != nil {
		return badInput("--convert: %w", err)
	}
	converted, err := config.Convert(path, string(text), describedClasses())
	if err != nil {
		return inputError{err}
	}
	_, err = io.WriteString(out, converted)
	return err
}

// makeAbsolute makes paths relative to the current directory absolute, as the Python package does
// with a job's arguments.
func makeAbsolute(arguments map[string]any) error {
	for _, p := range config.Parameters() {
		text, ok := arguments[p.Key].(string)
		if !ok || p.Kind != option.Path || text == "" || strings.HasPrefix(text, "~/") ||
			option.IsURL(text) {
			continue
		}
		path, err := filepath.Abs(text)
		if err != nil {
			return fmt.Errorf("--set %s=%s: %w", p.Key, text, err)
		}
		arguments[p.Key] = path
	}
	return nil
}

// configInForce returns the configuration of a command, from variables and the file, without facts
// about the machine.
func configInForce() (*config.Config, error) {
	environment := hdmlpEnvironment()
	cfg, err := config.Resolve(config.Input{
		Environment: environment, File: config.DefaultFile(environment),
		Classes: describedClasses(),
	})
	if err != nil {
		return nil, inputError{err}
	}
	warnOfConfig(cfg)
	return cfg, nil
}

// warnOfConfig prints what has no effect in a configuration.
func warnOfConfig(c *config.Config) {
	for _, text := range c.Warnings {
		fmt.Fprintf(os.Stderr, "hdmlp: warning: %s\n", human.Text(text))
	}
}

// jobConfig returns the configuration in force for a job on this machine that is given these keys,
// a cache directory, the flag --cache, in the place of theirs ("": none), and a file of other keys
// ("": the default one).
func jobConfig(keys map[string]any, cache, file string) (*config.Config, error) {
	c, err := resolveJob(keys, cache, file)
	if err == nil {
		warnOfConfig(c)
	}
	return c, err
}

// resolveJob is jobConfig without warnings.
func resolveJob(keys map[string]any, cache, file string) (*config.Config, error) {
	arguments := map[string]any{}
	maps.Copy(arguments, keys)
	if cache != "" {
		if info, err := os.Stat(cache); err != nil {
			return nil, badInput("--cache: %w; give a directory on the disk of the cache", err)
		} else if !info.IsDir() {
			return nil, badInput("--cache %s: not a directory", cache)
		}
		path, err := filepath.Abs(cache)
		if err != nil {
			return nil, err
		}
		arguments["cache_dir"] = path
	}
	variables := hdmlpEnvironment()
	c, err := config.Resolve(config.Input{
		Arguments: arguments, Scope: config.Job, Environment: variables,
		File: cmp.Or(file, config.DefaultFile(variables)), Classes: describedClasses(),
		Machine: config.Machine{AvailableMemory: availableMemory, Disk: disk},
	})
	if err != nil {
		return nil, inputError{err}
	}
	return c, nil
}

// runConfig prints the configuration. dir is the dataset's; "": none.
func runConfig(ctx context.Context, input config.Input, dir string, flags datasetFlags,
	asJSON bool, out io.Writer,
) error {
	c, err := config.Resolve(input)
	if err != nil {
		return inputError{err}
	}
	warnOfConfig(c)
	var stored *storedModel
	if dir != "" {
		flags.indexDir = cmp.Or(flags.indexDir, c.IndexDir)
		stored, err = readStored(ctx, dir, flags, c.SourceTimeout, time.Now())
		if err != nil {
			return err
		}
	} else if flag := flags.given(); flag != "" {
		return badInput("--%s: it is about a dataset; give --dataset too", flag)
	}
	if asJSON {
		return printConfigJSON(out, c, input.File, stored)
	}
	width, colour := terminal(out)
	p := configPrinter{width: width, colour: colour}
	p.print(c, input.File, stored)
	_, err = out.Write(p.text.Bytes())
	return err
}

func printConfigJSON(out io.Writer, c *config.Config, file string, stored *storedModel) error {
	type parameter struct {
		Key     string `json:"key"`
		Value   string `json:"value"`
		Source  string `json:"source"`
		Scope   string `json:"scope"`
		Allowed string `json:"allowed"`
		Help    string `json:"help"`
	}
	type class struct {
		Kind     string `json:"kind"`
		Capacity int64  `json:"capacity"` // 0: the disk's free space, less reserve
		Path     string `json:"path,omitempty"`
		Threads  int    `json:"threads"`
		// Options are those that only its kind has, as text.
		Options map[string]string `json:"options,omitempty"`
	}
	result := struct {
		File       string            `json:"file"`
		Parameters []parameter       `json:"parameters"`
		Classes    []class           `json:"storage_classes"`
		Model      map[string]string `json:"environment"` // as given
		Values     []modelValue      `json:"model"`
		Stored     *storedModel      `json:"stored,omitempty"` // beside the dataset's index
	}{
		Values: modelOf(c, stored), Stored: stored,
		File: file, Parameters: []parameter{}, Classes: []class{},
		Model: map[string]string{},
	}
	for _, p := range config.Parameters() {
		o := c.Origins[p.Key]
		result.Parameters = append(result.Parameters,
			parameter{p.Key, o.Value, o.Source, string(p.Scope), p.Allowed(), p.Help})
	}
	for _, s := range c.StorageClasses {
		result.Classes = append(result.Classes,
			class{s.Kind, s.Capacity(), s.Path(), s.Threads, maps.Collect(ownOptions(s))})
	}
	for key, o := range c.Origins {
		if name, ok := strings.CutPrefix(key, "environment."); ok {
			result.Model[name] = o.Value
		}
	}
	return printJSON(out, result)
}

// ownOptions yields the options of a class, and their values, that only its kind has.
func ownOptions(s config.StorageClass) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for _, key := range slices.Sorted(maps.Keys(s.Options)) {
			switch key {
			case store.PathKey, store.CapacityKey, store.ReserveKey:
				continue
			}
			if text, ok := option.TextOf(s.Options[key]); ok && !yield(key, text) {
				return
			}
		}
	}
}

// configPrinter formats the configuration for people.
type configPrinter struct {
	text   bytes.Buffer
	width  int // of a line, in characters
	name   int // width of the first column
	value  int // width of the second; longer values shift the third
	colour bool
}

// freeSpace stands for the capacity of a file class that was not given.
const freeSpace = "free space"

const (
	bold  = "1"
	faint = "2"
)

func (p *configPrinter) style(code, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *configPrinter) print(c *config.Config, file string, stored *storedModel) {
	p.value = len(freeSpace)
	for key, o := range c.Origins {
		p.name = max(p.name, min(len(key), 18))
		p.value = max(p.value, min(len(o.Value), 28))
	}
	fmt.Fprintf(&p.text, "%s  %s\n", p.style(bold, "File"), human.Name(cmp.Or(file, "none")))
	for _, section := range []struct {
		scope config.Scope
		title string
	}{{config.Job, "Job"}, {config.Daemon, "Daemon"}} {
		var rows [][3]string
		var help []string
		for _, q := range config.Parameters() {
			if q.Scope == section.scope {
				o := c.Origins[q.Key]
				rows = append(rows, [3]string{q.Key, o.Value, o.Source})
				text := q.Help
				if q.Kind == option.Enum && !strings.Contains(text, q.Values[0]) {
					text += ": " + strings.Join(q.Values, ", ")
				}
				help = append(help, text)
			}
		}
		p.table(section.title, rows, help)
	}
	var classes [][3]string
	for i, s := range c.StorageClasses {
		capacity := freeSpace
		if s.Capacity() > 0 {
			capacity = human.Format(s.Capacity())
		}
		where := count(s.Threads, "thread")
		if s.Path() != "" {
			where = s.Path() + ", " + where
		}
		for key, value := range ownOptions(s) {
			where += ", " + key + " = " + value
		}
		classes = append(classes, [3]string{fmt.Sprintf("%d %s", i+1, s.Kind), capacity, where})
	}
	if len(classes) == 0 {
		classes = [][3]string{{"none", "", "nothing is cached"}}
	}
	p.table("Storage classes, fastest first", classes, nil)
	var rows [][3]string
	if stored != nil {
		rows = append(rows, [3]string{"dataset", stored.Dataset, ""},
			[3]string{"stored", strings.ReplaceAll(stored.text(), "\n", "; "), ""})
		if stored.Path != "" {
			rows = append(rows, [3]string{"in", stored.Path, ""})
		}
	}
	for _, v := range modelOf(c, stored) {
		value := strings.TrimSpace(v.Value + " " + v.Unit)
		if v.Most != "" {
			value += ", at most " + v.Most + " MB/s"
		}
		if v.Value == "" {
			value = ""
		}
		source := v.Source
		switch v.Origin {
		case string(model.Given):
		case string(model.Probed):
			source = v.Origin + ": stored"
		default:
			source = v.Origin + ": " + source
		}
		rows = append(rows, [3]string{v.Key, value, source})
	}
	p.table("Performance model", rows, nil)
}

// table prints rows of name, value and origin, each with its help below.
func (p *configPrinter) table(title string, rows [][3]string, help []string) {
	fmt.Fprintf(&p.text, "\n%s\n", p.style(bold, title))
	for i, row := range rows {
		for j, cell := range row {
			row[j] = human.Name(cell) // paths, names and texts that users give
		}
		name := fmt.Sprintf("%-*s", p.name, row[0])
		value := fmt.Sprintf("%-*s", p.value, cmp.Or(row[1], "-"))
		if help == nil {
			fmt.Fprintf(&p.text, "  %s  %s  %s\n", name, value, row[2])
			continue
		}
		if !strings.HasPrefix(row[2], "default") && !strings.HasPrefix(row[2], "measured") {
			value = p.style(bold, value) // set by the user
		}
		fmt.Fprintf(&p.text, "  %s  %s  %s\n", name, value, row[2])
		p.paragraph(p.name+4, help[i])
	}
}

// paragraph prints text faint, wrapped and indented.
func (p *configPrinter) paragraph(indent int, text string) {
	line := ""
	flush := func() {
		fmt.Fprintf(&p.text, "%*s%s\n", indent, "", p.style(faint, line))
		line = ""
	}
	for word := range strings.FieldsSeq(text) {
		if line != "" && indent+len(line)+1+len(word) > p.width {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
}

// terminal returns the width of out, and reports whether it shows colours.
func terminal(out io.Writer) (width int, colour bool) {
	f, ok := fileOf(out).(*os.File)
	if !ok {
		return 80, false
	}
	window, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 80, false
	}
	width = 80
	if window.Col > 0 {
		width = min(max(int(window.Col), 40), 110)
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
