package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

// cacheLsOptions are the options of `hdmlp cache ls`.
type cacheLsOptions struct {
	dirs       []string
	configured bool // dirs come from the configuration: they need not exist yet
	json       bool
	location   *time.Location // time zone of times for people
}

func newCacheLsCommand() *cobra.Command {
	opts := cacheLsOptions{location: time.Local}
	return &cobra.Command{
		Use:   "ls [DIR ...]",
		Short: "List the contents of cache directories",
		Long: `List the contents of cache directories: for each store its version, how many of
its dataset's samples it holds, their bytes, when it was last opened, and the
dataset's path. Without DIR, list the directories of the configuration in force:
cache_dir, or the [[storage_class]] entries of the file.

The command changes nothing. Samples that a running daemon has not written yet
are not counted.

EXIT STATUS
  0  success
  1  a directory could not be read
  2  wrong input: not a cache directory, no directory is configured, ...`,
		Example: `  hdmlp cache ls
  hdmlp cache ls /nvme/hdmlp --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.dirs = args
			opts.json, _ = cmd.Flags().GetBool("json")
			if len(args) == 0 {
				cfg, err := configInForce()
				if err != nil {
					return err
				}
				opts.configured = true
				for _, class := range cfg.StorageClasses {
					if class.Kind == file.Name {
						opts.dirs = append(opts.dirs, class.Path())
					}
				}
				if len(opts.dirs) == 0 {
					return badInput("no cache directory is configured (cache_dir, " +
						"HDMLP_CACHE_DIR); give one, as in `hdmlp cache ls /nvme/hdmlp`")
				}
			}
			return runCacheLs(opts, cmd.OutOrStdout())
		},
	}
}

// cacheView is what `hdmlp cache ls --json` prints for one directory. Sizes are in bytes.
type cacheView struct {
	Dir    string      `json:"dir"`
	Exists bool        `json:"exists"`
	InUse  bool        `json:"in_use"`
	PID    string      `json:"pid,omitempty"` // of the process that uses it, if known
	Bytes  int64       `json:"bytes"`
	Stores []storeView `json:"stores"`
}

type storeView struct {
	Version     string            `json:"version"`
	Samples     int               `json:"samples"` // of the dataset; -1: not known
	Held        int               `json:"held"`
	Bytes       int64             `json:"bytes"`
	Used        time.Time         `json:"last_used"`
	Problem     string            `json:"problem,omitempty"`
	Description *file.Description `json:"description"` // null: missing or unusable
}

// runCacheLs prints the contents of the directories. If one cannot be listed, the others still are.
func runCacheLs(opts cacheLsOptions, out io.Writer) error {
	views := []*cacheView{}
	var failed []error
	for _, dir := range opts.dirs {
		v, err := viewCache(dir, opts.configured)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		views = append(views, v)
	}
	if opts.json {
		return errors.Join(append(failed, printJSON(out, views))...)
	}
	for i, v := range views {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if _, err := io.WriteString(out, v.text(opts.location)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// viewCache returns the view of one directory.
func viewCache(dir string, mayBeMissing bool) (*cacheView, error) {
	v := &cacheView{Dir: dir, Stores: []storeView{}}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && mayBeMissing {
		return v, nil
	}
	c, err := openCache(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // it was only read
	v.Exists = true
	if v.PID, err = c.User(); err != nil {
		return nil, cacheError(err)
	}
	v.InUse = v.PID != ""
	stores, err := cacheStores(c)
	if err != nil {
		return nil, err
	}
	for _, s := range stores {
		view := storeView{
			Version: versionText(s.Fingerprint), Samples: s.Samples, Held: s.Held,
			Bytes: s.HeldBytes,
			Used:  s.Used.UTC(), Description: s.Description,
		}
		if s.Problem != nil {
			view.Problem = s.Problem.Error()
		}
		v.Bytes += s.HeldBytes
		v.Stores = append(v.Stores, view)
	}
	return v, nil
}

// text formats the view for people.
func (v *cacheView) text(location *time.Location) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", human.Name(v.Dir))
	switch {
	case !v.Exists:
		b.WriteString(": nothing is cached yet; the directory does not exist\n")
		return b.String()
	case len(v.Stores) == 0:
		b.WriteString(": nothing is cached")
	default:
		fmt.Fprintf(&b, ": %s, %s", count(len(v.Stores), "store"), byteSize(float64(v.Bytes)))
	}
	switch {
	case v.PID == file.UnknownPID:
		b.WriteString("; in use by a process that its marker does not name, because files of it were " +
			"removed")
	case v.InUse:
		fmt.Fprintf(&b, "; in use by process %s", v.PID)
	}
	b.WriteByte('\n')
	if len(v.Stores) == 0 {
		return b.String()
	}
	rows := make([]string, len(v.Stores))
	width := len("samples")
	for i, s := range v.Stores {
		rows[i] = thousands(s.Held) + " of "
		if s.Samples < 0 {
			rows[i] += "?"
		} else {
			rows[i] += thousands(s.Samples)
		}
		width = max(width, len(rows[i]))
	}
	fmt.Fprintf(&b, "\n  %-*s  %*s  %9s  %-16s  %s\n", shortVersion, "version", width, "samples",
		"bytes", "last used", "dataset")
	for i, s := range v.Stores {
		path := "unknown"
		if s.Description != nil && s.Description.Path != "" {
			path = human.Name(s.Description.Path)
		}
		fmt.Fprintf(&b, "  %s  %*s  %9s  %s  %s\n", s.Version[:shortVersion], width, rows[i],
			byteSize(float64(s.Bytes)),
			s.Used.In(location).Format("2006-01-02 15:04"), path)
		if s.Problem != "" {
			fmt.Fprintf(&b, "  %*s  %s\n", shortVersion, "",
				strings.ReplaceAll(human.Text(s.Problem), "\n", "; "))
		}
	}
	return b.String()
}
